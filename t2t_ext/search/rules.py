"""Rules that change what a search may generate or how it ranks.

This module holds the interface of a rule, and rules for minimum length, repeated n-grams, prefixes and coverage.

The search combines any number of rules, in the order given. The loop of the search carries the
state of each rule along with the hypotheses; a search without rules has no additional operation.

Whatever the rules do, a hypothesis's log-probability stays the model's own: the normalizer covers
the whole vocabulary, forbidden tokens included. The length limit has priority over all rules.

Legend: B sentences, R directions, K live hypotheses of a direction, T tokens so far, V
vocabulary (with a shortlist, the columns of candidates), S source positions, P tokens of the longest prefix.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID
from t2t_ext.search.search_state import NOT_THERE
from t2t_ext.search.shortlist import Columns, columns_of, known_ids, width_of

# Added to the logits of forbidden tokens, so that hypotheses with them count as not existing.
FORBIDDEN = NOT_THERE


class Step(NamedTuple):
    """The inputs of a rule at one step of the search.

    Attributes:
      length: int32 scalar, tokens of a hypothesis including the one to be chosen now: 1, 2, ...
      limits: int32 [B], the most tokens of each sentence's hypotheses, EOS included.
      tokens: int32 [B, R, K, >= length - 1], the tokens chosen before, followed by PAD.
      log_probs: float32 [B, R, K] of the hypotheses, about -1e9 where a hypothesis does not exist.
      logits: float32 [B, R, K, V], the model's own, before any rule.
      attention: float32 [B, R, K, S], the cross-attention with which the model chooses this token; None unless a
        rule needs it.
      columns: The ids that the logits' columns stand for; None: the whole vocabulary.
    """

    length: tf.Tensor
    limits: tf.Tensor
    tokens: tf.Tensor
    log_probs: tf.Tensor
    logits: tf.Tensor
    attention: tf.Tensor | None
    columns: Columns | None = None


class Rule:
    """The interface of a rule; this one does nothing, and subclasses override the methods they need.

    A state consists of nested dicts, lists and tuples of tensors. All have the sentences on axis 0, because the search
    leaves out sentences that are done. Their other dimensions are constant, except axis 3 under a key ``memories``.
    Anything a rule knows about single sentences belongs in the state; attributes are constants.

    Attributes:
      needs_attention: Whether the rule needs ``Step.attention``.
    """

    needs_attention: bool = False

    def start(self, batch: tf.Tensor, live: int) -> Any:
        """Returns the state before the first step, for B sentences (``batch``, int32 scalar) and K live hypotheses."""
        return ()

    def adjust(self, logits: tf.Tensor, step: Step, state: Any) -> tf.Tensor:
        """Returns logits float32 [B, R, K, V] with FORBIDDEN added where a token may not be chosen."""
        return logits

    def bonus(self, step: Step, state: Any) -> tf.Tensor | None:
        """Returns the bonus added to the penalized score of hypotheses that end now, float32 [B, R, K] by parent.

        A bonus must never be more than 0, because the bound that decides when the search stops ignores bonuses.
        """
        return None

    def subtracted(self, step: Step, state: Any) -> tf.Tensor | None:
        """Returns how much ``adjust`` has subtracted from hypotheses in this and all earlier steps, float32 [B, R, K].

        ``adjust`` subtracts the same amount from all allowed tokens of a hypothesis. The search then ranks by less than
        the model's log-probability, which is restored when a hypothesis ends. The amount must never shrink from step to
        step, because the search stops as soon as no live hypothesis can win.
        """
        return None

    def update(self, state: Any, parents: tf.Tensor, tokens: tf.Tensor, step: Step) -> Any:
        """Returns the state of the next step.

        Args:
          state: The state of this step.
          parents: int32 [B, R, K], the rank in this step of each new live hypothesis's parent; see ``reorder``.
          tokens: int32 [B, R, K], the token that each new live hypothesis ends with.
          step: This step.
        """
        return state


def reorder(state: tf.Tensor, parents: tf.Tensor) -> tf.Tensor:
    """Returns a state [B, R, K, ...] reordered by the parents int32 [B, R, K] of the new live hypotheses."""
    return tf.gather(state, parents, batch_dims=2)


def forbid(logits: tf.Tensor, columns: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Returns logits [B, R, K, V] set to FORBIDDEN in the chosen columns.

    Of the columns int32 [B, R, K, T], ``chosen`` bool [B, R, K, T] says which are forbidden.
    """
    rows = tf.reshape(logits, [-1, width_of(logits)])
    # Places that are not chosen forbid PAD, which is never generated anyway.
    columns = tf.reshape(tf.where(chosen, columns, PAD_ID), [tf.shape(rows)[0], -1])
    numbers = tf.broadcast_to(tf.range(tf.shape(rows)[0])[:, tf.newaxis], tf.shape(columns))
    updates = tf.fill(tf.shape(columns), FORBIDDEN)
    changed = tf.tensor_scatter_nd_update(rows, tf.stack([numbers, columns], axis=2), updates)
    return tf.reshape(changed, tf.shape(logits))


