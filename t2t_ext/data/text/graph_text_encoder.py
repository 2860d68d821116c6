"""Converts strings to ids and back inside the TensorFlow graph, so that any server can do it.

The kind of subword model determines what the graph can do. With SentencePiece or a KerasHub preset, it segments
prepared text itself. It does not know subword-nmt's codes: there it reads and writes subwords, separated by spaces.
Text steps run before and after the graph.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from t2t_ext import compat
from t2t_ext.data.text.preset_tokenizer import PresetTokenizer
from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID, UNK_ID
from t2t_ext.data.text.subword_nmt_model import SEPARATOR, SubwordNmtModel
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.io import chatter

# A pattern of whitespace as defined by ``str.isspace`` and by the cleaning of training data.
WHITESPACE = r"[\pZ\x{09}-\x{0D}\x{1C}-\x{1F}\x{85}]"


class _LastingModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model as a resource with its own name.

    tensorflow-text's resource belongs to the kernel that created it. It disappears when TensorFlow clears its kernel
    cache, as ``tf.random.set_seed`` does, so training in the same process would break a Translator. This resource lasts
    as long as the process.
    """

    def __init__(self, model_bytes: bytes) -> None:
        super().__init__()
        self._model = model_bytes
        _ = self.resource_handle  # creates the resource

    def _create_resource(self) -> tf.Tensor:
        name = f"sentencepiece_{hashlib.sha256(self._model).hexdigest()}"
        return compat.sentencepiece_resource(self._model, name)


class GraphSubwordEncoder(tf.Module):
    """Runs a SentencePiece model as graph operations, with the same results as a SubwordEncoder of that model."""

    def __init__(self, model_bytes: bytes, name: str | None = None) -> None:
        """Initializes the encoder from a serialized SentencePiece model."""
        super().__init__(name=name)
        with chatter.left_out():
            self._tokenizer = tf_text.SentencepieceTokenizer(model=model_bytes, out_type=tf.int32, add_eos=False)
            self._tokenizer._model_resource = _LastingModel(model_bytes)

    def encode(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings [N] as ragged int32 [N, (T)]: at most ``max_length`` subwords each, followed by EOS."""
        return _with_eos(self._tokenizer.tokenize(strings)[:, :max_length])

    def encode_marked(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings as ``encode`` does."""
        return self.encode(strings, max_length)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Decodes ragged int32 [N, (T)] without EOS to strings [N]."""
        return self._tokenizer.detokenize(ids)


class GraphTokenEncoder(tf.Module):
    """Converts strings of space-separated subwords with graph operations, through a table of subwords."""

    def __init__(self, pieces: Sequence[str], name: str | None = None) -> None:
        """Creates the encoder from the written form of each id; special symbols in a text are unknown subwords."""
        super().__init__(name=name)
        self._pieces = np.array([piece.encode() for piece in pieces], object)
        # Kept as an attribute, so that a SavedModel saves the table.
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(self._pieces[FIRST_TEXT_ID:], tf.string),
                tf.range(FIRST_TEXT_ID, len(pieces), dtype=tf.int64),
            ),
            default_value=UNK_ID,
        )

    def encode(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings [N] as ragged int32 [N, (T)]: at most ``max_length`` subwords each, followed by EOS."""
        tokens = self._tokens(strings, max_length)
        return _with_eos(tokens.with_values(self._ids(tokens.values)))

    def encode_marked(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings as ``encode`` does, but gives unknown subwords that end with ``@@`` the id vocab_size."""
        tokens = self._tokens(strings, max_length)
        ids = self._ids(tokens.values)
        continues = tf.strings.regex_full_match(tokens.values, f".+{SEPARATOR}")
        return _with_eos(tokens.with_values(tf.where(continues & tf.equal(ids, UNK_ID), len(self._pieces), ids)))

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Decodes ragged int32 [N, (T)] without EOS to strings [N]."""
        pieces = ids.with_values(tf.gather(tf.constant(self._pieces, tf.string), ids.values))
        return tf.strings.reduce_join(pieces, axis=1, separator=" ")

    def _ids(self, tokens: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._table.lookup(tokens), tf.int32)

    def _tokens(self, strings: tf.Tensor, max_length: int | None) -> tf.RaggedTensor:
        tokens = tf.strings.split(strings, " ")
        return tf.ragged.boolean_mask(tokens, tf.not_equal(tokens, ""))[:, :max_length]


class GraphPresetEncoder(tf.Module):
    """Runs the tokenizer of a KerasHub preset as graph operations, with the same results as its SubwordEncoder."""

    def __init__(self, subwords: PresetTokenizer, name: str | None = None) -> None:
        """Initializes the encoder from the tokenizer of a preset."""
        super().__init__(name=name)
        # Kept as an attribute, so that a SavedModel saves the tables of the tokenizer.
        self._tokenizer = subwords.tokenizer

    def encode(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings [N] as ragged int32 [N, (T)]: at most ``max_length`` subwords each, followed by EOS."""
        ids = self._tokenizer.tokenize(strings)[:, :max_length]
        return _with_eos(tf.cast(ids, tf.int32) + FIRST_TEXT_ID)

    def encode_marked(self, strings: tf.Tensor, max_length: int | None = None) -> tf.RaggedTensor:
        """Encodes strings as ``encode`` does."""
        return self.encode(strings, max_length)

    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Decodes ragged int32 [N, (T)] without EOS to strings [N]."""
        return self._tokenizer.detokenize(ids - FIRST_TEXT_ID)


GraphEncoder = GraphSubwordEncoder | GraphTokenEncoder | GraphPresetEncoder


def graph_encoder(encoder: SubwordEncoder, name: str) -> GraphEncoder:
    """Returns the part of a text encoder that runs in the graph: a tokenizer, or a table of subwords."""
    if isinstance(encoder.subwords, SubwordNmtModel):
        return GraphTokenEncoder(encoder.pieces(range(encoder.vocab_size)), name)
    if isinstance(encoder.subwords, PresetTokenizer):
        return GraphPresetEncoder(encoder.subwords, name)
    return GraphSubwordEncoder(encoder.subwords.model, name)


def _with_eos(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    eos = tf.fill([tf.cast(ids.nrows(), tf.int32), 1], EOS_ID)
    return tf.concat([ids, tf.RaggedTensor.from_tensor(eos)], axis=1)
