"""Convolutional models have as many parameters as in Wu et al. (2019); other variables have the Transformer's names."""

import dataclasses

import pytest
from test_parameter_counts import counted, formula

from t2t_ext.config.hyperparameters import TransformerHParams

MODEL = "dynamic_conv"
# 7 encoder and 6 decoder layers.
KERNELS = (3, 7, 15, 31, 31, 31, 31, 3, 7, 15, 31, 31, 31)


def convolutions(hparams, kernels):
    """Returns the modules' parameters: input (twice as wide if gated) and output projections, d H k or H k kernels."""
    d = hparams.hidden_size
    heads = hparams.conv_heads or hparams.num_heads
    inner = 2 * d if hparams.conv_glu else d
    biases = inner + d if hparams.projection_bias else 0
    by_tap = heads * d if hparams.conv_type == "dynamic" else heads
    return sum(d * inner + d * d + biases + by_tap * taps for taps in kernels)


def expected(hparams, kernels, vocabulary):
    d = hparams.hidden_size
    attention = 4 * d * d + (4 * d if hparams.projection_bias else 0)
    return formula(hparams, vocabulary, vocabulary, True) - len(kernels) * attention + convolutions(hparams, kernels)


@pytest.mark.parametrize(
    ("name", "changes", "kernels", "millions"),
    [
        # Wu et al. 2019, WMT En-De: 213M, the ablations (without GLU) 200M and 195M; docs/dynamic_conv.md has the 202M.
        ("dynamic_conv_big", {}, KERNELS, 213.2),
        ("dynamic_conv_big", {"conv_glu": False}, KERNELS, 199.6),
        ("lightweight_conv_big", {}, KERNELS, 208.9),
        ("lightweight_conv_big", {"conv_glu": False}, KERNELS, 195.2),
        ("dynamic_conv_iwslt", {}, KERNELS, None),
        ("lightweight_conv_iwslt", {}, KERNELS, None),
        ("dynamic_conv_base", {"num_encoder_layers": 2, "num_decoder_layers": 1}, (3, 7, 3), None),
        ("dynamic_conv_test", {"conv_heads": 4, "encoder_kernel_sizes": "5", "conv_glu": False}, (5, 5, 3, 7), None),
        ("dynamic_conv_test", {"conv_stacks": "decoder", "conv_type": "lightweight"}, (3, 7), None),
    ],
)
def test_counts(name, changes, kernels, millions):
    from t2t_ext import registry

    hparams = registry.hparams(name).replace(**changes)
    count = expected(hparams, kernels, 32_768)
    assert counted(hparams, 32_768, 32_768, True, MODEL) == count
    assert millions is None or count / 1e6 == pytest.approx(millions, abs=0.05)


def test_other_names_are_a_transformers():
    """All variables except the convolutions have a Transformer's names, so either can start from the other's run."""
    from t2t_ext import registry

    hparams = registry.hparams("dynamic_conv_test")
    shared = {field.name: getattr(hparams, field.name) for field in dataclasses.fields(TransformerHParams)}
    names = []
    for kind, mixer, given in (
        (MODEL, "convolution", hparams),
        ("transformer", "self_attention", TransformerHParams(**shared)),
    ):
        model = registry.model(kind)(given, source_vocab_size=50, target_vocab_size=50)
        model.build()
        shapes = {name: tuple(variable.shape) for name, variable in model.named_variables().items()}
        names.append({name.replace(f"/{mixer}_frame/", "/frame/"): shape for name, shape in shapes.items()})
        assert any(f"/{mixer}/" in name for name in names[-1])
        names[-1] = {name: shape for name, shape in names[-1].items() if f"/{mixer}/" not in name}
    assert names[0] == names[1]
