"""Views of the source work together with decoders of both directions, convolutions and a second decoder."""

import pytest
from composition_checks import built, check_every_weight, check_steps, check_what_is_seen

SOFT = {"source_view": "gca", "integration": "soft"}
COMPOSITIONS = {
    "synchronous_gca_soft": ("synchronous_transformer", SOFT),
    "synchronous_ama_by_query": (
        "synchronous_transformer",
        {"source_view": "ama", "ama_query": "decoder", "integration": "soft_two_attention"},
    ),
    "dynamic_conv_gca": ("dynamic_conv", {"source_view": "gca"}),
    "asynchronous_gca_soft": ("asynchronous_transformer", {**SOFT, "backward_length_offset": 2}),
}


@pytest.fixture(scope="module", params=COMPOSITIONS)
def composed(request):
    """Gives a model with random weights."""
    from t2t_ext import registry

    name, changes = COMPOSITIONS[request.param]
    hparams = registry.hparams(f"{name}_test").replace(num_encoder_layers=3, **changes)
    return built(registry.model(name), hparams)


def test_step_by_step_equals_all_at_once(composed):
    check_steps(composed)


def test_no_future_no_padding_and_every_weight(composed):
    """Logits depend neither on the future nor on padding, and every view, norm and attention has a gradient."""
    check_what_is_seen(composed)
    check_every_weight(composed)
