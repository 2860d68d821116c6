"""Tests of the values of the hparams sets: those of tensor2tensor 1.15 and some of this toolkit."""

import pytest

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams

LEGACY = {"learning_rate_schedule": "legacy"}
FACTORS = {"learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"}

# tensor2tensor 1.15, tensor2tensor/models/transformer.py and layers/common_hparams.py, resolved by hand.
BASE_V1 = {
    "batch_size": 4096,
    "max_length": 256,
    "min_length_bucket": 8,
    "length_bucket_step": 1.1,
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "clip_grad_norm": 0.0,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.98,
    "optimizer_adam_epsilon": 1e-9,
    **LEGACY,
    "learning_rate": 0.1,
    "learning_rate_constant": 1.0,
    "learning_rate_warmup_steps": 4000,
    "initializer": "uniform_unit_scaling",
    "initializer_gain": 1.0,
    "weight_decay": 0.0,
    "label_smoothing": 0.1,
    "shared_embedding": False,
    "shared_embedding_and_softmax_weights": True,
    "multiply_embedding_mode": "sqrt_depth",
    "norm_epsilon": 1e-6,
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "ffn_activation": "relu",
    "pos": "timing",
    "use_target_space_embedding": True,
}
BASE_V2 = {
    **BASE_V1,
    "layer_preprocess_sequence": "n",
    "layer_postprocess_sequence": "da",
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.1,
    "relu_dropout": 0.1,
    "learning_rate_warmup_steps": 8000,
    "learning_rate": 0.2,
}
BASE = {**BASE_V2, "optimizer_adam_beta2": 0.997, **FACTORS, "learning_rate_constant": 2.0}
BIG = {
    **BASE,
    "hidden_size": 1024,
    "filter_size": 4096,
    "batch_size": 2048,
    "num_heads": 16,
    "layer_prepostprocess_dropout": 0.3,
}
IWSLT = {
    **BASE,
    "hidden_size": 256,
    "filter_size": 1024,
    "num_heads": 4,
    "num_hidden_layers": 6,
    "optimizer_adam_beta2": 0.98,
    "learning_rate_constant": 1.0,
    "learning_rate_warmup_steps": 4000,
    "label_smoothing": 0.1,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.1,
    "relu_dropout": 0.1,
    "use_target_space_embedding": False,
}

SETS = {
    "transformer_base_v1": BASE_V1,
    "transformer_base_v2": BASE_V2,
    "transformer_base_v3": BASE,
    "transformer_base": BASE,
    "transformer_big": BIG,
    "transformer_big_single_gpu": {**BIG, "layer_prepostprocess_dropout": 0.1, "learning_rate_warmup_steps": 16000},
    "transformer_base_single_gpu": {
        **BASE,
        "batch_size": 1024,
        "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
        "learning_rate_constant": 0.1,
        "learning_rate_warmup_steps": 16000,
    },
    "transformer_small": {**BASE, "num_hidden_layers": 2, "hidden_size": 256, "filter_size": 1024, "num_heads": 4},
    "transformer_tiny": {**BASE, "num_hidden_layers": 2, "hidden_size": 128, "filter_size": 512, "num_heads": 4},
    "transformer_test": {**BASE, "num_hidden_layers": 2, "hidden_size": 16, "filter_size": 8, "num_heads": 2},
    "transformer_iwslt_small": IWSLT,
    "transformer_iwslt_4layer": {**IWSLT, "num_hidden_layers": 4},
}


@pytest.mark.parametrize("name", SETS)
def test_values(name):
    hparams = registry.hparams(name)
    assert isinstance(hparams, TransformerHParams)
    assert {field: getattr(hparams, field) for field in SETS[name]} == SETS[name]


@pytest.mark.parametrize("name", SETS)
def test_what_tensor2tensor_does_not_have_is_at_its_default(name):
    hparams, defaults = registry.hparams(name), TransformerHParams()
    others = set(TransformerHParams.names()) - set(BASE_V1)
    assert {field: getattr(hparams, field) for field in others} == {field: getattr(defaults, field) for field in others}


def test_peak_learning_rates():
    def peak(hparams):
        return (
            hparams.learning_rate_constant
            * hparams.learning_rate_warmup_steps**-0.5
            * (hparams.hidden_size**-0.5 if "rsqrt_hidden_size" in hparams.learning_rate_schedule else 1.0)
        )

    assert peak(registry.hparams("transformer_base")) == pytest.approx(9.88e-4, rel=1e-3)
    assert peak(registry.hparams("transformer_base_single_gpu")) == pytest.approx(7.9e-4, rel=1e-2)


def test_the_set_for_small_data_takes_two_slices_at_a_time():
    hparams = registry.hparams("transformer_small_data").override("parallel_slices=2,gradient_accumulation_steps=2")
    assert not list(hparams.validate())


def test_the_sets_for_middle_and_large_data_differ_from_published_ones_by_the_optimizer():
    fairseq, middle = registry.hparams("transformer_iwslt_liu2020"), registry.hparams("transformer_middle_data")
    base, large = registry.hparams("transformer_base"), registry.hparams("transformer_large_data")
    sizes = ("num_hidden_layers", "hidden_size", "filter_size", "num_heads", "layer_prepostprocess_dropout",
             "attention_dropout", "relu_dropout", "label_smoothing", "batch_size")  # fmt: skip
    for published, own in ((fairseq, middle), (base, large)):
        assert {name: getattr(own, name) for name in sizes} == {name: getattr(published, name) for name in sizes}
        assert own.optimizer == "schedule_free_adam_w"
        assert not list(own.override("parallel_slices=2").validate())


@pytest.mark.parametrize(
    ("name", "beside", "layers"),
    [
        ("transformer_small_data_4_2", "transformer_small_data", (4, 2)),
        ("transformer_small_data_6_1", "transformer_small_data", (6, 1)),
        ("transformer_iwslt_6_2", "transformer_iwslt_4layer", (6, 2)),
        ("transformer_iwslt_8_1", "transformer_iwslt_4layer", (8, 1)),
        ("transformer_iwslt_10_3", "transformer_iwslt_small", (10, 3)),
        ("transformer_iwslt_12_1", "transformer_iwslt_small", (12, 1)),
        ("transformer_base_12_1", "transformer_base", (12, 1)),
    ],
)
def test_a_deep_encoder_has_about_as_many_weights(name, beside, layers):
    def weights(hparams):
        attention, feed_forward = 4 * hparams.hidden_size**2, 2 * hparams.hidden_size * hparams.filter_size
        encoder = hparams.encoder_layers * (attention + feed_forward)
        return encoder + hparams.decoder_layers * (2 * attention + feed_forward)

    deep = registry.hparams(name)
    assert (deep.encoder_layers, deep.decoder_layers) == layers
    assert weights(deep) == pytest.approx(weights(registry.hparams(beside)), rel=0.08)
