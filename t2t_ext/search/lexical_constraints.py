"""Lexical constraints: phrases that must appear in a translation; each sentence has its own.

The method is dynamic beam allocation (Post and Vilar 2018, https://aclanthology.org/N18-1119) in the vectorised form of
Hu et al. 2019, https://aclanthology.org/N19-1090. The next tokens of missing phrases join the continuations of a
hypothesis. The live hypotheses are divided among banks, by the number of phrase tokens that they contain. Only a
hypothesis with every phrase may end.

A hypothesis contains a phrase if the phrase's tokens stand next to each other. Phrases may overlap ("a b" and "b c" are
both in "a b c"); a phrase that is listed twice must occur at two places. Instead of a position in a trie, a hypothesis
stores for each phrase and each j whether its last j tokens are the phrase's first j (Baeza-Yates and Gonnet 1992,
"shift-and"). So broken, overlapping and repeated phrases need no special treatment.

Legend: B sentences, R directions, K live hypotheses of a direction, H hypotheses or continuations, E continuations of
a hypothesis that the model proposes, C phrases, P tokens of a phrase, M = K (E + 2C), T tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_ext.data.text.graph_text_encoder import WHITESPACE
from t2t_ext.data.text.text_encoder import PAD_ID, UNK_ID
from t2t_ext.errors import UserError
from t2t_ext.search.shortlist import Columns, columns_of

SEPARATOR = "\t"
_DEAD = -1e9
_WHITESPACE_AT_AN_END = f"^{WHITESPACE}+|{WHITESPACE}+$"


class Phrases(NamedTuple):
    """The phrases of every sentence.

    Attributes:
      tokens: int32 [B, R, C, P], in the order in which a direction produces them, padded with PAD.
      lengths: int32 [B, C], 0 where there is no phrase.
      copies: int32 [B, C], how often the same phrase is listed before this one; -1 where there is no phrase.
      impossible: int32 [B], the number of phrases that no translation can contain, because they exceed the length limit
        or have characters that the vocabulary cannot spell; they are not in ``tokens``.
    """

    tokens: tf.Tensor
    lengths: tf.Tensor
    copies: tf.Tensor
    impossible: tf.Tensor


class Progress(NamedTuple):
    """Progress of the hypotheses through the phrases.

    Attributes:
      matched: bool [B, R, H, C, P], at index j - 1 whether the last j tokens are the phrase's first j.
      counts: int32 [B, R, H, C], the number of places at which the phrase occurs.
    """

    matched: tf.Tensor
    counts: tf.Tensor


def join_phrases(constraints: Sequence[Sequence[str]], lines: int) -> list[str]:
    """Returns each line's phrases joined by tabs, as ``encode_phrases`` reads them; "" for lines without phrases.

    Raises:
      UserError: There is not one list for each of the ``lines`` lines, an entry is no list or a phrase no text, or a
        phrase contains a tab.
    """
    if isinstance(constraints, str) or len(constraints) != lines:
        number = "One string" if isinstance(constraints, str) else f"{len(constraints)} lists"
        raise UserError(f"{number} of constraints for {lines} lines: give a list for each line, [] for none.")
    joined = []
    for line, phrases in enumerate(constraints, start=1):
        if isinstance(phrases, str):
            raise UserError(f"The constraints of line {line} are one string, {phrases!r}; write [phrase].")
        if not isinstance(phrases, Iterable):
            raise UserError(f"The constraints of line {line} are {phrases!r:.60}; give a list, [] for none.")
        stripped = []
        for place, phrase in enumerate(phrases, start=1):
            if not isinstance(phrase, str):
                raise UserError(
                    f"Number {place} of the constraints of line {line} is {phrase!r:.60}, which is no text (str)."
                )
            stripped.append(phrase.strip())
        if any(SEPARATOR in phrase for phrase in stripped):
            raise UserError(f"The constraints of line {line} have a tab in a phrase; tabs separate phrases.")
        joined.append(SEPARATOR.join(filter(None, stripped)))
    return joined


def encode_phrases(
    lines: tf.Tensor, encode: Callable[[tf.Tensor], tf.RaggedTensor], limits: tf.Tensor, right_to_left: tuple[bool, ...]
) -> Phrases:
    """Reads the phrases of every sentence.

    Args:
      lines: string [B], phrases separated by tabs; whitespace around phrases and empty phrases are ignored.
      encode: Strings [N] -> ragged int32 [N, (T)] without EOS.
      limits: int32 [B], the most tokens (with EOS) of each sentence's translation.
      right_to_left: For each direction, whether it generates right to left.
    """
    strings = tf.strings.split(lines, SEPARATOR)
    strings = strings.with_values(tf.strings.regex_replace(strings.values, _WHITESPACE_AT_AN_END, ""))
    strings = tf.ragged.boolean_mask(strings, tf.not_equal(strings, ""))
    ids = strings.with_values(encode(strings.values))
    spelt = ~tf.reduce_any(tf.equal(ids, UNK_ID), axis=2)
    possible = spelt & (ids.row_lengths(axis=2) < tf.cast(limits, tf.int64)[:, tf.newaxis])
    impossible = tf.reduce_sum(tf.cast(~possible, tf.int32), axis=1)
    ids = tf.ragged.boolean_mask(ids, possible)
    lengths = tf.cast(ids.row_lengths(axis=2).to_tensor(), tf.int32)
    # At least one phrase of one token, so that no tensor is empty.
    tokens = ids.to_tensor()
    tokens = tf.pad(tokens, [[0, 0]] + [[0, tf.maximum(1 - tf.shape(tokens)[i], 0)] for i in (1, 2)])
    lengths = tf.pad(lengths, [[0, 0], [0, tf.shape(tokens)[1] - tf.shape(lengths)[1]]])
    return make_phrases(tokens, lengths, right_to_left, impossible)


def make_phrases(
    tokens: tf.Tensor, lengths: tf.Tensor, right_to_left: tuple[bool, ...], impossible: tf.Tensor | None = None
) -> Phrases:
    """Returns the phrases with tokens int32 [B, C, P] in text order and lengths int32 [B, C].

    ``right_to_left`` says for each direction whether it generates right to left; ``impossible`` int32 [B] is the number
    of phrases that no translation can contain (None: 0).
    """
    shape = tf.shape(tokens)
    rows, row_lengths = tf.reshape(tokens, [-1, shape[2]]), tf.reshape(lengths, [-1])
    backward = tf.reshape(tf.reverse_sequence(rows, row_lengths, seq_axis=1), shape)
    same = tf.reduce_all(tf.equal(tokens[:, :, tf.newaxis], tokens[:, tf.newaxis]), axis=3)
    earlier = tf.linalg.band_part(tf.cast(same, tf.int32), -1, 0) - tf.cast(tf.eye(shape[1]), tf.int32)
    return Phrases(
        tokens=tf.stack([backward if turned else tokens for turned in right_to_left], axis=1),
        lengths=lengths,
        copies=tf.where(lengths > 0, tf.reduce_sum(earlier, axis=2), -1),
        impossible=tf.zeros(shape[:1], tf.int32) if impossible is None else impossible,
    )


def start_progress(phrases: Phrases, live: int) -> Progress:
    """Returns the progress of K live hypotheses without tokens."""
    shape = tf.shape(phrases.tokens)
    matched = tf.zeros([shape[0], shape[1], live, shape[2], shape[3]], tf.bool)
    return Progress(matched, tf.zeros([shape[0], shape[1], live, shape[2]], tf.int32))


def _last(phrases: Phrases) -> tf.Tensor:
    """Returns which place is the last of each phrase, bool [B, 1, 1, C, P]; all False where there is no phrase."""
    place = tf.one_hot(phrases.lengths - 1, tf.shape(phrases.tokens)[3], True, False, dtype=tf.bool)
    return place[:, tf.newaxis, tf.newaxis]


def advance(phrases: Phrases, progress: Progress, tokens: tf.Tensor) -> Progress:
    """Returns the progress of hypotheses after one more token each; ``tokens`` is int32 [B, R, H]."""
    equal = tf.equal(tokens[..., tf.newaxis, tf.newaxis], phrases.tokens[:, :, tf.newaxis])
    before = tf.concat([tf.ones_like(progress.matched[..., :1]), progress.matched[..., :-1]], axis=-1)
    matched = equal & before
    occurs = tf.reduce_any(matched & _last(phrases), axis=-1)
    return Progress(matched, progress.counts + tf.cast(occurs, tf.int32))


def choose_parents(progress: Progress, parents: tf.Tensor) -> Progress:
    """Returns the progress of the parents, whose ranks are int32 [B, R, H]."""
    return Progress(*(tf.gather(part, parents, batch_dims=2) for part in progress))


def missing(phrases: Phrases, progress: Progress) -> tf.Tensor:
    """Returns which phrases hypotheses still lack, bool [B, R, H, C]."""
    return progress.counts <= phrases.copies[:, tf.newaxis, tf.newaxis]


def _begun(phrases: Phrases, progress: Progress) -> tf.Tensor:
    """Returns with how many tokens of each missing phrase a hypothesis ends (fewer than all), int32 [B, R, H, C]."""
    places = tf.range(1, tf.shape(phrases.tokens)[3] + 1)
    # Hypotheses that do not exist may end with PAD, which also follows the last token of a phrase here.
    inside = (places < phrases.lengths[..., tf.newaxis])[:, tf.newaxis, tf.newaxis]
    begun = tf.reduce_max(tf.where(progress.matched & inside, places, 0), axis=-1)
    return tf.where(missing(phrases, progress), begun, 0)


def banks(phrases: Phrases, progress: Progress) -> tf.Tensor:
    """Returns the bank of each hypothesis, the number of phrase tokens that it contains, int32 [B, R, H].

    The tokens of all completed phrases count, and those of the phrase in progress that has come farthest.
    """
    lengths = phrases.lengths[:, tf.newaxis, tf.newaxis]
    there = tf.reduce_sum(tf.where(missing(phrases, progress), 0, lengths), axis=-1)
    return there + tf.reduce_max(_begun(phrases, progress), axis=-1)


def next_tokens(phrases: Phrases, progress: Progress) -> tf.Tensor:
    """Returns the tokens that begin or continue missing phrases, int32 [B, R, H, 2C]; PAD where there is none.

    For each missing phrase these are its first token and the token that continues the part already generated.
    """
    begun = tf.transpose(_begun(phrases, progress), [0, 1, 3, 2])
    further = tf.transpose(tf.gather(phrases.tokens, begun, batch_dims=3), [0, 1, 3, 2])
    first = tf.broadcast_to(phrases.tokens[:, :, tf.newaxis, :, 0], tf.shape(further))
    absent = missing(phrases, progress)
    return tf.concat([tf.where(absent, further, PAD_ID), tf.where(absent, first, PAD_ID)], axis=-1)


def wanted_continuations(
    phrases: Phrases,
    progress: Progress,
    logits: tf.Tensor,
    proposed: tf.Tensor,
    columns: Columns | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns continuations that begin or continue missing phrases and that the model does not propose itself.

    Args:
      phrases: The phrases.
      progress: The progress of the K live hypotheses.
      logits: float32 [B, R, K, V].
      proposed: int32 [B, R, K, E], the continuations that the model proposes.
      columns: The ids that the logits' columns stand for; None: all.

    Returns:
      Tokens int32 and their logits float32, both [B, R, K, 2C]. Logits are about -1e9 in unused places.
    """
    wanted = next_tokens(phrases, progress)
    repeated = tf.reduce_any(tf.equal(wanted[..., tf.newaxis], proposed[..., tf.newaxis, :]), axis=-1)
    same = tf.cast(tf.equal(wanted[..., tf.newaxis], wanted[..., tf.newaxis, :]), tf.int32)
    repeated |= tf.reduce_sum(tf.linalg.band_part(same, -1, 0), axis=-1) > 1
    values = tf.gather(logits, columns_of(columns, wanted), batch_dims=3)
    return wanted, tf.where(repeated | tf.equal(wanted, PAD_ID), _DEAD, values)


