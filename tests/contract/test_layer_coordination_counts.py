"""Models with layer-wise coordination have as many parameters as the paper and the equations say."""

import pytest
from test_parameter_counts import counted, formula

WORDS = 31_345  # He et al. 2018: "about 31K"; with one matrix of this many rows the counts are the paper's
MODEL = "layer_coordination"


def equations(hparams, vocabulary):
    """Counts one embedding matrix, N layers (2 N without sharing) and the sides' vectors by the equations.

    A layer has attention, feed-forward and two norms.
    """
    d, f = hparams.hidden_size, hparams.filter_size
    layer = 4 * d * d + (4 * d if hparams.projection_bias else 0) + 2 * d * f + f + d + 2 * 2 * d
    layers = hparams.num_hidden_layers + (0 if hparams.lwc_share_weights else hparams.encoder_layers)
    last_norm = 2 * d if hparams.layer_preprocess_sequence == "n" else 0
    vectors = (2 if hparams.lwc_side_embedding else 0) + (1 if hparams.use_sos else 0)
    return vocabulary * d + layers * layer + last_norm + vectors * d


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        # Table 3.
        ("small", "19.07"),
        ("small_no_sharing", "19.07"),
        ("small_no_sharing_input", "18.28"),  # without a seventh source layer, which nothing would read
        ("small_no_mixed_attention", "19.07"),
        ("small_no_side_embedding", "19.07"),
        ("small_no_positions", "19.07"),
        # Table 4, counted by formula.
        ("small_10_layers", "15.91"),
        ("small_18_layers", "22.22"),
        ("small_22_layers", "25.38"),
    ],
)
def test_published_counts_of_layer_coordination(name, millions):
    from t2t_ext import registry

    hparams = registry.hparams(f"{MODEL}_{name}")
    count = equations(hparams, WORDS)
    assert f"{count / 1e6:.2f}" == millions
    if name == "small" or "sharing" in name:  # the others' differences are counted below, with fewer layers
        assert counted(hparams, WORDS, WORDS, True, MODEL) == count


@pytest.mark.parametrize("layers", [4, 6, 8, 10])
def test_as_large_as_the_baseline(layers):
    """Models of 10, 14, 18 and 22 layers are as large as Transformers of 4+4, 6+6, 8+8 and 10+10 (table 4)."""
    from t2t_ext import registry

    baseline = registry.hparams("transformer_iwslt_small").replace(num_hidden_layers=layers)
    ours = registry.hparams("layer_coordination_small").replace(num_hidden_layers=2 * layers + 2)
    count = formula(baseline, WORDS, WORDS, True)
    difference = equations(ours, WORDS) - count
    assert abs(difference) < 0.045 * count
    if layers == 6:
        assert f"{count / 1e6:.2f}" == "19.07"
        assert difference < 2000


@pytest.mark.parametrize(
    ("changes", "growth"),
    [
        ({"num_hidden_layers": 1}, -3 * (12 * 128**2 + 512 + 128 + 4 * 128)),
        ({"lwc_share_weights": False}, 4 * (12 * 128**2 + 512 + 128 + 4 * 128)),
        ({"lwc_share_weights": False, "lwc_source": "input"}, 3 * (12 * 128**2 + 512 + 128 + 4 * 128)),
        ({"lwc_source": "last"}, 0),
        ({"lwc_share_weights": False, "lwc_source": "last"}, 4 * (12 * 128**2 + 512 + 128 + 4 * 128)),
        ({"use_sos": False}, -128),
        ({"lwc_side_embedding": False}, -256),
        ({"projection_bias": True}, 4 * 4 * 128),
        ({"layer_preprocess_sequence": "none", "layer_postprocess_sequence": "dan"}, -256),
        ({"lwc_mixed_attention": False}, 0),
        ({"pos": "none"}, 0),
    ],
)
def test_growth_of_layer_coordination(changes, growth):
    from t2t_ext import registry

    plain = registry.hparams("layer_coordination_tiny")
    assert counted(plain.replace(**changes), 100, 100, True, MODEL) == equations(plain, 100) + growth


