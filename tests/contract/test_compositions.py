"""Models that combine dual context, source views and both directions, or some of them with related models."""

import pytest
from composition_checks import built, check_every_weight, check_steps, check_what_is_seen
from test_parameter_counts import counted, formula

DUAL = {"dc_encoder_layers": "all"}
VIEWS = {"source_view": "gca", "integration": "soft"}
BOTH_WAYS = {"synchronous": True, "sb_lambda": 0.8, "sb_lambda_trainable": "vector"}
POST_NORM = {"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}
TOGETHER = {
    "dual_views": {**DUAL, "dc_decoder_layers": "2", **VIEWS},
    "dual_synchronous": {**DUAL, **BOTH_WAYS},
    "views_synchronous": {**VIEWS, **BOTH_WAYS},
    "all_three": {**DUAL, **VIEWS, **BOTH_WAYS},
}
RELATIVES = {
    "asynchronous_dual": (
        "asynchronous_transformer",
        {"dc_encoder_layers": "1-2", "dc_decoder_layers": "1", **VIEWS, "backward_length_offset": 2},
    ),
    "convolutions_views_dual": ("dynamic_conv", {"conv_stacks": "encoder", "dc_decoder_layers": "all", **VIEWS}),
    "convolutions_views_synchronous": (
        "dynamic_conv",
        {"conv_stacks": "encoder", **VIEWS, "synchronous": True, "sb_lambda": 0.8},
    ),
    "context_gate_synchronous": ("context_gate_transformer", {"synchronous": True, "sb_lambda": 0.8}),
}


def plain():
    """Returns hparams with all three ideas off, 3+2 layers and width 16."""
    from t2t_ext import registry
    from t2t_ext.config.hyperparameters import TransformerHParams

    sizes = registry.hparams("synchronous_transformer_test")
    of_interest = ("hidden_size", "filter_size", "num_heads", "num_hidden_layers")
    return TransformerHParams(**{name: getattr(sizes, name) for name in of_interest}, num_encoder_layers=3)


@pytest.fixture(scope="module", params=[*((name, norm) for name in TOGETHER for norm in ("pre", "post")), *RELATIVES],
                ids=lambda param: param if isinstance(param, str) else "_".join(param))  # fmt: skip
def composed(request):
    """Gives a model with random weights."""
    from t2t_ext import registry

    if request.param in RELATIVES:
        name, changes = RELATIVES[request.param]
        return built(registry.model(name), registry.hparams(f"{name}_test").replace(num_encoder_layers=3, **changes))
    name, norm = request.param
    changes = {**TOGETHER[name], **(POST_NORM if norm == "post" else {})}
    return built(registry.model("composed_transformer"), plain().replace(**changes))


def test_step_by_step_equals_all_at_once(composed):
    check_steps(composed)


def test_no_future_and_no_padding(composed):
    check_what_is_seen(composed)


def test_every_weight_has_a_gradient(composed):
    check_every_weight(composed)


# === The model that can have any of them ===


@pytest.mark.parametrize("norms", [{}, POST_NORM])
def test_with_all_three_off_it_is_the_transformer(norms):
    """With all three ideas off, the model equals the Transformer bit for bit; with two directions, by name and shape.

    So a run can start from a trained Transformer.
    """
    import numpy as np
    from composition_checks import INPUTS, TARGETS
    from contract_cases import logits_of

    from t2t_ext import registry

    hparams = plain().replace(**norms)
    transformer, composed = (built(registry.model(name), hparams) for name in ("transformer", "composed_transformer"))
    np.testing.assert_array_equal(logits_of(composed, INPUTS, TARGETS), logits_of(transformer, INPUTS, TARGETS))
    names = {name: tuple(variable.shape) for name, variable in transformer.named_variables().items()}
    for model in (composed, built(registry.model("composed_transformer"), hparams.replace(synchronous=True))):
        assert {name: tuple(variable.shape) for name, variable in model.named_variables().items()} == names


def test_its_directions_are_those_of_the_hparams():
    from t2t_ext import registry
    from t2t_ext.models.transformer import Transformer
    from t2t_ext.search.directions import directions_of

    class Mine(Transformer):
        """A user's own subclass."""

    for hparams, directions in ((plain(), 1), (plain().replace(synchronous=True), 2)):
        for kind in (registry.model("composed_transformer"), Mine):
            model = kind(hparams, source_vocab_size=20, target_vocab_size=20)
            assert kind.sides(hparams) == (model.directions, model.target_sides) == (directions, directions)
            assert directions_of(hparams) == directions
            again = kind.from_config(model.get_config())
            assert (type(again), again.directions) == (kind, directions)


def test_what_targets_are_made_of_and_what_is_watched_go_with_the_directions():
    from t2t_ext.config.hyperparameters import TransformerHParams

    one, two = plain(), plain().replace(synchronous=True)
    assert (one.pseudo, one.early_stopping_metric) == ("none", "loss")
    assert (two.pseudo, two.early_stopping_metric) == ("two", "bleu")
    assert TransformerHParams(synchronous=True).pseudo == "two"
    assert two.override("pseudo=six").override("synchronous=false").pseudo == "none"
    assert one.override("synchronous=true,pseudo=none").pseudo == "none"
    assert TransformerHParams.from_dict(two.replace(pseudo="one").to_dict()).pseudo == "one"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("sb_lambda=0.5", "sb_lambda=0.5 is about two directions .* leave sb_lambda out, or set synchronous=true"),
        ("predict_tag=true", "predict_tag=true is about two directions"),
        ("pseudo=two", "pseudo=two is not for synchronous=false, with which it is one of none, l2r, both"),
        ("synchronous=true,pseudo=l2r", "pseudo=l2r is not for synchronous=true, with which it is one of two, one"),
        ("synchronous=true,dc_decoder_layers=all", "dc_decoder_layers='all': a decoder of two directions attends to"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides, message):
    from t2t_ext.errors import UserError

    with pytest.raises(UserError, match=message):
        plain().override(overrides)


# A dual contextual module has (2 f + 4) d^2 more than self-attention, and the vectors b^r (2 d), b_z (d) and its norm
# (2 d). A soft view has a norm of 2 d for each decoder layer. In pre-norm stacks each encoder layer that is read, but
# not the last, also has a norm: 2 decoder layers read 2 of 3 encoder layers, so only the first has it. A trainable
# lambda has d for each decoder layer.
@pytest.mark.parametrize(("taps", "norms", "norms_of_seen_layers"), [(2, {}, 1), (3, POST_NORM, 0)])
def test_parameters_add_up(taps, norms, norms_of_seen_layers):
    base = plain().replace(**norms)
    d = base.hidden_size
    dual = base.encoder_layers * ((2 * taps + 4) * d**2 + 5 * d)
    views = base.decoder_layers * 2 * d + norms_of_seen_layers * 2 * d
    lambdas = base.decoder_layers * d
    hparams = base.replace(**TOGETHER["all_three"], dc_kernel_size=taps)
    expected = formula(base, 50, 50, True) + dual + views + lambdas
    assert counted(hparams, 50, 50, True, "composed_transformer") == expected
    assert counted(hparams.replace(sb_lambda_trainable="none"), 50, 50, True, "composed_transformer") == (
        expected - lambdas
    )
