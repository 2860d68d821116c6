"""The cases of the contract suite: every registered model with tiny hparams, and functions to build and drive it.

A new model adds a row to `SETTINGS`; the suite fails until it does.
"""

import dataclasses
import functools

import numpy as np
import pytest
from random_weights import random_arrays

VOCAB = 24

# Model -> name of the setting -> (hparams set, overrides). Export tests use the first setting of each model.
SETTINGS = {
    "asynchronous_transformer": {
        "pre_norm": ("asynchronous_transformer_test", "backward_length_ratio=1,backward_length_offset=2"),
        "post_norm": (
            "asynchronous_transformer_test",
            "layer_preprocess_sequence=none,layer_postprocess_sequence=dan,projection_bias=true,num_decoder_layers=3,"
            "shared_embedding_and_softmax_weights=false,backward_beam_size=2,backward_length_offset=1",
        ),
    },
    "composed_transformer": {
        "all_three": ("composed_transformer_test", "sb_lambda=0.8"),
        "one_direction": (
            "composed_transformer_test",
            "synchronous=false,layer_preprocess_sequence=none,layer_postprocess_sequence=dan,num_encoder_layers=3,"
            "dc_decoder_layers=2,dc_kernel_size=3,source_view=ama,integration=soft_two_attention",
        ),
    },
    "dynamic_conv": {
        "dynamic": ("dynamic_conv_test", ""),
        "lightweight_post_norm": (
            "dynamic_conv_test",
            "layer_preprocess_sequence=none,layer_postprocess_sequence=dan,projection_bias=true,conv_glu=false,"
            "conv_type=lightweight,conv_heads=4,encoder_kernel_sizes=4+2,decoder_kernel_sizes=2+5,conv_input_dropout=0.1",
        ),
    },
    "context_gate_transformer": {"pre_norm": ("context_gate_transformer_test", "")},
    "layer_coordination": {
        "shared": ("layer_coordination_test", ""),
        "two_stacks": (
            "layer_coordination_test",
            "lwc_share_weights=false,lwc_mixed_attention=false,use_sos=true,layer_preprocess_sequence=none,"
            "layer_postprocess_sequence=dan,ffn_activation=swiglu,projection_bias=true,attention_key_channels=8,"
            "attention_value_channels=24,pos_encoding=interleaved",
        ),
        "dual_context": ("layer_coordination_test", "dc_encoder_layers=1,dc_kernel_size=3"),
        "last_source_layer": ("layer_coordination_test", "lwc_source=last"),
    },
    "cross_view_dynamic_conv": {
        "fma_two_attentions": ("cross_view_dynamic_conv_test", "source_view=fma,integration=soft_two_attention"),
    },
    "cross_view_transformer": {
        "gca_soft": ("cross_view_transformer_test", "num_encoder_layers=3"),
        "ama_by_query_pre_norm": (
            "cross_view_transformer_test",
            "layer_preprocess_sequence=n,layer_postprocess_sequence=da,projection_bias=true,num_encoder_layers=3,"
            "attention_key_channels=8,attention_value_channels=24,source_view=ama,ama_query=decoder",
        ),
    },
    "dual_context_transformer": {
        "both_stacks": ("dual_context_test", ""),
        "four_taps_pre_norm": (
            "dual_context_test",
            "layer_preprocess_sequence=n,layer_postprocess_sequence=da,projection_bias=true,num_encoder_layers=3,"
            "attention_key_channels=8,attention_value_channels=24,dc_encoder_layers=2-3,dc_decoder_layers=1,"
            "dc_kernel_size=4,dc_even_kernel=left",
        ),
    },
    "synchronous_layer_coordination": {
        "shared": ("synchronous_layer_coordination_test", "sb_lambda=0.8,sb_lambda_trainable=vector"),
    },
    "synchronous_transformer": {
        "trained_lambda": ("synchronous_transformer_test", "sb_lambda=0.8,sb_lambda_trainable=vector"),
        "gate_tag_predicted": (
            "synchronous_transformer_test",
            "layer_preprocess_sequence=none,layer_postprocess_sequence=dan,ffn_activation=swiglu,projection_bias=true,"
            "use_target_space_embedding=true,num_encoder_layers=1,attention_key_channels=8,attention_value_channels=24,"
            "shared_embedding_and_softmax_weights=false,sb_fusion=gate,sb_layers=2,predict_tag=true",
        ),
    },
    "transformer": {
        "pre_norm": ("transformer_test", ""),
        "talking_heads": ("transformer_test", "talking_heads=both"),
        "post_norm": (
            "transformer_test",
            "layer_preprocess_sequence=none,layer_postprocess_sequence=dan,ffn_activation=swiglu,projection_bias=true,"
            "shared_embedding_and_softmax_weights=false,num_encoder_layers=1,num_decoder_layers=3,"
            "attention_key_channels=8,attention_value_channels=24,pos_encoding=interleaved",
        ),
    },
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A registered model in one setting."""

    model: str
    setting: str

    def __str__(self):
        return f"{self.model}-{self.setting}"

    def hparams(self, precision="float32"):
        """Returns the setting's hparams with the given dtype policy."""
        from t2t_ext import registry

        name, overrides = SETTINGS[self.model][self.setting]
        hparams = registry.hparams(name)
        return (hparams.override(overrides) if overrides else hparams).replace(precision=precision)


CASES = [Case(model, setting) for model, settings in SETTINGS.items() for setting in settings]
# For tests that hardly depend on the setting: all settings of a model except the first are marked as slow.
first_settings = pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(model, setting), marks=pytest.mark.slow if number else ())
        for model, settings in SETTINGS.items()
        for number, setting in enumerate(settings)
    ],
    ids=str,
)