# A module has (2 f + 4) d^2 more than attention, and the vectors b^r (2 d), the norm of l_c (2 d) and b_z (d). With
# projection biases it has another 2 d: those of q, k, v twice instead of q, k, v, output once. Both stacks may have
# modules.
@pytest.mark.parametrize(
    ("changes", "taps", "modules", "biases"),
    [
        ({"dc_encoder_layers": "all"}, 2, 4, False),
        ({"dc_encoder_layers": "2-3", "dc_kernel_size": 5, "lwc_mixed_attention": False}, 5, 2, False),
        ({"dc_encoder_layers": "1", "projection_bias": True}, 2, 1, True),
        ({"lwc_share_weights": False, "dc_encoder_layers": "1-3", "dc_decoder_layers": "4"}, 2, 4, False),
    ],
)
def test_growth_by_dual_contextual_modules(changes, taps, modules, biases):
    from t2t_ext import registry

    hparams = registry.hparams("layer_coordination_tiny").replace(**changes)
    d = hparams.hidden_size
    growth = modules * ((2 * taps + 4) * d**2 + 5 * d + (2 * d if biases else 0))
    assert counted(hparams, 100, 100, True, MODEL) == equations(hparams, 100) + growth


@pytest.mark.parametrize(
    ("changes", "growth"),
    [
        ({}, 0),
        ({"sb_lambda_trainable": "scalar"}, 4),
        ({"sb_lambda_trainable": "vector", "sb_layers": "2-3"}, 2 * 128),
        ({"sb_fusion": "gate"}, 4 * (2 * 128 // 4) ** 2),
        ({"sb_fusion": "gate", "sb_gate": "model", "lwc_share_weights": False}, 4 * (2 * 128) ** 2),
    ],
)
def test_both_directions_have_the_weights_of_one(changes, growth):
    """Both directions share one direction's weights; only trainable lambdas or gates (Zhou et al. 2019) are added."""
    from t2t_ext import registry

    hparams = registry.hparams("synchronous_layer_coordination_tiny").replace(**changes)
    assert counted(hparams, 100, 100, True, f"synchronous_{MODEL}") == equations(hparams, 100) + growth


def test_the_big_model_is_as_large_as_the_baseline():
    """14 layers of 12 d^2 are as large as six of 12 d^2 and six of 16 d^2; with the printed width, a third smaller."""
    from t2t_ext import registry

    baseline = formula(registry.hparams("transformer_big_he2018"), 0, 0, True)
    big, printed = (equations(registry.hparams(f"layer_coordination_{name}"), 0) for name in ("big", "big_ff2048"))
    assert big == pytest.approx(baseline, rel=1e-3)
    assert printed / baseline == pytest.approx(2 / 3, rel=2e-3)


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, "19.08"),
        ({"context_gate": "channel"}, "19.85"),
        ({"context_gate": "channel", "num_encoder_layers": 1, "num_decoder_layers": 2}, None),
    ],
)
def test_counts_of_the_context_gate(changes, millions):
    """A gate adds 2 d inputs and one output per head, or per channel, to each decoder layer (section 5.4: 19.08M)."""
    from t2t_ext import registry

    hparams = registry.hparams("context_gate_transformer_small").replace(**changes)
    d = hparams.hidden_size
    outputs = d if hparams.context_gate == "channel" else hparams.num_heads
    expected = formula(hparams, WORDS, WORDS, True) + hparams.decoder_layers * (2 * d * outputs + outputs)
    assert millions is None or f"{expected / 1e6:.2f}" == millions
    if hparams.encoder_layers + hparams.decoder_layers < 6 or not changes:
        assert counted(hparams, WORDS, WORDS, True, "context_gate_transformer") == expected
