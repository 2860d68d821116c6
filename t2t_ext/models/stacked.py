"""The base of models that stack layers: embeddings, a softmax, and a way of reading targets.

The way of reading targets (``layers/target_reading.py``) defines what each target position reads and predicts, and in
how many directions.

Legend: B sentences, S source positions, T target positions, D width, V vocabulary, R directions, K hypotheses of a
direction. With two directions, targets are [B, 2, T] and features [B, 2, T, D].
"""

import abc
from typing import Any, TypeVar

import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers.attention import StepContext
from t2t_ext.layers.base import Mixer
from t2t_ext.layers.embeddings import TokenEmbedding, sinusoids
from t2t_ext.models.seq2seq import Seq2Seq, State
from t2t_ext.search.search_state import NOT_THERE
from t2t_ext.search.shortlist import known_ids

# The key of a state that holds the softmax's rows for each sentence's candidates.
_ROWS = "softmax_rows"


def _turned(dtype: tf.DType) -> bool:
    """Returns whether softmax rows are kept as [B, D, C]: faster for few rows in float32, slower in bfloat16."""
    return dtype == tf.float32


T = TypeVar("T", bound=TransformerHParams)


class Record:
    """A collection of attention distributions by name; not a dict, because Keras copies dicts when it calls a layer."""

    def __init__(self) -> None:
        self.weights: dict[str, tf.Tensor] = {}


class StackedSeq2Seq(Seq2Seq[T]):
    """A model that embeds tokens, passes them through layers and projects them to the vocabulary.

    Subclasses set ``target_embedding`` and ``softmax``.
    """

    target_embedding: TokenEmbedding
    softmax: TokenEmbedding

    def __init__(self, hparams: T, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.reading = registry.layer("target_reading", self.hparams.target_reading)(self.hparams)

    def make_mixer(self, slot: str, name: str, layer: int) -> Mixer:
        """Returns the mixer with a registered name for a layer, counted from 0."""
        return registry.layer(slot, name).make(self.hparams, layer, dtype=self.dtype_policy)

    def positions_added(self, x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Adds vectors of positions int32 [T], or one for all [1], to float [..., T, D], unless ``pos`` is ``none``."""
        if self.hparams.pos == "timing":
            signal = sinusoids(positions, self.hparams.hidden_size, self.hparams.pos_encoding)
            x += tf.cast(signal, x.dtype)
        return x

    # === Whole sequences ===

    @abc.abstractmethod
    def _features(
        self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False, record: Record | None = None
    ) -> tf.Tensor:
        """Returns the output at all positions that predict a label, and adds attention distributions to the record."""

    def features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the output at the targets, float [B, T, D]; see Seq2Seq."""
        return self.reading.at_targets(self._features(inputs, targets, training))

    def training_features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the output at the labels, float [B, 2, 1 + T, D] with ``predict_tag``; see Seq2Seq."""
        if self.directions == 1:
            return self.features(inputs, targets, training=training)
        return self._features(inputs, targets, training)

    def training_labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns the targets; with ``predict_tag``, each is preceded by its tag, [B, 2, 1 + T]; see Seq2Seq."""
        return self.reading.labels(targets)

    def softmax_weights(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the softmax matrix [V, D] and None, since there is no bias."""
        return self.softmax.matrix.value, None

    # === Step by step ===

    @abc.abstractmethod
    def _step_decoder(
        self, x: tf.Tensor, context: StepContext, state: State, record: Record | None = None
    ) -> tuple[tf.Tensor, State]:
        """Passes one position of every hypothesis, float [B, R, K, D], through the layers.

        Returns:
          Rows float [B * R * K, D] and the new state.
        """

    def step(
        self,
        ids: tf.Tensor,
        visible: tf.Tensor,
        partner_visible: tf.Tensor | None,
        parents: tf.Tensor,
        state: State,
        record: Record | None = None,
    ) -> tuple[tf.Tensor, State]:
        """Feeds ids int64 [B, R, K] and returns logits float32 [B, R, K, V] and the new state; see Seq2Seq."""
        context = self.reading.step_context(state["position"], visible, partner_visible, parents)
        x, state = self._step_decoder(self._step_input(ids, state["position"]), context, state, record)
        if _ROWS not in state:
            return tf.reshape(self.logits(x), [-1, *context.hypotheses, self.target_vocab_size]), state  # [B, R, K, V]
        kernel, bias = state[_ROWS]["kernel"], state[_ROWS]["bias"]
        rows = tf.reshape(x, [tf.shape(kernel)[0], -1, x.shape[-1]])
        products = tf.matmul(rows, kernel, transpose_b=not _turned(kernel.dtype))
        logits = tf.cast(products, tf.float32) + bias[:, tf.newaxis]
        return tf.reshape(logits, [-1, *context.hypotheses, tf.shape(bias)[1]]), state  # [B, R, K, C]

    def shortlisted(self, state: State, ids: tf.Tensor) -> State:
        """Returns the state with the softmax's rows for candidates int32 [B, C]; see Seq2Seq."""
        kernel, bias = self.softmax_weights()
        known = known_ids(ids)
        rows = tf.cast(tf.gather(tf.convert_to_tensor(kernel), known), self.compute_dtype)
        missing = tf.where(tf.equal(ids, known), 0.0, NOT_THERE)
        if bias is not None:
            missing += tf.cast(tf.gather(tf.convert_to_tensor(bias), known), tf.float32)
        kernel = tf.transpose(rows, [0, 2, 1]) if _turned(rows.dtype) else rows
        return {**state, _ROWS: {"kernel": kernel, "bias": missing}}

    def _step_input(self, ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns the input float [B, R, K, D] of a step, without positions, for ids int32 [B, R, K]."""
        x = self.target_embedding(self.reading.step_ids(ids, position))
        return x * tf.cast(position > 0, x.dtype) if self.reading.first_is_zero else x

    def _before_search(self, state: State, batch: tf.Tensor) -> State:
        """Runs the step that precedes the search, if there is one, and returns the new state."""
        context = self.reading.context_before_search(batch, state["position"])
        if context is None:
            return state
        x = tf.zeros([batch, *context.hypotheses, self.hparams.hidden_size], self.compute_dtype)
        return self._step_decoder(x, context, state)[1]