# For costly tests of what models share: the first setting of one model of each kind; the others
# are marked as slow.
OF_EACH_KIND = ("transformer", "layer_coordination", "cross_view_dynamic_conv", "synchronous_transformer")
few_models = pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(model, setting), marks=pytest.mark.slow if number or model not in OF_EACH_KIND else ())
        for model, settings in SETTINGS.items()
        for number, setting in enumerate(settings)
    ],
    ids=str,
)


def few_layers(hparams):
    """Returns the hparams with few layers, whose graphs are traced fast; source views keep several encoder layers."""
    if hparams.source_view == "last":
        return hparams.replace(num_hidden_layers=1)
    return hparams if hparams.integration == "hard" else hparams.replace(num_encoder_layers=2, num_decoder_layers=1)


def new_model(case, precision="float32", vocab=VOCAB):
    """Returns a built model with its initial weights; with ``bfloat16``, weights have 16 bits as in translation."""
    from t2t_ext import registry

    mixed, dtype = (f"mixed_{precision}", precision) if precision == "bfloat16" else (precision, precision)
    sizes = {"source_vocab_size": vocab, "target_vocab_size": vocab}
    model = registry.model(case.model)(case.hparams(mixed), **sizes, dtype=dtype)
    model.build()
    return model


@functools.cache
def model_of(case, precision="float32"):
    """Returns a model with random weights, the same in every dtype policy; tests must not change it."""
    model = new_model(case, precision)
    model.assign(random_arrays(model, seed=1))
    return model


def sentences(rows, length, seed, shortest=2, vocab=VOCAB):
    """Returns random ids, int32 [rows, length], of words, EOS and PAD; the first row has the full length."""
    rng = np.random.default_rng(seed)
    ids = np.zeros([rows, length], np.int32)
    for row in range(rows):
        n = length if row == 0 else rng.integers(shortest, length + 1)
        ids[row, : n - 1] = rng.integers(5, vocab, n - 1)
        ids[row, n - 1] = 1
    return ids


def targets_of(model, targets):
    """Returns the targets for training a model: int32 [B, T], or [B, 2, T] of two sides with different lengths.

    In the first sentence side 0 has the full length, in the second sentence side 1 has it.
    """
    if model.target_sides == 1:
        return targets
    return np.stack([targets, np.roll(sentences(*targets.shape, seed=9), 1, axis=0)], axis=1)


def written_of(model, targets):
    """Returns targets of the shape that a model writes, which must not see the future: [B, T] or [B, 2, T]."""
    return targets if model.directions == 1 else targets_of(model, targets)


def written_otherwise(model, targets, t):
    """Returns the targets with all tokens from position t on replaced.

    Of two sides, a side that has ended before t stays unchanged, because its earlier tokens show that it has ended.
    """
    changed = targets.copy()
    changed[..., t:] = (changed[..., t:] + 9) % (VOCAB - 5) + 5
    return changed if model.directions == 1 else np.where(targets[..., t : t + 1] == 0, targets, changed)


def logits_of(model, inputs, targets, training=False):
    """Returns the logits as an array, float32 [B, T, V], or [B, 2, T, V] of two sides."""
    return model(inputs, targets, training=training).numpy()


def drive(model, inputs, steps, beams, seed):
    """Feeds random tokens step by step and reorders the hypotheses of a sentence at every step.

    Some hypotheses are extended twice, others are dropped. With two directions, hypotheses of the same rank see each
    other and are extended together, so partners never change.

    Args:
      model: A built model.
      inputs: int32 [B, S].
      steps: The number of steps.
      beams: K, the number of hypotheses per direction.
      seed: The seed of tokens and parents.

    Yields:
      The logits [B, R, K, V] of a step and the earlier tokens of every hypothesis, int32 [B, R, K, t].
    """
    rng = np.random.default_rng(seed)
    batch, directions = len(inputs), model.directions
    past = np.zeros([batch, directions, beams, 0], np.int32)
    columns = np.zeros([batch, beams, 0], np.int32)
    parents = np.tile(np.arange(beams, dtype=np.int32), [batch, 1])
    ids = np.zeros([batch, directions, beams], np.int32)
    state = model.start(inputs)
    for t in range(steps):
        if t > 0:
            parents = rng.integers(0, beams, [batch, beams]).astype(np.int32)
            ids = rng.integers(5, VOCAB, [batch, directions, beams]).astype(np.int32)
            chosen = parents[:, np.newaxis, :, np.newaxis]
            past = np.concatenate([np.take_along_axis(past, chosen, axis=2), ids[..., np.newaxis]], axis=3)
            columns = np.take_along_axis(columns, parents[:, :, np.newaxis], axis=1)
        own = np.broadcast_to(t * beams + np.arange(beams, dtype=np.int32), [batch, beams])
        columns = np.concatenate([columns, own[:, :, np.newaxis]], axis=2)
        visible = np.zeros([batch, beams, (t + 1) * beams], bool)
        np.put_along_axis(visible, columns, True, axis=2)
        visible, both = (np.repeat(part[:, np.newaxis], directions, axis=1) for part in (visible, parents))
        logits, state = model.step(ids, visible, visible if directions == 2 else None, both, state)
        yield logits.numpy(), past
