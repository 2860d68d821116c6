"""Tests that XLA-compiled steps with few shapes give the results of plain steps, for buckets and merged parts."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.data.datasets.batching import bucket_boundaries
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.pipeline import TrainPipeline
from t2t_ext.training.optimizers import make_optimizer
from t2t_ext.training.schedules import Schedule
from t2t_ext.training.state import TrainingState
from t2t_ext.training.step import TrainStep

VOCAB = 40
NARROW = "hidden_size=16,filter_size=32,num_heads=2,num_hidden_layers=1,batch_shapes=static,learning_rate_constant=0.01"


def make_step(hparams, *, jit_compile, kind="transformer"):
    """Returns a training step of a fresh model, which has the same weights at every call."""
    tf.keras.utils.set_random_seed(7)
    model = registry.model(kind)(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB, joint_vocabulary=True)
    model.build()
    optimizer = make_optimizer(hparams, model.named_variables())
    return TrainStep(
        model,
        optimizer=optimizer,
        schedule=Schedule(hparams, 1000),
        state=TrainingState(hparams, model.named_variables(), optimizer),
        hparams=hparams,
        strategy=tf.distribute.get_strategy(),
        random_seed=1,
        jit_compile=jit_compile,
    )


def store_for(boundaries):
    """Returns a store with two pairs in every bucket; their longer sides have the maximum and the minimum length."""
    rng = np.random.default_rng(3)
    sequences = ([], [])
    shortest = 2
    for boundary in boundaries:
        for length in (boundary, shortest):
            other = rng.integers(2, length + 1)
            for side, size in zip(sequences, rng.permutation([length, other]), strict=True):
                side.append([*rng.integers(11, VOCAB, size - 1), 1])
        shortest = boundary + 1
    return ExampleStore.from_sequences(*sequences)


def assert_every_bucket_compiles(hparams, boundaries, kind="transformer"):
    sides = registry.model(kind).sides(hparams).target_sides
    pipeline = TrainPipeline(store_for(boundaries), hparams, seed=5, target_sides=sides)
    assert pipeline.batches_per_epoch == len(boundaries)
    plain, compiled = (make_step(hparams, jit_compile=jit, kind=kind) for jit in (False, True))
    widths = set()
    epochs = 2
    batches = iter(pipeline.dataset(0))
    for _ in range(epochs * len(boundaries)):
        batch = next(batches)
        widths.add(batch["inputs"].shape[1])
        expected, found = plain.run(batch), compiled.run(batch)
        # Dropout draws the same masks, compiled or not.
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5, err_msg=f"width {max(widths)}")
        np.testing.assert_allclose(found["gradient_norm"], expected["gradient_norm"], rtol=1e-4)
    assert widths == set(boundaries)
    assert plain.traces == compiled.traces == len(boundaries)


GROUPS = (
    "length_groups=4,batch_size=120,batch_tokens=target,max_length=40,optimizer=schedule_free_adam_w,"
    "learning_rate_schedule=constant*linear_warmup,learning_rate_constant=0.0025,learning_rate_warmup_steps=4"
)
NO_DROPOUT = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"


@pytest.mark.parametrize(
    ("kind", "hparams_set"),
    [
        ("transformer", "transformer_test"),
        pytest.param("layer_coordination", "layer_coordination_test", marks=pytest.mark.slow),
        pytest.param("dual_context_transformer", "dual_context_test", marks=pytest.mark.slow),
        pytest.param("cross_view_transformer", "cross_view_transformer_test", marks=pytest.mark.slow),
        pytest.param("dynamic_conv", "dynamic_conv_test", marks=pytest.mark.slow),
        pytest.param("synchronous_transformer", "synchronous_transformer_test", marks=pytest.mark.slow),
    ],
)
def test_compiled_updates_of_merged_parts_are_those_of_the_parts(kind, hparams_set):
    hparams = registry.hparams(hparams_set).override(f"{GROUPS},{NO_DROPOUT}")
    if "weight_dropout" in hparams.to_dict():
        hparams = hparams.override("weight_dropout=0")
    sides = registry.model(kind).sides(hparams).target_sides
    if sides == 2:
        hparams = hparams.override("pseudo=none")
    rng = np.random.default_rng(3)
    sequences = [[[*rng.integers(11, VOCAB, size - 1), 1] for size in rng.integers(2, 20, 60)] for _ in range(2)]
    store = ExampleStore.from_sequences(*sequences)
    plain, compiled = (make_step(hparams, jit_compile=jit, kind=kind) for jit in (False, True))
    of_parts, merged = (
        iter(TrainPipeline(store, hparams, seed=5, target_sides=sides, fixed_shapes=fixed).dataset(0))
        for fixed in (False, True)
    )
    for _ in range(6):
        expected, found = plain(of_parts), compiled(merged)
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=2e-5)
        np.testing.assert_allclose(found["gradient_norm"], expected["gradient_norm"], rtol=2e-4)
    assert plain.traces == 1
    assert compiled.traces <= 2  # widths of 16 and 24 tokens


@pytest.mark.slow  # the test above compiles two widths
@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("max_length=12", [8, 12]),
        ("max_length=18,gradient_accumulation_steps=2,clip_grad_norm=0.1", [8, 12, 18]),
    ],
)
def test_every_bucket_compiles(more, expected):
    hparams = registry.hparams("transformer_base").override(
        f"{NARROW},batch_size=128,min_length_bucket=8,length_bucket_step=1.5,{more}"
    )
    boundaries = bucket_boundaries(hparams)
    assert boundaries == expected
    assert_every_bucket_compiles(hparams, boundaries)


@pytest.mark.slow
def test_buckets_of_both_directions_compile():
    hparams = registry.hparams("synchronous_transformer_base_original").override(
        f"{NARROW},batch_size=128,max_length=18,min_length_bucket=8,length_bucket_step=1.5,pseudo=none"
    )
    assert_every_bucket_compiles(hparams, bucket_boundaries(hparams), "synchronous_transformer")


@pytest.mark.slow
def test_all_buckets_of_transformer_base_compile():
    """All buckets of transformer_base compile, up to 256 tokens, in batches of 4,096 tokens."""
    hparams = registry.hparams("transformer_base").override(NARROW)
    boundaries = bucket_boundaries(hparams)
    assert len(boundaries) > 30
    assert boundaries[-1] == 256
    assert_every_bucket_compiles(hparams, boundaries)
