"""Codecs turn texts or feature vectors into the model's inputs, on the host and inside the graph.

The host encodes a list of texts once. The search receives these ids, and their number decides which sentences share a
batch. An exported graph encodes the same strings itself; both give the same ids.

Legend: B sentences, S source positions, T target positions, F size of a feature vector.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.features.float_files import padded
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.data.text.graph_text_encoder import WHITESPACE, GraphEncoder, graph_encoder
from t2t_ext.data.text.subword_nmt_model import SEPARATOR
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.layers.masks import real_positions

IDS = tf.TensorSpec([None, None], tf.int32)


def check_vocabularies(model: Any, source: SubwordEncoder, target: SubwordEncoder) -> None:
    """Raises a UserError if a model was not made for the vocabularies of two text encoders."""
    sides = {"source": source, "target": target}
    for side in ("target",) if model.source_feature_size else sides:
        made_for, found = getattr(model, f"{side}_vocab_size"), sides[side].vocab_size
        if made_for != found:
            raise UserError(
                f"The model was made for {made_for:,} {side} ids, and the {side} encoder has {found:,}. Give the "
                f"encoder that the model was trained with, or make the model with {side}_vocab_size=encoder.vocab_size."
            )


class Encoded(NamedTuple):
    """Sentences as the model reads them, truncated to the codec's limit.

    Attributes:
      rows: The ids with EOS, or the feature vectors [regions, F], of each sentence.
      truncated: bool [sentences], whether a sentence was truncated.
      empty: bool [sentences], whether a sentence has nothing to translate.
    """

    rows: list[Any]
    truncated: np.ndarray
    empty: np.ndarray


def check_texts(texts: Sequence[Any], what: str) -> Sequence[str]:
    """Returns the texts unchanged; raises a UserError if one of them is not a string."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise UserError(f"Number {number} of the {what} is {text!r:.60}, which is no text (str).")
    return texts


