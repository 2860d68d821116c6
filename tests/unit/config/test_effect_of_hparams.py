"""Tests that an hparam that the user sets, but nothing reads, is refused with a message about what would read it."""

import dataclasses

import pytest

from t2t_ext import registry
from t2t_ext.config.asynchronous import AsynchronousHParams
from t2t_ext.config.context_gate import ContextGateHParams
from t2t_ext.config.dynamic_conv import DynamicConvHParams
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.config.layer_coordination import SynchronousLayerCoordinationHParams
from t2t_ext.config.strict_params import FLAG
from t2t_ext.config.synchronous import SynchronousHParams
from t2t_ext.errors import UserError

FAMILIES = [
    TransformerHParams,
    AsynchronousHParams,
    ContextGateHParams,
    DynamicConvHParams,
    SynchronousHParams,
    SynchronousLayerCoordinationHParams,
]
POST_NORM = "layer_preprocess_sequence=none,layer_postprocess_sequence=dan"
VIEW, TWO = "source_view=gca,integration=soft", "synchronous=true"
SCHEDULE = "learning_rate_schedule=constant*linear_warmup"
# Field -> a value; overrides with which it is read; overrides with which it is not read; part of the error.
CONDITIONS = {
    "min_length_bucket": ("16", "batch_shapes=static", "", "batch_shapes=static"),
    "length_bucket_step": ("1.5", "batch_shapes=static", "", "batch_shapes=static"),
    "simcut_probability": ("0.1", "simcut_alpha=3", "", "simcut_alpha"),
    "r_drop_alpha": (
        "5", "", "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0", "every dropout is 0",
    ),
    "optimizer_adam_beta1": ("0.8", "", "optimizer=adafactor", "optimizer=adam, adam_w and schedule_free_adam_w"),
    "optimizer_adam_beta2": ("0.8", "optimizer=adam_w", "optimizer=adafactor", "optimizer=adam"),
    "optimizer_adam_epsilon": ("1e-8", "", "optimizer=adafactor", "optimizer=adam"),
    "optimizer_schedule_free_power": (
        "1", f"optimizer=schedule_free_adam_w,{SCHEDULE}", "", "optimizer=schedule_free_adam_w",
    ),
    "optimizer_adafactor_beta1": ("0.9", "optimizer=adafactor", "", "optimizer=adafactor"),
    "optimizer_adafactor_beta2": (
        "0.9", "optimizer=adafactor,optimizer_adafactor_decay_type=adam", "optimizer=adafactor", "decay_type=adam",
    ),
    "optimizer_adafactor_decay_type": ("adam", "optimizer=adafactor", "", "optimizer=adafactor"),
    "optimizer_adafactor_memory_exponent": (
        "0.7", "optimizer=adafactor", "optimizer=adafactor,optimizer_adafactor_decay_type=adam", "decay_type=pow",
    ),
    "optimizer_adafactor_clipping_threshold": ("2", "optimizer=adafactor", "", "optimizer=adafactor"),
    "optimizer_adafactor_multiply_by_parameter_scale": ("false", "optimizer=adafactor", "", "optimizer=adafactor"),
    "average_every": ("10", "average_last=4", "", "average_last"),
    "learning_rate_constant": ("1", "", "learning_rate_schedule=legacy", "set learning_rate, or a"),
    "learning_rate": ("0.0001", "learning_rate_schedule=legacy", "", "set learning_rate_constant, or a"),
    "learning_rate_warmup_steps": ("100", "", "learning_rate_schedule=constant", "with linear_warmup or rsqrt_decay"),
    "learning_rate_decay_steps": ("100", "learning_rate_schedule=constant*cosdecay", "", "cosdecay or linear_decay or"),
    "learning_rate_decay_rate": ("0.5", "learning_rate_schedule=exp_decay", "", "with exp_decay"),
    "num_hidden_layers": ("3", "num_encoder_layers=2", "num_encoder_layers=2,num_decoder_layers=2", "change these"),
    "num_encoder_layers": ("3", "", "encoder_preset=PRESET", "leave num_encoder_layers out"),
    "use_target_space_embedding": ("true", "", "encoder_preset=PRESET", "leave use_target_space_embedding out"),
    "talking_heads": ("both", "", "encoder_preset=PRESET", "set talking_heads=decoder"),
    "conv_stacks": ("encoder", "", "encoder_preset=PRESET", "leave conv_stacks out"),
    "encoder_preset_rate": ("0.5", "encoder_preset=PRESET", "", "set encoder_preset"),
    "encoder_preset_frozen_layers": ("2", "encoder_preset=PRESET", "", "set encoder_preset"),
    "pos_encoding": ("interleaved", "", "pos=none", "pos=timing"),
    "target_space_id": ("1", "use_target_space_embedding=true", "", "use_target_space_embedding=true"),
    "dc_kernel_size": ("3", "dc_encoder_layers=all", "", "dc_encoder_layers or dc_decoder_layers"),
    "dc_even_kernel": ("left", "dc_encoder_layers=1", "dc_decoder_layers=1", "for encoder layers with an even"),
    "source_view_map": ("6+5+4+3+2+1", VIEW, "source_view=fga", "source_view=gca and gpa"),
    "source_view_norm": ("shared", VIEW, f"{VIEW},{POST_NORM}", "pre-norm"),
    "fma": ("scalar", "source_view=fma", VIEW, "source_view=fma"),
    "ama_share_layers": ("true", "source_view=ama", VIEW, "source_view=ama"),
    "ama_query": ("decoder", "source_view=ama", VIEW, "source_view=ama"),
    "integration": ("soft", "source_view=gca", "", "set source_view"),
    "integration_attention": ("separate", "source_view=gca,integration=soft_two_attention", VIEW, "soft_two_attention"),
    "sb_fusion": ("relu", TWO, "", "synchronous=true"),
    "sb_lambda": ("0.5", TWO, f"{TWO},sb_fusion=gate", "sb_fusion=linear, tanh or relu"),
    "sb_lambda_trainable": ("scalar", TWO, f"{TWO},sb_fusion=gate", "sb_fusion=linear, tanh or relu"),
    "sb_gate": ("model", f"{TWO},sb_fusion=gate", TWO, "sb_fusion=gate"),
    "sb_layers": ("1-2", TWO, "", "synchronous=true"),
    "sb_future_dropout": ("0.2", TWO, "", "synchronous=true"),
    "predict_tag": ("true", TWO, "", "synchronous=true"),
    "sb_loss_on_pseudo": ("false", f"{TWO},pseudo=two", f"{TWO},pseudo=none", "pseudo=none"),
    "encoder_kernel_sizes": ("3", "", "conv_stacks=decoder", "conv_stacks=decoder"),
    "conv_even_kernel": ("left", "encoder_kernel_sizes=4", "", "even number of taps"),
    "lwc_source": ("input", "lwc_share_weights=false", "", "lwc_share_weights=false"),
    "decoder_kernel_sizes": ("3", "", "conv_stacks=encoder", "conv_stacks=encoder"),
}  # fmt: skip