class MinimumLength(Rule):
    """Forbids EOS until a hypothesis has its sentence's minimum number of other tokens."""

    def __init__(self, minimum: tf.Tensor) -> None:
        """Initializes the rule for a minimum int32 [B] of tokens without EOS.

        If the length limit leaves no room for EOS after that many tokens, EOS is allowed as the last token.
        """
        self._minimum = minimum
        self._most = tf.reduce_max(minimum)

    def start(self, batch: tf.Tensor, live: int) -> tf.Tensor:
        """Returns the minimum of each sentence, int32 [B]."""
        return self._minimum

    def adjust(self, logits: tf.Tensor, step: Step, state: tf.Tensor) -> tf.Tensor:
        """Forbids EOS where it would come too early."""

        def without_eos() -> tf.Tensor:
            early = step.length <= tf.minimum(state, step.limits - 1)
            eos = tf.one_hot(EOS_ID, width_of(logits), FORBIDDEN)
            return logits + tf.cast(early, tf.float32)[:, tf.newaxis, tf.newaxis, tf.newaxis] * eos

        # With the default of 1, only the first step adds to the logits.
        return tf.cond(step.length <= self._most, without_eos, lambda: logits)


class NoRepeatedNgrams(Rule):
    """Forbids repeated n-grams of tokens in a hypothesis (Paulus et al. 2018, section 2.5)."""

    def __init__(self, size: int) -> None:
        """Initializes the rule for n-grams of ``size`` tokens, at least 1; with 1, no token occurs twice."""
        self._size = size

    def adjust(self, logits: tf.Tensor, step: Step, state: Any) -> tf.Tensor:
        """Forbids the tokens that already follow, earlier in a hypothesis, its last size - 1 tokens."""
        past = step.length - 1

        def without_repeats() -> tf.Tensor:
            starts = past - self._size + 1
            follows = step.tokens[..., self._size - 1 : past]
            repeats = tf.ones_like(follows, tf.bool)
            for i in range(self._size - 1):
                ends_with = tf.gather(step.tokens, starts + i, axis=3)
                repeats &= tf.equal(step.tokens[..., i : i + starts], ends_with[..., tf.newaxis])
            return forbid(logits, columns_of(step.columns, follows), repeats)

        changed = tf.cond(past >= self._size, without_repeats, lambda: logits)
        return tf.ensure_shape(changed, logits.shape)


