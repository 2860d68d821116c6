"""Ensembles, in which the next token's probability is the models' mean (Sutskever et al. 2014, section 3.7).

An Ensemble has the methods of ``Seq2Seq`` that search, scoring and alignment need. Its
"logits" are the logarithms of the mean probabilities. It is not a Keras model: it owns no
variables and is not trained. Its members may differ in kind, size and precision.

Legend: B sentences, S source positions, T target positions, R directions, K hypotheses of a
direction, V target vocabulary.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from t2t_ext.errors import UserError
from t2t_ext.models.seq2seq import Seq2Seq, State
from t2t_ext.runs.chosen_runs import normalized_weights


def log_mixture(logits: Sequence[tf.Tensor], weights: Sequence[float]) -> tf.Tensor:
    """Returns log(sum_i weights_i softmax(logits_i)), summed in the log domain, so that no probability underflows.

    The weights sum to 1. The members' logits, float32 [..., V], are added one by one, so that only one member's
    log-probabilities are held in memory besides the result.
    """
    total = None
    for each, weight in zip(logits, weights, strict=True):
        log_probs = each - (tf.reduce_logsumexp(each, axis=-1, keepdims=True) - math.log(weight))
        if total is None:
            total = log_probs
        else:
            total = tf.maximum(total, log_probs) + tf.math.log1p(tf.exp(-tf.abs(total - log_probs)))
    return total


class Ensemble:
    """Models with the same vocabularies that translate together.

    Attributes:
      members: The models.
      weights: The models' weights in the mean probability; they sum to 1.
      directions: R, the same for all members.
      target_sides: Number of targets that ``features`` reads at once for a sentence; equal to ``directions``.
      target_vocab_size: V, the same for all members.
      source_vocab_size: Number of source ids, the same for all members.
      source_feature_size: F for a source of feature vectors, 0 for text, the same for all members.
      longest_source: The largest number of source positions that all members read, including EOS; 0: no limit.
    """

    def __init__(self, members: Sequence[Seq2Seq], weights: Sequence[float] | None = None) -> None:
        """Initializes the ensemble of one or more built models.

        ``weights`` are positive numbers, one per member, which are normalized to sum to 1; None: all are equal.

        Raises:
          UserError: The members do not fit together, or the weights do not fit the members.
        """
        self.members = tuple(members)
        self.weights = normalized_weights(weights, len(self.members))
        same_data = "choose runs that were trained on the same generated data (t2t_ext-datagen --vocab_from=RUN)"
        for name, what, advice in (
            ("target_vocab_size", "target subwords", same_data),
            ("source_vocab_size", "source subwords", same_data),
            ("source_feature_size", "numbers in a feature vector of the source", same_data),
            (
                "directions",
                "directions of generation",
                "models that generate in both attend to both sides' words at every step, which the others have not; "
                "choose runs of one kind",
            ),
        ):
            values = [getattr(member, name) for member in self.members]
            if len(set(values)) > 1:
                shown = ", ".join(map(str, values))
                raise UserError(
                    f"The members of an ensemble must have the same number of {what}, got {shown}: {advice}."
                )
        self.target_vocab_size = self.members[0].target_vocab_size
        self.source_vocab_size = self.members[0].source_vocab_size
        self.source_feature_size = self.members[0].source_feature_size
        self.longest_source = min(filter(None, (member.longest_source for member in self.members)), default=0)
        self.directions = self.members[0].directions
        self.target_sides = self.directions

    # === Whole sequences ===

    def features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, ...]:
        """Returns every member's features float [B, T, D_i], for ``logits``; see Seq2Seq.features for the arguments."""
        return tuple(member.features(inputs, targets, training=training) for member in self.members)

    def logits(self, features: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Returns the log-probabilities float32 [..., V] for the members' features float [..., D_i]."""
        logits = [member.logits(part) for member, part in zip(self.members, features, strict=True)]
        return log_mixture(logits, self.weights)

    def __call__(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the log-probabilities float32 [B, T, V] of every target position."""
        return self.logits(self.features(inputs, targets, training=training))

    # === Step by step ===

    def start(self, inputs: tf.Tensor) -> State:
        """Encodes inputs int32 [B, S] with every member and returns the decoding state before the first step."""
        return {"members": [member.start(inputs) for member in self.members]}

    def step(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, State]:
        """Feeds ids int32 [B, R, K]; returns log-probabilities float32 [B, R, K, V] and the new state; see Seq2Seq."""
        steps = [
            member.step(ids, visible, partner_visible, parents, member_state)
            for member, member_state in zip(self.members, state["members"], strict=True)
        ]
        return log_mixture([logits for logits, _ in steps], self.weights), {"members": [new for _, new in steps]}

    def shortlisted(self, state: State, ids: tf.Tensor) -> State:
        """Returns the state whose steps give only the log-probabilities of candidates int32 [B, C]; see Seq2Seq."""
        pairs = zip(self.members, state["members"], strict=True)
        return {"members": [member.shortlisted(each, ids) for member, each in pairs]}

    def step_with_attention(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, tf.Tensor, State]:
        """Does the same as ``step`` and returns the weighted mean of the members' attention, float32 [B, R, K, S]."""
        steps = [
            member.step_with_attention(ids, visible, partner_visible, parents, member_state)
            for member, member_state in zip(self.members, state["members"], strict=True)
        ]
        logits, attention, states = zip(*steps, strict=True)
        mean = tf.add_n([weight * each for weight, each in zip(self.weights, attention, strict=True)])
        return log_mixture(logits, self.weights), mean, {"members": list(states)}

    # === Variables ===

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the members' variables as ``member_0/...`` and so on; a model that is in twice is named twice."""
        return {
            f"member_{i}/{name}": variable
            for i, member in enumerate(self.members)
            for name, variable in member.named_variables().items()
        }
