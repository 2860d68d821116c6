"""Rules that change what a search may generate or how it ranks: the interface, and minimum length, n-grams, prefixes.

The search composes any number of rules, in the order given. A rule's state goes round the
loop with the hypotheses; a search without rules has not one operation more.

Whatever rules do, a hypothesis's log-probability stays the model's own: the normalizer is
over the whole vocabulary, forbidden tokens included. The length limit stands above all rules.

Legend: B sentences, R directions, K live hypotheses of a direction, T tokens so far, V
vocabulary (with a shortlist the columns of candidates), S source positions, P tokens of the longest prefix.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID
from t2t_ext.search.search_state import NOT_THERE
from t2t_ext.search.shortlist import Columns, columns_of, known_ids, width_of

# Added to the logits of forbidden tokens, which makes hypotheses with them not there.
FORBIDDEN = NOT_THERE


class Step(NamedTuple):
    """The inputs of a rule at one step of the search.

    Attributes:
      length: int32 scalar, tokens of a hypothesis with the one to be chosen now: 1, 2, ...
      limits: int32 [B], the most tokens of each sentence's hypotheses, EOS included.
      tokens: int32 [B, R, K, >= length - 1], those chosen before, PAD behind them.
      log_probs: float32 [B, R, K] of those, about -1e9 where a hypothesis is not there.
      logits: float32 [B, R, K, V], the model's own, before any rule.
      attention: float32 [B, R, K, S], cross-attention as the model chooses this token; None unless a
        rule needs it.
      columns: Which ids the logits' columns are; None: all of the vocabulary.
    """

    length: tf.Tensor
    limits: tf.Tensor
    tokens: tf.Tensor
    log_probs: tf.Tensor
    logits: tf.Tensor
    attention: tf.Tensor | None
    columns: Columns | None = None


class Rule:
    """A rule that does nothing; others override what they need.

    A state is nested dicts, lists and tuples of tensors, all with the sentences on axis 0 and shapes that do not
    change, but axis 3 below a key ``memories``: the search leaves out sentences that are done. What a rule knows of
    single sentences belongs into the state, not into attributes; attributes are constants.

    Attributes:
      needs_attention: Whether ``Step.attention`` is wanted.
    """

    needs_attention: bool = False

    def start(self, batch: tf.Tensor, live: int) -> Any:
        """Returns the state before the first step, of B sentences (int32 scalar) and K live hypotheses."""
        return ()

    def adjust(self, logits: tf.Tensor, step: Step, state: Any) -> tf.Tensor:
        """Returns logits float32 [B, R, K, V] with FORBIDDEN added where a token may not be chosen."""
        return logits

    def bonus(self, step: Step, state: Any) -> tf.Tensor | None:
        """Returns what is added to the penalized score of hypotheses that end now, float32 [B, R, K] by parent.

        Never more than 0, since the search stops when no log-probability over its penalty can win any more.
        """
        return None

    def subtracted(self, step: Step, state: Any) -> tf.Tensor | None:
        """Returns how much ``adjust`` has subtracted from hypotheses in this and all earlier steps, float32 [B, R, K].

        It subtracts the same from all allowed tokens of a hypothesis, so the search ranks by less than the model's
        log-probability, which is restored where a hypothesis ends. It grows from step to step, or stays: the search
        stops when nothing can win any more.
        """
        return None

    def update(self, state: Any, parents: tf.Tensor, tokens: tf.Tensor, step: Step) -> Any:
        """Returns the state of the next step.

        Args:
          state: Of this step.
          parents: int32 [B, R, K], the rank that each new live hypothesis had in this step; see ``reorder``.
          tokens: int32 [B, R, K], the token that each got.
          step: This step.
        """
        return state


def reorder(state: tf.Tensor, parents: tf.Tensor) -> tf.Tensor:
    """Returns a state [B, R, K, ...] in the order of the new live hypotheses' parents int32 [B, R, K]."""
    return tf.gather(state, parents, batch_dims=2)