class ForcedPrefix(Rule):
    """Makes hypotheses begin with given tokens; the rules before this one have no influence on the prefix."""

    def __init__(self, ids: tf.Tensor, lengths: tf.Tensor, ends_word: tf.Tensor, word_starts: Sequence[bool]) -> None:
        """Initializes the rule.

        Args:
          ids: int32 [B, P] in the model's direction, P >= 1, without ids that are never produced.
          lengths: int32 [B], tokens of each prefix; 0: no prefix.
          ends_word: bool [B], whether the prefix's last word is complete, so that the next token must start a new one.
          word_starts: For every id, whether it may follow a complete word, because it starts a new word or is EOS.
        """
        self._state = {"ids": ids, "lengths": lengths, "ends_word": ends_word}
        self._inside_words = ~np.array(word_starts, bool)

    def start(self, batch: tf.Tensor, live: int) -> dict[str, tf.Tensor]:
        """Returns the prefixes."""
        return self._state

    def adjust(self, logits: tf.Tensor, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Forbids all tokens but the prefix's; after the prefix, those that would continue its complete last word."""
        lengths, past = state["lengths"], step.length - 1

        def by_sentence(x: tf.Tensor) -> tf.Tensor:
            return tf.reshape(x, [tf.shape(lengths)[0], 1, 1, -1])

        def only_prefix() -> tf.Tensor:
            inside = past < lengths
            behind = tf.equal(past, lengths) & state["ends_word"]
            token = tf.gather(state["ids"], tf.minimum(past, tf.shape(state["ids"])[1] - 1), axis=1)
            column = columns_of(step.columns, token)
            others = inside[:, tf.newaxis] & ~tf.one_hot(column, width_of(logits), True, False)
            inside_words = tf.constant(self._inside_words)
            if step.columns is not None:
                inside_words = tf.gather(inside_words, known_ids(step.columns.ids))
            others |= behind[:, tf.newaxis] & inside_words
            free = tf.where(by_sentence(inside), step.logits, logits)
            return free + by_sentence(tf.where(others, FORBIDDEN, 0.0))

        return tf.cond(past <= tf.reduce_max(lengths), only_prefix, lambda: logits)


class CoveragePenalty(Rule):
    """Lowers the rank of hypotheses according to their attention to the source.

    Kind ``wu`` penalizes hypotheses that leave source words without attention (Wu et al. 2016, eq. 14):
    cp(X; Y) = beta sum_i log(min(sum_j p_ij, 1)) over the source's subwords i without EOS, where p_ij is the attention
    to subword i when token j (EOS included) was chosen. Kind ``summary`` penalizes hypotheses that attend to a word
    repeatedly (as in OpenNMT; Gehrmann et al. 2018, section 5.3): -beta sum_i (max(sum_j p_ij, 1) - 1).
    """

    needs_attention = True
    # A subword without any attention costs beta log(1e-6), not an infinite penalty.
    _LEAST = 1e-6

    def __init__(self, beta: float, words: tf.Tensor, directions: int = 1, kind: str = "wu") -> None:
        """Initializes the rule with a factor beta > 0; ``words`` bool [B, S] marks source positions with subwords."""
        self._beta = beta
        self._words = words
        self._directions = directions
        self._kind = kind

    def start(self, batch: tf.Tensor, live: int) -> dict[str, tf.Tensor]:
        """Returns the attention that each subword has received, float32 [B, R, K, S], and which positions count."""
        covered = tf.zeros([batch, self._directions, live, tf.shape(self._words)[1]])
        return {"covered": covered, "words": self._words}

    def bonus(self, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the coverage penalty, never more than 0."""
        return self._penalty(state["covered"] + step.attention, state["words"])

    def _penalty(self, covered: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Returns the penalty float32 [B, R, K] for the attention that subwords have received, float32 [B, R, K, S]."""
        if self._kind == "summary":
            each = 1.0 - tf.maximum(covered, 1.0)
        else:
            each = tf.math.log(tf.clip_by_value(covered, self._LEAST, 1.0))
        return self._beta * tf.reduce_sum(tf.where(words[:, tf.newaxis, tf.newaxis], each, 0.0), axis=3)

    def update(
        self, state: dict[str, tf.Tensor], parents: tf.Tensor, tokens: tf.Tensor, step: Step
    ) -> dict[str, tf.Tensor]:
        """Adds this step's attention and reorders the sums with the hypotheses."""
        return {**state, "covered": reorder(state["covered"] + step.attention, parents)}


class StepwisePenalty(CoveragePenalty):
    """Applies the coverage penalty of kind ``summary`` at every step, as OpenNMT's ``-stepwise_penalty`` does.

    Hypotheses continue by log P - cp and end by (log P - cp) / length penalty, where cp is the penalty of their
    attention so far. The rule must come after all rules that reset logits to the model's own.
    """

    def __init__(self, beta: float, words: tf.Tensor, directions: int = 1) -> None:
        super().__init__(beta, words, directions, "summary")

    def adjust(self, logits: tf.Tensor, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Subtracts the amount by which the penalty grows in this step."""
        before = self._penalty(state["covered"], state["words"])
        return logits + (super().bonus(step, state) - before)[..., tf.newaxis]

    def bonus(self, step: Step, state: dict[str, tf.Tensor]) -> None:
        """Returns nothing: the penalty is in the log-probability already."""

    def subtracted(self, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the penalty of all attention so far, at least 0."""
        return -super().bonus(step, state)
