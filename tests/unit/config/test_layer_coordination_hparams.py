"""Tests of the hparams that layer-wise coordination refuses, and of how its sets relate to their baselines."""

import pytest

from t2t_ext import registry
from t2t_ext.errors import UserError


def small(**changes):
    return registry.hparams("layer_coordination_small").replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_encoder_layers": 6}, "num_encoder_layers=6: .* num_hidden_layers of them"),
        ({"num_decoder_layers": 6}, "num_decoder_layers=6"),
        ({"shared_embedding_and_softmax_weights": False}, "one matrix embeds both sides"),
        ({"use_target_space_embedding": True}, "lwc_side_embedding"),
        ({"source_view": "gca"}, "source_view=gca .* own layer"),
        ({"shared_embedding": True}, "shared_embedding=True: .* one matrix embeds both sides always"),
        ({"feature_positions": "timing"}, "feature_positions=timing: .* the source is words"),
        (
            {"dc_decoder_layers": "all"},
            "dc_decoder_layers='all': .* dc_encoder_layers names them; .*share_weights=false",
        ),
        ({"lwc_source": "input"}, "lwc_source=input is about two stacks: .*take lwc_source=last, or set lwc_share"),
        ({"dc_encoder_layers": "15"}, "dc_encoder_layers='15': .* count from 1 to 14"),
        (
            {"dc_encoder_layers": "all", "num_hidden_layers": 1, "lwc_share_weights": False, "lwc_source": "input"},
            "dc_encoder_layers='all': the encoder has no layers",
        ),
    ],
)
def test_what_one_stack_has_no_use_for(changes, message):
    with pytest.raises(UserError, match=message):
        small(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_sos": True}, "use_sos=true: the first input of a direction is its tag.* set use_sos=false, or"),
        ({"dc_encoder_layers": "1"}, "dc_encoder_layers='1': a shared layer is the target's, too"),
        ({"lwc_share_weights": False, "dc_decoder_layers": "1"}, "dc_decoder_layers='1': a decoder of two directions"),
        ({"sb_layers": "15"}, "sb_layers='15'"),
        ({"source_view": "gca"}, "source_view=gca"),
    ],
)
def test_what_has_no_place_in_both_directions(changes, message):
    with pytest.raises(UserError, match=message):
        registry.hparams("synchronous_layer_coordination_small").replace(**changes)


def test_a_set_of_one_direction_becomes_one_of_both():
    with pytest.raises(UserError, match="set use_sos=false"):
        registry.resolve_hparams("layer_coordination_small", "synchronous=true")
    assert registry.resolve_hparams("layer_coordination_small", "synchronous=true,use_sos=false").directions == 2


def test_the_sets_of_both_directions_are_those_of_one():
    for name in ("small", "base", "tiny", "test"):
        one, both = (registry.hparams(f"{kind}layer_coordination_{name}") for kind in ("", "synchronous_"))
        assert {field for field in one.names() if getattr(one, field) != getattr(both, field)} == {
            "pseudo",
            "synchronous",
            "use_sos",
        }
        assert (both.pseudo, both.sb_fusion, both.sb_lambda, both.directions) == ("two", "tanh", 0.1, 2)
        assert both.early_stopping_metric == "bleu"


def test_the_sets_are_the_papers():
    """The sets have the paper's values: sizes, heads (section 4.2), Adam, batches (4.3), ablations (tables 3 and 4)."""
    sizes = {"small": (256, 1024, 4, 14), "base": (512, 2048, 8, 14), "big": (1024, 4096, 16, 14)}
    for name, values in sizes.items():
        hparams = registry.hparams(f"layer_coordination_{name}")
        assert (hparams.hidden_size, hparams.filter_size, hparams.num_heads, hparams.num_hidden_layers) == values
        assert (hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2) == (0.9, 0.98)
        assert (hparams.batch_size, hparams.batch_tokens, hparams.use_sos) == (4096, "sum", True)
    ablations = {
        "no_sharing": {"lwc_share_weights": False, "num_hidden_layers": 7},
        "no_sharing_input": {"lwc_share_weights": False, "lwc_source": "input", "num_hidden_layers": 7},
        "no_mixed_attention": {"lwc_mixed_attention": False},
        "no_side_embedding": {"lwc_side_embedding": False},
        "no_positions": {"pos": "none"},
        "10_layers": {"num_hidden_layers": 10},
        "18_layers": {"num_hidden_layers": 18},
        "22_layers": {"num_hidden_layers": 22},
    }
    for name, changes in ablations.items():
        assert registry.hparams(f"layer_coordination_small_{name}").to_dict() == small(**changes).to_dict(), name
    printed = registry.hparams("layer_coordination_big_ff2048")
    assert printed.to_dict() == registry.hparams("layer_coordination_big").replace(filter_size=2048).to_dict()


def test_trained_as_the_baseline():
    """The sets small and base differ from their baselines only in depth and in which tokens batch_size counts."""
    for ours, baseline in (("small", "transformer_iwslt_small"), ("base", "transformer_base_he2018")):
        hparams, other = registry.hparams(f"layer_coordination_{ours}"), registry.hparams(baseline)
        different = {name for name in other.names() if getattr(hparams, name) != getattr(other, name)}
        assert different == {"num_hidden_layers", "batch_tokens"}


def test_how_high_the_learning_rate_rises():
    """The peak of the learning rate is d^-0.5 * warm-up^-0.5, as in Vaswani et al., whom the paper cites."""
    from t2t_ext.training.schedules import Schedule

    for name in ("layer_coordination_small", "transformer_iwslt_small", "transformer_big_he2018"):
        hparams = registry.hparams(name)
        vaswani = (hparams.hidden_size * hparams.learning_rate_warmup_steps) ** -0.5
        schedule = Schedule(hparams, 100_000)
        assert float(schedule(hparams.learning_rate_warmup_steps)) == pytest.approx(vaswani, rel=1e-5), name
        assert float(schedule(16_000)) == pytest.approx(vaswani / 2, rel=1e-5), name


def test_the_context_gate_is_its_baseline_with_gates():
    hparams, other = registry.hparams("context_gate_transformer_small"), registry.hparams("transformer_iwslt_small")
    assert all(getattr(hparams, name) == getattr(other, name) for name in other.names())
    assert hparams.context_gate == "head"


def test_two_vocabularies_are_refused():
    make = registry.model("layer_coordination")
    for sizes, joint in (((50, 70), None), ((50, 50), False)):
        with pytest.raises(UserError, match=r"one vocabulary for both.*--noseparate_vocab"):
            make(
                registry.hparams("layer_coordination_test"),
                source_vocab_size=sizes[0],
                target_vocab_size=sizes[1],
                joint_vocabulary=joint,
            )