class TextCodec:
    """Encodes the text of one side (source or target) as ids.

    Attributes:
      encoder: The text encoder.
      limit: The most subwords of a text; longer texts are truncated.
      graph: The part of the encoder that runs inside the graph.
      spec: The tensor that ``encode`` takes.
      ids_spec: The tensor that ``encode`` returns.
      unit: The unit of ``limit``.
    """

    unit = "subwords"
    ids_spec = IDS

    def __init__(self, encoder: SubwordEncoder, limit: int, name: str, graph: GraphEncoder | None = None) -> None:
        """Initializes the codec; ``encode`` takes tensors called ``name``; ``graph`` is an encoder with equal ids."""
        self.encoder, self.limit = encoder, limit
        self.spec = tf.TensorSpec([None], tf.string, name=name)
        self.graph = graph or graph_encoder(encoder, f"{name}_encoder")

    # === On the host ===

    def read(self, texts: Sequence[str], *, marked: bool = False) -> Encoded:
        """Encodes raw texts; ``marked`` means with the marks of ``GraphTokenEncoder.encode_marked``.

        Raises:
          UserError: A text is not a string.
        """
        prepared = self.encoder.prepare(check_texts(texts, self.spec.name))
        segmented = self.encoder.segment(prepared)
        ids = self.encoder.encode_batch(prepared)
        if marked and not self.encoder.segmented_by_graph:
            mark = self.encoder.vocab_size
            ids = [
                [
                    mark if index == UNK_ID and piece.endswith(SEPARATOR) and piece != SEPARATOR else index
                    for piece, index in zip(filter(None, text.split(" ")), each, strict=True)
                ]
                for text, each in zip(segmented, ids, strict=True)
            ]
        return Encoded(
            [[*each[: self.limit], EOS_ID] for each in ids],
            np.array([len(each) > self.limit for each in ids], bool),
            # A subword model that normalizes may drop all characters of a text.
            np.array([not (each and text.strip()) for text, each in zip(segmented, ids, strict=True)], bool),
        )

    def read_ids(self, ids: Sequence[Sequence[int]]) -> Encoded:
        """Wraps sentences that are already ids with EOS; none is truncated."""
        return Encoded(
            list(ids),
            np.zeros(len(ids), bool),
            np.array([not any(token not in (PAD_ID, EOS_ID) for token in each) for each in ids], bool),
        )

    def batch(self, rows: Iterable[Sequence[int]], multiple: int = 1) -> tf.Tensor:
        """Pads ids with PAD to int32 [B, T], where T is the next multiple of ``multiple``."""
        rows = list(rows)
        width = -(-max(map(len, rows)) // multiple) * multiple
        ids = np.full([len(rows), width], PAD_ID, np.int32)
        for row, each in zip(ids, rows, strict=True):
            row[: len(each)] = each
        return tf.constant(ids)

    # === Inside the graph ===

    def encode(self, strings: tf.Tensor, *, marked: bool = False) -> tf.Tensor:
        """Encodes segmented texts, strings [B], as int32 [B, T] with EOS, padded with PAD."""
        encode = self.graph.encode_marked if marked else self.graph.encode
        return encode(strings, self.limit).to_tensor()

    def empty(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns which strings [B] have nothing to translate because they are only whitespace, bool [B]."""
        return tf.strings.regex_full_match(strings, f"{WHITESPACE}*")

    def unmarked(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns ids without the marks of ``GraphTokenEncoder.encode_marked``."""
        return ids if self.encoder.segmented_by_graph else tf.where(ids >= self.encoder.vocab_size, UNK_ID, ids)

    def trial_batches(self, lines: Sequence[str]) -> list[tf.Tensor]:
        """Returns batches for ``encode`` to try an exported model on: the first of the raw lines, then all lines."""
        segmented = self.encoder.segment(self.encoder.prepare(lines))
        return [tf.constant(batch, tf.string) for batch in (segmented[:1], segmented)[: len(segmented)]]


class FeatureCodec:
    """Prepares sources of feature vectors: ``FeatureSource``s, or float arrays [regions, F].

    Attributes:
      size: F.
      limit: The most regions of a source; longer sources are truncated.
      spec: The tensor that ``encode`` takes: float32 [B, S, F], in which zero vectors are padding.
      ids_spec: The tensor that ``encode`` returns.
      unit: The unit of ``limit``.
    """

    unit = "feature vectors"

    def __init__(self, size: int, limit: int, name: str) -> None:
        """Initializes the codec; ``encode`` takes tensors called ``name``."""
        self.size, self.limit = size, limit
        self.spec = tf.TensorSpec([None, None, size], tf.float32, name=name)
        self.ids_spec = tf.TensorSpec([None, None, size], tf.float32)

    # === On the host ===

    def read(self, sources: Sequence[FeatureSource | np.ndarray], *, marked: bool = False) -> Encoded:
        """Checks and truncates sources; ``marked`` has no effect.

        Raises:
          UserError: A source is not an array of feature vectors with the model's size.
        """
        arrays: list[np.ndarray] = []
        for number, source in enumerate(sources, 1):
            rows = source.rows if isinstance(source, FeatureSource) else source
            shape = getattr(rows, "shape", None)
            if shape is None or len(shape) != 2 or shape[1] != self.size:
                what = f"{type(rows).__name__} {rows!r:.60}" if shape is None else f"an array of shape {list(shape)}"
                raise UserError(
                    f"Source {number} is {what}, but this model reads feature vectors: float [regions, {self.size}]."
                )
            arrays.append(rows)
        kept = [array[: self.limit] for array in arrays]
        return Encoded(
            kept,
            np.array([len(array) > self.limit for array in arrays], bool),
            np.array([not np.any(array) for array in kept], bool),
        )

    def read_ids(self, sources: Sequence[FeatureSource | np.ndarray]) -> Encoded:
        """Does the same as ``read``, because feature vectors have no ids."""
        return self.read(sources)

    def batch(self, rows: Iterable[np.ndarray]) -> tf.Tensor:
        """Pads feature vectors with zeros to float32 [B, S, F]."""
        rows = list(rows)
        return tf.constant(padded(rows, max(map(len, rows)), self.size, np.float32))

    # === Inside the graph ===

    def encode(self, features: tf.Tensor, *, marked: bool = False) -> tf.Tensor:
        """Truncates features float32 [B, S, F] to the limit; ``marked`` has no effect."""
        return features[:, : self.limit]

    def empty(self, features: tf.Tensor) -> tf.Tensor:
        """Returns which sources float32 [B, S, F] have no region, bool [B]."""
        return ~tf.reduce_any(real_positions(features), axis=1)

    def trial_batches(self, lines: Sequence[str]) -> list[tf.Tensor]:
        """Returns batches float32 [B, S, F] to try an exported model on: one source, then several with padding."""
        pattern = np.sin(np.arange(4 * 6 * self.size, dtype=np.float32)).reshape(4, 6, self.size)
        pattern[1, 2:] = 0.0
        pattern[2] = 0.0
        return [tf.constant(pattern[:1]), tf.constant(pattern)]