def family_of(name):
    return next(family for family in FAMILIES if name in family.names())


def test_every_condition_is_tested():
    declared = {field.name for family in FAMILIES for field in dataclasses.fields(family) if field.metadata.get("when")}
    assert declared == CONDITIONS.keys()


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_is_set_must_be_read(name):
    value, read, unread, named = CONDITIONS[name]
    plain = family_of(name)()
    hparams = plain.override(",".join(filter(None, [read, f"{name}={value}"])))
    hparams.check_effect("--hparams")
    assert getattr(hparams, name) != getattr(plain, name)
    with pytest.raises(UserError) as caught:
        plain.override(",".join(filter(None, [unread, f"{name}={value}"]))).check_effect("--hparams")
    assert f"{name}=" in str(caught.value)
    assert named in str(caught.value)


def test_a_side_of_even_kernels_is_of_convolutions():
    even = "encoder_kernel_sizes=3+4,conv_even_kernel=right"
    registry.resolve_hparams("dynamic_conv_iwslt", f"num_encoder_layers=2,dc_encoder_layers=1,{even}")
    with pytest.raises(UserError, match="no convolution of the encoder has an even number of taps"):
        registry.resolve_hparams("dynamic_conv_iwslt", f"num_encoder_layers=2,dc_encoder_layers=2,{even}")


@pytest.mark.parametrize(
    ("set_name", "overrides"),
    [
        ("transformer_base", "target_space_id=3"),
        ("transformer_test", "talking_heads=encoder"),
        ("asynchronous_transformer_test", "talking_heads=encoder"),
        ("cross_view_transformer_test", "source_view_norm=shared"),
        ("dynamic_conv_test", "encoder_kernel_sizes=3"),
        ("dynamic_conv_test", "encoder_kernel_sizes=4,conv_even_kernel=left"),
    ],
)
def test_what_is_of_the_encoder_is_refused_with_a_preset(set_name, overrides):
    with pytest.raises(UserError, match=r"the encoder of encoder_preset=PRESET is as it is; leave .* out"):
        registry.resolve_hparams(set_name, f"encoder_preset=PRESET,{overrides}")


@pytest.mark.parametrize(
    "overrides", ["use_target_space_embedding=false", "talking_heads=decoder", "num_encoder_layers=0"]
)
def test_what_a_preset_leaves_is_accepted(overrides):
    """With encoder_preset, values of an own encoder that come from the set, not from the user, are accepted."""
    for name in ("transformer_base_v1", "transformer_small_data_4_2"):
        registry.resolve_hparams(name, f"encoder_preset=PRESET,{overrides}")


@pytest.mark.parametrize("set_name", registry.hparams_names())
def test_what_a_set_has_and_nothing_reads_is_not_the_users(set_name):
    hparams = registry.resolve_hparams(set_name)
    assert FLAG not in hparams.origins().values()
    type(hparams).from_dict(hparams.to_dict()).check_effect("--hparams")  # a stored run


def test_all_that_has_no_effect_is_told_at_once_in_the_users_words():
    with pytest.raises(UserError) as caught:
        registry.resolve_hparams("transformer_tiny", "learning_rate=0.0001,average_every=5,batch_size=100")
    assert str(caught.value) == (
        "--hparams: learning_rate=0.0001 has no effect: learning_rate_schedule=constant*linear_warmup*rsqrt_decay*"
        "rsqrt_hidden_size does not use it; set learning_rate_constant, or a learning_rate_schedule with legacy; "
        "average_every=5 has no effect: average_last=0; set average_last=10."
    )
