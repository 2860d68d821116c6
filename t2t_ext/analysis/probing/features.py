"""Computes sentence representations with a frozen encoder: the mean of a layer's states over a sentence's positions.

Ampomah et al. (2021, section 7.1): "the mean of the output representation from the top-level (last) encoding layer".

Legend: B sentences, S source positions, D width, L layers.
"""

import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.special_ids import EOS_ID, PAD_ID
from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.io.progress import Update
from t2t_ext.models.transformer import Transformer
from t2t_ext.runs import checkpoints
from t2t_ext.translation.batches import similar_lengths

TOP = 0
_FORMAT = 1  # version of the files, part of their keys
_MOST_POSITIONS = 8192  # in a batch, padding included
_MOST_ROWS = 512
_WIDTH_MULTIPLE = 8


def check_model(model_class: type) -> None:
    """Checks that a model provides the states of the source.

    Raises:
      UserError: The model is not derived from ``Transformer`` and has no method ``source_states``.
    """
    if not issubclass(model_class, Transformer) and not hasattr(model_class, "source_states"):
        raise UserError(
            f"{model_class.__name__} shows no states of the source. Probing is for transformer and its relatives, and "
            "for models of your own with a method source_states(inputs) that returns a list of float [B, S, D], one a "
            "layer."
        )


def source_states(model: Any, inputs: tf.Tensor) -> list[tf.Tensor]:
    """Returns the states of the source, ids int32 [B, S], after each layer, without dropout: float [B, S, D] each.

    For a Transformer's encoder, the last states are those that the decoder reads, after the stack's final normalization
    if it has one. The lower layers of pre-norm stacks give their unnormalized residual sums. If a model has a method
    ``source_states``, the result of ``source_states(inputs)`` is returned.
    """
    if hasattr(model, "source_states"):
        return list(model.source_states(inputs))
    encoded = model.encode(inputs)
    return [*encoded.layers[:-1], encoded.final]


def mean_states(
    model: Any,
    sentences: Sequence[Sequence[int]],
    layer: int = TOP,
    with_eos: bool = True,
    progress: Update = lambda done, total: None,
) -> np.ndarray:
    """Returns the mean of the states of each sentence, in the given order, float32 [sentences, D].

    The sentences are ids with EOS. ``layer`` counts from 1; 0 is the last one. The mean includes EOS if ``with_eos``; a
    sentence of only EOS gets its state in either case. ``progress`` is called with (sentences done, sentences in all).

    Raises:
      UserError: The model has no such layer.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def of_batch(inputs: tf.Tensor) -> tf.Tensor:
        found = source_states(model, inputs)
        if layer > len(found):
            raise UserError(f"--layer={layer}: {type(model).__name__} has {len(found)} layers of source states.")
        states = tf.cast(found[layer - 1], tf.float32)
        real = tf.not_equal(inputs, PAD_ID)
        words = real & tf.not_equal(inputs, EOS_ID)
        if not with_eos:
            real = tf.where(tf.reduce_any(words, axis=1, keepdims=True), words, real)
        counted = tf.cast(real, tf.float32)[:, :, tf.newaxis]
        return tf.reduce_sum(states * counted, axis=1) / tf.reduce_sum(counted, axis=1)

    of_batch.get_concrete_function()  # a trace made by a call would count as a retracing of the last model's
    features: np.ndarray | None = None
    done = 0
    for batch in similar_lengths(list(map(len, sentences)), _MOST_ROWS, positions=_MOST_POSITIONS):
        # Few different widths, at most about a quarter above the longest: oneDNN compiles products for each shape.
        longest = max(len(sentences[i]) for i in batch)
        step = max(_WIDTH_MULTIPLE, 1 << max(0, longest.bit_length() - 3))
        inputs = np.full([len(batch), -(-longest // step) * step], PAD_ID, np.int32)
        for row, i in enumerate(batch):
            inputs[row, : len(sentences[i])] = sentences[i]
        found = of_batch(inputs).numpy()
        if features is None:
            features = np.zeros([len(sentences), found.shape[1]], np.float32)
        features[batch] = found
        done += len(batch)
        progress(done, len(sentences))
    return np.zeros([0, 0], np.float32) if features is None else features


# === Files ===


def cache_path(directory: files.PathLike, name: str, settings: dict[str, Any]) -> pathlib.Path:
    """Returns the path of a task's features; ``settings``, JSON values, are everything that the features depend on."""
    text = json.dumps({"format": _FORMAT, **settings}, sort_keys=True, ensure_ascii=False)
    return pathlib.Path(directory) / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.npy"


def weights_digest(checkpoint: files.PathLike) -> str:
    """Returns a digest that identifies a checkpoint's weights, computed from the digests of its files."""
    digests = {name: each["sha256"] for name, each in checkpoints.read_info(checkpoint).files.items()}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def load(path: pathlib.Path, sentences: int) -> np.ndarray | None:
    """Returns the features in a file, float32 [sentences, D]; None if there is no usable file."""
    try:
        features = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    usable = features.ndim == 2 and len(features) == sentences and features.dtype == np.float32
    return features if usable else None


def save(path: pathlib.Path, features: np.ndarray) -> None:
    """Writes features to a file atomically, so that it is never incomplete.

    Raises:
      UserError: The disk is full, or the directory or file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Cannot make the directory {path.parent}: {error.strerror}. Give --nocache_features to keep none."
        ) from error
    files.remove_leftovers(path.parent)
    with files.atomic_file(path, needed_bytes=features.nbytes) as temporary, open(temporary, "wb") as file:
        np.save(file, features, allow_pickle=False)
