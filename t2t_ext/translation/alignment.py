"""Word alignments from cross-attention, inside the TensorFlow graph.

Forced decoding of a translation gives the attention of every target position. The attention is
averaged over heads and summed from subwords to words. Every target word is then aligned to the
source word that it attends to most. In a Transformer without alignment training, the last layer
but one aligns best (Garg et al. 2019, section 4.1, https://aclanthology.org/D19-1453).

Words are separated by ASCII whitespace in prepared text (as awk, wc and Moses' tools count them) and
numbered from 0. A piece of a word belongs to that word; a piece that is only whitespace belongs to the
following word. EOS, PAD and control symbols belong to no word.

Legend: B sentences, S source positions, T target positions, H heads, V vocabulary, W words.
"""

import dataclasses
import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID, UNK_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.layers.mixed_attention import source_part

# Matches layers of a decoder, or of a stack that source and target share. Mixed attention has the source's columns
# first. The two attentions of a dual contextual module count as heads of a single attention.
_LAYER = re.compile(
    r"(?:decoder/)?layer_(?P<layer>\d+)/(?P<kind>source|mixed)_attention(?:/(?P<side>l2r|r2l))?"
    r"(?:/history|/local_context|/global_context)?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentConfig:
    """The choice of the attention that is read as an alignment.

    Attributes:
      layer: Decoder layer, counted from 0; negative numbers count from the last layer, -1. None: the last but one, or
        the only one.
      heads: Heads that are averaged, counted from 0; empty: all.
    """

    layer: int | None = None
    heads: tuple[int, ...] = ()


# === Attention ===


def source_attention(
    model: Any, inputs: tf.Tensor, targets: tf.Tensor, config: AlignmentConfig, right_to_left: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the chosen cross-attention; for an ensemble, the weighted mean over its members.

    Args:
      model: A Seq2Seq or an Ensemble.
      inputs: Source ids int32 [B, S].
      targets: Target ids int32 [B, T] in the model's direction; for a model of two directions int32 [B, 2, T].
      config: The layer and the heads.
      right_to_left: bool [B], for a model of two directions whether the attention of the right-to-left side is wanted.

    Returns:
      float32 [B, T, S]. Row t is the attention of the step that produces token t, whose input is token t - 1. From
      mixed attention only the part on the source is taken, divided by its sum.

    Raises:
      UserError: The model has no such layer or head, or no cross-attention at all.
    """
    members = getattr(model, "members", (model,))
    weights = model.weights if len(members) > 1 else (1.0,)  # the weights of a single Keras model are its variables
    return sum(
        weight * _member_attention(member, inputs, targets, config, right_to_left)
        for member, weight in zip(members, weights, strict=True)
    )


def _member_attention(
    model: Any, inputs: tf.Tensor, targets: tf.Tensor, config: AlignmentConfig, right_to_left: tf.Tensor | None
) -> tf.Tensor:
    # Layer -> attending direction, or None -> the attention distributions of its heads.
    sides: dict[int, dict[str | None, list[tf.Tensor]]] = {}
    mixed = False
    for name, weights in model.attention_weights(inputs, targets).items():
        if match := _LAYER.fullmatch(name):
            sides.setdefault(int(match["layer"]), {}).setdefault(match["side"], []).append(weights)
            mixed |= match["kind"] == "mixed"
    layers = {}
    for number, of_sides in sides.items():
        found = {side: tf.concat(weights, axis=1) for side, weights in of_sides.items()}
        if model.directions == 1:
            layers[number] = found[None]
        elif "l2r" in found:
            looks = tf.reshape(right_to_left, [-1, 1, 1, 1])
            # A model that predicts a tag for the direction has an additional row for that step.
            layers[number] = tf.where(looks, found["r2l"], found["l2r"])[:, :, -tf.shape(targets)[2] :]
    if not layers:
        raise UserError(
            f"The model {type(model).__name__} shows no cross-attention that could be read as an alignment: "
            "leave the alignments out, or align with a run of --model=transformer."
        )
    count = len(layers)
    layer = max(count - 2, 0) if config.layer is None else config.layer
    if not -count <= layer < count:
        raise UserError(
            f"--alignment_layer={layer}: the decoder has {count} layers; give 0 to {count - 1}, or -1 (the last one) "
            f"to -{count}."
        )
    attention = tf.cast(layers[layer % count], tf.float32)
    heads = attention.shape[1]
    wrong = [head for head in config.heads if not 0 <= head < heads]
    if wrong:
        raise UserError(f"--alignment_heads: there is no head {wrong[0]}; the layer has heads 0 to {heads - 1}.")
    if config.heads:
        attention = tf.gather(attention, config.heads, axis=1)
    attention = tf.reduce_mean(attention, axis=1)
    return source_part(attention, tf.shape(inputs)[1]) if mixed else attention


# === From pieces to words ===


class PieceTables(NamedTuple):
    """Properties of each piece of a vocabulary, as arrays [V + 1].

    The last row is for an unknown piece inside a word, after which the word continues; see
    ``GraphTokenEncoder.encode_marked``.

    Attributes:
      words: int32, number of runs of characters that are not whitespace.
      starts: bool, whether the first character is not whitespace.
      ends: bool, whether the last character is not whitespace.
      silent: bool, whether the piece stands for no text (PAD, EOS, control symbols).
    """

    words: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    silent: np.ndarray


def piece_tables(encoder: SubwordEncoder) -> PieceTables:
    """Returns the tables of a text encoder's pieces."""
    texts = [*encoder.piece_texts(), b"?"]
    # UNK is part of a word, as every vocabulary has its own pieces for whitespace. In subword-nmt it is the last part.
    texts[UNK_ID] = b"?" if encoder.segmented_by_graph else b"? "
    for index in (PAD_ID, EOS_ID, *encoder.control_ids):
        texts[index] = b""
    return PieceTables(
        words=np.array([len(text.split()) for text in texts], np.int32),
        starts=np.array([text[:1].strip() != b"" for text in texts]),
        ends=np.array([text[-1:].strip() != b"" for text in texts]),
        silent=np.array([text == b"" for text in texts]),
    )


class Words(NamedTuple):
    """The words that the pieces of sentences belong to.

    Attributes:
      first: int32 [B, T], the first word that a piece belongs to.
      count: int32 [B, T], the number of words that a piece belongs to: usually 1; 0 for silent pieces.
      total: int32 [B], the number of words of a sentence.
    """

    first: tf.Tensor
    count: tf.Tensor
    total: tf.Tensor


def words_of(ids: tf.Tensor, tables: PieceTables) -> Words:
    """Finds the words of ids int32 [B, T] in text order."""
    words, silent = tf.gather(tables.words, ids), tf.gather(tables.silent, ids)
    # Find the last non-silent piece before each piece: it may end inside a word that this piece continues.
    columns = tf.range(tf.shape(ids)[1])
    spoken_first = tf.argsort(tf.where(silent, tf.shape(ids)[1] + columns, columns), axis=1)
    spoken_before = tf.cumsum(tf.cast(~silent, tf.int32), axis=1, exclusive=True)
    previous = tf.gather(spoken_first, tf.maximum(spoken_before - 1, 0), batch_dims=1)
    inside = (spoken_before > 0) & tf.gather(tf.gather(tables.ends, ids), previous, batch_dims=1)
    continued = tf.cast(inside & tf.gather(tables.starts, ids), tf.int32)
    begun = words - continued
    before = tf.cumsum(begun, axis=1, exclusive=True)
    return Words(
        first=before - continued,
        count=tf.where(silent, 0, tf.maximum(words, 1)),  # pure whitespace belongs to the following word
        total=tf.reduce_sum(begun, axis=1),
    )


def _membership(words: Words) -> tf.Tensor:
    """Returns which pieces belong to which words, float32 [B, T, W], W >= 1."""
    numbers = tf.range(tf.maximum(tf.reduce_max(tf.concat([words.total, [1]], axis=0)), 1))
    first = words.first[..., tf.newaxis]
    inside = (numbers >= first) & (numbers < first + words.count[..., tf.newaxis])
    return tf.cast(inside & (numbers < words.total[:, tf.newaxis, tf.newaxis]), tf.float32)


# === From attention to links ===


def align_words(attention: tf.Tensor, source: Words, target: Words) -> tf.Tensor:
    """Aligns every target word to the source word that its pieces attend to most.

    The attention of a target word to a source word is the sum over the pieces of both; if several source words have
    equal attention, the leftmost is taken.

    Args:
      attention: float32 [B, T, S], rows in text order.
      source: The words of the S source pieces.
      target: The words of the T target pieces.

    Returns:
      string [B], ``source-target`` pairs (Pharaoh format) in the order of the target words: ``0-0 2-1 1-2``. The
      string is empty if either side has no words.
    """
    sums = tf.matmul(_membership(target), tf.matmul(attention, _membership(source)), transpose_a=True)
    there = tf.sequence_mask(source.total, tf.shape(sums)[2])
    best = tf.argmax(tf.where(there[:, tf.newaxis], sums, -1.0), axis=2, output_type=tf.int32)
    numbers = tf.broadcast_to(tf.range(tf.shape(sums)[1]), tf.shape(best))
    links = tf.strings.join([tf.strings.as_string(best), tf.strings.as_string(numbers)], separator="-")
    wanted = tf.sequence_mask(tf.where(source.total > 0, target.total, 0), tf.shape(best)[1])
    return tf.strings.reduce_join(tf.ragged.boolean_mask(links, wanted), axis=1, separator=" ")