def take_turns(log_probs: tf.Tensor, bank: tf.Tensor, count: int) -> tf.Tensor:
    """Returns the places of the continuations that are kept.

    The banks take turns, starting with the one with most phrase tokens; in its turn a bank chooses its most probable
    remaining continuation. So every bank gets its share, and what a bank cannot fill goes to the others.

    Args:
      log_probs: float32 [B, R, M], of the hypotheses with each continuation; below -5e8: it does not exist.
      bank: int32 [B, R, M], the bank of each hypothesis with its continuation.
      count: How many are kept, at most M.

    Returns:
      Places int32 [B, R, count] among the M continuations, in the order of choice; ones that do not exist come last.
    """
    log_probs, order = tf.math.top_k(log_probs, tf.shape(log_probs)[2])
    bank = tf.gather(bank, order, batch_dims=2)
    number = tf.reduce_max(bank) + 1
    in_bank = tf.one_hot(bank, number, dtype=tf.int32)
    turns = tf.reduce_sum(tf.cumsum(in_bank, axis=2) * in_bank, axis=-1)
    turns = tf.where(log_probs > _DEAD / 2, turns * number - bank, tf.int32.max)
    _, places = tf.math.top_k(-turns, count)
    return tf.gather(order, places, batch_dims=2)


def count_unmet(phrases: Phrases, ids: tf.Tensor, directions: tf.Tensor) -> tf.Tensor:
    """Returns how many phrases, including impossible ones, each final hypothesis lacks, int32 [B, N].

    ``ids`` int32 [B, N, T] are tokens in the order of generation; ``directions`` int32 [B, N] generated them.
    """
    tokens = tf.gather(phrases.tokens, directions, batch_dims=1)[:, :, tf.newaxis]  # [B, N, 1, C, P]
    longest = tf.shape(tokens)[4]
    padded = tf.pad(ids, [[0, 0], [0, 0], [0, longest]])
    windows = tf.gather(padded, tf.range(tf.shape(ids)[2])[:, tf.newaxis] + tf.range(longest), axis=2)
    beyond = ~tf.sequence_mask(phrases.lengths, longest)[:, tf.newaxis, tf.newaxis]
    occurs = tf.reduce_all(tf.equal(windows[:, :, :, tf.newaxis], tokens) | beyond, axis=4)
    counts = tf.reduce_sum(tf.cast(occurs, tf.int32), axis=2)
    unmet = tf.reduce_sum(tf.cast(counts <= phrases.copies[:, tf.newaxis], tf.int32), axis=2)
    return unmet + phrases.impossible[:, tf.newaxis]
