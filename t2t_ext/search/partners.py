"""Partners of a synchronous search: what each direction sees of the other (Zhou et al. 2019, section 3.1).

In a search of two directions, the state of a hypothesis at step t is computed once, with the partner that it has at
step t: the other direction's live hypothesis of the same rank (or its best one). A hypothesis sees its partner's own
past, including the partner's column of step t. If no hypothesis is left at a rank (with tiny vocabularies or rules), a
copy of the direction's best hypothesis takes that place.

With ``freeze``, a partner counts as finished at step t if its continuation with EOS is among the K best continuations
of its direction. All later descendants of a hypothesis that had this partner keep seeing what the hypothesis saw at
step t.

Legend: B sentences, R = 2 directions, K live hypotheses of a direction, C continuations, T steps.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_ext.data.text.text_encoder import EOS_ID
from t2t_ext.search.search_state import NOT_THERE, SearchConfig
from t2t_ext.search.strategies import BeamStrategy, Continuations


class Frozen(NamedTuple):
    """Frozen views of live hypotheses whose partner is finished.

    Attributes:
      frozen: bool [B, R, K], whether a hypothesis's partner is finished.
      columns: bool [B, R, K, T * K], the other direction's columns that a hypothesis sees; meaningless unless frozen.
    """

    frozen: tf.Tensor
    columns: tf.Tensor


# The state of the partners; () unless ``SearchConfig.freezes``.
Partners = Frozen | tuple[()]


def start_partners(batch: tf.Tensor, config: SearchConfig) -> Partners:
    """Returns the state before the first step."""
    if not config.freezes:
        return ()
    shape = [batch, config.directions, config.live]
    return Frozen(tf.zeros(shape, tf.bool), tf.zeros([*shape, 0], tf.bool))


def partner_invariants(config: SearchConfig) -> Partners:
    """Returns the shape invariants of the state in a loop."""
    if not config.freezes:
        return ()
    fixed = tf.TensorShape([None, config.directions, config.live])
    return Frozen(fixed, fixed.concatenate([None]))


def partner_columns(
    partners: Partners, visible: tf.Tensor, log_probs: tf.Tensor, config: SearchConfig
) -> tf.Tensor | None:
    """Returns which of the other direction's columns hypotheses see in this step; None if there is one direction.

    Args:
      partners: The state of this step.
      visible: bool [B, R, K, (T + 1) * K], the columns of a hypothesis's own past, including this step's.
      log_probs: float32 [B, R, K], of the live hypotheses.
      config: The search's constants.

    Returns:
      bool [B, R, K, (T + 1) * K] or None.
    """
    if config.directions == 1:
        return None
    others = tf.reverse(visible, axis=[1])
    if config.pairing == "best":
        others = tf.repeat(_of_the_best(others, log_probs), config.live, axis=2)
    if isinstance(partners, Frozen):
        kept = tf.pad(partners.columns, [[0, 0], [0, 0], [0, 0], [0, config.live]])
        others = tf.where(partners.frozen[..., tf.newaxis], kept, others)
    return others


def follow_partners(
    partners: Partners,
    seen: tf.Tensor | None,
    candidates: Continuations,
    parents: tf.Tensor,
    log_probs: tf.Tensor,
    strategy: BeamStrategy,
    config: SearchConfig,
) -> Partners:
    """Returns the state of the next step.

    Args:
      partners: The state of this step.
      seen: The result of ``partner_columns`` in this step.
      candidates: The continuations of this step.
      parents: int64 [B, R, K], the rank in this step of each new live hypothesis's parent.
      log_probs: float32 [B, R, K], of the live hypotheses of this step.
      strategy: The strategy that proposed the candidates.
      config: The search's constants.
    """
    if not isinstance(partners, Frozen):
        return ()
    finished = tf.reverse(_finished_in_beam(candidates, strategy, config), axis=[1])
    if config.pairing == "best":
        finished = _of_the_best(finished, log_probs)
    frozen = partners.frozen | finished
    return Frozen(tf.gather(frozen, parents, batch_dims=2), tf.gather(seen, parents, batch_dims=2))


def _of_the_best(of_others: tf.Tensor, log_probs: tf.Tensor) -> tf.Tensor:
    """Returns the entry [B, R, 1, ...] of the other direction's most probable hypothesis among [B, R, K, ...].

    This hypothesis need not be the first: constraints and groups order live hypotheses differently.
    """
    best = tf.argmax(tf.reverse(log_probs, axis=[1]), axis=2, output_type=tf.int32)
    return tf.gather(of_others, best[..., tf.newaxis], batch_dims=2)


def _finished_in_beam(candidates: Continuations, strategy: BeamStrategy, config: SearchConfig) -> tf.Tensor:
    """Returns for which hypotheses the continuation with EOS is among their direction's K best, bool [B, R, K]."""
    log_probs, parents, tokens = candidates
    ending = tf.equal(tokens, EOS_ID) & (log_probs > NOT_THERE / 2) & strategy.in_beam(tokens.shape[2], config)
    of_parent = tf.equal(parents[..., tf.newaxis], tf.range(config.live, dtype=tf.int64))
    return tf.reduce_any(ending[..., tf.newaxis] & of_parent, axis=2)