def forbid(logits: tf.Tensor, columns: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Returns logits [B, R, K, V] with FORBIDDEN for those of columns int32 [B, R, K, T] that are chosen, bool."""
    rows = tf.reshape(logits, [-1, width_of(logits)])
    # Places where none is forbid PAD, which is never chosen anyway.
    columns = tf.reshape(tf.where(chosen, columns, PAD_ID), [tf.shape(rows)[0], -1])
    numbers = tf.broadcast_to(tf.range(tf.shape(rows)[0])[:, tf.newaxis], tf.shape(columns))
    updates = tf.fill(tf.shape(columns), FORBIDDEN)
    changed = tf.tensor_scatter_nd_update(rows, tf.stack([numbers, columns], axis=2), updates)
    return tf.reshape(changed, tf.shape(logits))


class MinimumLength(Rule):
    """EOS is not chosen before a hypothesis has its sentence's minimum of other tokens."""

    def __init__(self, minimum: tf.Tensor) -> None:
        """Initializes the rule for a minimum int32 [B] of tokens without EOS.

        Where the length limit does not leave room for EOS behind them, EOS is allowed as the last token.
        """
        self._minimum = minimum

    def start(self, batch: tf.Tensor, live: int) -> tf.Tensor:
        """Returns the minimum of each sentence, int32 [B]."""
        return self._minimum

    def adjust(self, logits: tf.Tensor, step: Step, state: tf.Tensor) -> tf.Tensor:
        """Forbids EOS where it is too early."""
        early = step.length <= tf.minimum(state, step.limits - 1)

        def without_eos() -> tf.Tensor:
            eos = tf.one_hot(EOS_ID, width_of(logits), FORBIDDEN)
            return logits + tf.cast(early, tf.float32)[:, tf.newaxis, tf.newaxis, tf.newaxis] * eos

        return tf.cond(tf.reduce_any(early), without_eos, lambda: logits)


class NoRepeatedNgrams(Rule):
    """No n-gram of tokens comes twice in a hypothesis (Paulus et al. 2018, section 2.5)."""

    def __init__(self, size: int) -> None:
        """Initializes the rule for n-grams of ``size`` tokens, at least 1; with 1, no token comes twice."""
        self._size = size

    def adjust(self, logits: tf.Tensor, step: Step, state: Any) -> tf.Tensor:
        """Forbids what follows, anywhere in a hypothesis, the size - 1 tokens that the hypothesis ends with."""
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
    """Hypotheses begin with given tokens. Stands behind all other rules, which have no say in the prefix."""

    def __init__(self, ids: tf.Tensor, lengths: tf.Tensor, ends_word: tf.Tensor, word_starts: Sequence[bool]) -> None:
        """Initializes the rule.

        Args:
          ids: int32 [B, P] in the model's direction, P >= 1; ids that are never produced may not be among them.
          lengths: int32 [B], tokens of each prefix; 0 = none.
          ends_word: bool [B], whether the prefix's last word is complete, so that the next token starts another one.
          word_starts: Of every id whether it may follow a complete word: starts another one, or is EOS.
        """
        self._state = {"ids": ids, "lengths": lengths, "ends_word": ends_word}
        self._inside_words = ~np.array(word_starts, bool)

    def start(self, batch: tf.Tensor, live: int) -> dict[str, tf.Tensor]:
        """Returns the prefixes."""
        return self._state

    def adjust(self, logits: tf.Tensor, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Forbids all but the prefix's token, and what would continue with its last word if that is complete."""
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
    """Hypotheses are ranked lower by how they attended to the source.

    Of kind ``wu`` those that leave source words without attention (Wu et al. 2016, eq. 14):
    cp(X; Y) = beta sum_i log(min(sum_j p_ij, 1)) over the source's subwords i, EOS left out, where p_ij is the
    attention to subword i as token j (EOS included) was chosen. Of kind ``summary`` those that attend to a word again
    and again (OpenNMT's, Gehrmann et al. 2018, section 5.3): -beta sum_i (max(sum_j p_ij, 1) - 1).
    """

    needs_attention = True
    # A subword without any attention costs beta log(1e-6), not everything.
    _LEAST = 1e-6

    def __init__(self, beta: float, words: tf.Tensor, directions: int = 1, kind: str = "wu") -> None:
        """Initializes the rule with a factor beta > 0; ``words`` bool [B, S]: which source positions hold subwords."""
        self._beta = beta
        self._words = words
        self._directions = directions
        self._kind = kind

    def start(self, batch: tf.Tensor, live: int) -> dict[str, tf.Tensor]:
        """Returns the attention that each subword has got, float32 [B, R, K, S], and which positions count."""
        covered = tf.zeros([batch, self._directions, live, tf.shape(self._words)[1]])
        return {"covered": covered, "words": self._words}

    def bonus(self, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the coverage penalty, never more than 0."""
        return self._penalty(state["covered"] + step.attention, state["words"])

    def _penalty(self, covered: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Returns the penalty float32 [B, R, K] of the attention that subwords have got, float32 [B, R, K, S]."""
        if self._kind == "summary":
            each = 1.0 - tf.maximum(covered, 1.0)
        else:
            each = tf.math.log(tf.clip_by_value(covered, self._LEAST, 1.0))
        return self._beta * tf.reduce_sum(tf.where(words[:, tf.newaxis, tf.newaxis], each, 0.0), axis=3)

    def update(
        self, state: dict[str, tf.Tensor], parents: tf.Tensor, tokens: tf.Tensor, step: Step
    ) -> dict[str, tf.Tensor]:
        """Adds this step's attention and follows the hypotheses."""
        return {**state, "covered": reorder(state["covered"] + step.attention, parents)}


class StepwisePenalty(CoveragePenalty):
    """The coverage penalty of kind ``summary`` at every step, as OpenNMT's ``-stepwise_penalty``.

    Hypotheses continue and end by log P - cp over the length penalty, where cp is that of their attention until then.
    Stands behind all rules that set logits back to the model's own.
    """

    def __init__(self, beta: float, words: tf.Tensor, directions: int = 1) -> None:
        super().__init__(beta, words, directions, "summary")

    def adjust(self, logits: tf.Tensor, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Subtracts the growth of the penalty in this step."""
        before = self._penalty(state["covered"], state["words"])
        return logits + (super().bonus(step, state) - before)[..., tf.newaxis]

    def bonus(self, step: Step, state: dict[str, tf.Tensor]) -> None:
        """Returns nothing: the penalty is in the log-probability already."""

    def subtracted(self, step: Step, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the penalty of all attention until now, at least 0."""
        return -super().bonus(step, state)
