"""Learns subword-nmt codes and the vocabularies of both sides from prepared text.

The way of ``subword-nmt learn-joint-bpe-and-vocab`` and ``apply-bpe --vocabulary-threshold``: joint codes are learnt
from both sides together, what one side may use is counted in that side alone.
"""

import collections
import itertools
from collections.abc import Iterable, Mapping

from t2t_ext.data.features.types import SOURCE, TARGET
from t2t_ext.data.generation.preparation import TextPreparation
from t2t_ext.data.generation.workers import Workers
from t2t_ext.data.text import subword_nmt_model
from t2t_ext.data.text.special_ids import FIRST_TEXT_ID
from t2t_ext.data.text.subword_nmt_model import SEPARATOR, SubwordNmtModel
from t2t_ext.errors import UserError

_SIDES = (SOURCE, TARGET)
Counts = Mapping[str, int]


def train(
    texts: Mapping[str, list[str]], preparation: TextPreparation, joint: bool, sampled: bool, workers: Workers
) -> dict[str, SubwordNmtModel]:
    """Returns the model of each side.

    Args:
      texts: Side -> prepared texts.
      preparation: How many merges, thresholds, limits; or files to take codes and vocabularies from.
      joint: Whether both sides share codes and ids.
      sampled: Whether there is more training text than these texts: then all subwords that the codes can give get
        ids, whether they occur here or not.
      workers: Where separate codes are learnt at the same time.

    Raises:
      UserError: There are no words, a file cannot be used, or the limit leaves no room for subwords.
    """
    limit = preparation.vocab_limit
    room = limit - FIRST_TEXT_ID - len(preparation.tags)
    if limit and room < 1:
        raise UserError(f"--vocab_size={limit} is too small: {limit - room} ids are special ones.")
    tags = frozenset(preparation.tags)
    words = {side: subword_nmt_model.count_words(texts[side]) for side in _SIDES}
    for counter in words.values():
        for tag in tags:
            counter.pop(tag, None)
    codes = _codes(words, preparation, joint, workers)
    seen, allowed = _seen(words, codes, preparation)
    if sampled and not preparation.bpe_vocab:
        for side in _SIDES:
            others = [] if not joint else words[TARGET if side == SOURCE else SOURCE]
            _complete(seen[side], codes[side], itertools.chain(words[side], others))
    for counter in seen.values():
        for tag in tags:
            counter.pop(tag, None)  # in a vocabulary that was given
    if joint:
        together = collections.Counter(seen[SOURCE])
        together.update(seen[TARGET])
        seen = dict.fromkeys(_SIDES, together)
    return {
        side: SubwordNmtModel(
            codes[side],
            subword_nmt_model.by_frequency(seen[side], room if limit else 0),
            allowed[side],
            preparation.tags,
        )
        for side in _SIDES
    }


def _codes(words: Mapping[str, Counts], preparation: TextPreparation, joint: bool, workers: Workers) -> dict[str, str]:
    if preparation.bpe_codes:
        files = [subword_nmt_model.read_codes(path) for path in preparation.bpe_codes]
        return {SOURCE: files[0], TARGET: files[-1]}
    if joint:
        together = collections.Counter(words[SOURCE])
        together.update(words[TARGET])
        return dict.fromkeys(_SIDES, _learn((together, preparation.num_merges)))
    learnt = workers.map(_learn, [(words[side], preparation.num_merges) for side in _SIDES])
    return dict(zip(_SIDES, learnt, strict=True))


def _learn(job: tuple[Counts, int]) -> str:
    return subword_nmt_model.learn_codes(*job)


def _seen(
    words: Mapping[str, Counts], codes: Mapping[str, str], preparation: TextPreparation
) -> tuple[dict[str, collections.Counter[str]], dict[str, list[str] | None]]:
    """Returns the counts of the subwords of each side, and those that it may use (None: all)."""
    files = [subword_nmt_model.read_counts(path) for path in preparation.bpe_vocab]
    seen: dict[str, collections.Counter[str]] = {}
    allowed: dict[str, list[str] | None] = {}
    for side in _SIDES:
        chosen: list[str] | None = None
        if files:
            counts = collections.Counter(files[0] if side == SOURCE else files[-1])
        else:
            counts = subword_nmt_model.count_subwords(words[side], codes[side])
        if preparation.vocab_threshold:
            chosen = [piece for piece, count in counts.items() if count >= preparation.vocab_threshold]
            if not files:
                counts = subword_nmt_model.count_subwords(words[side], codes[side], chosen)
        seen[side], allowed[side] = counts, chosen
    return seen, allowed


def _complete(counts: collections.Counter, codes: str, words: Iterable[str]) -> None:
    """Adds, with a count of 0, the characters of words and the symbols of codes, inside words and at their end."""
    characters = sorted(set(itertools.chain.from_iterable(words)))
    for character in characters:
        counts.update({character: 0, character + SEPARATOR: 0})
    for line in codes.rstrip("\n").split("\n"):
        if line.startswith("#version:"):
            continue
        symbol = line.replace(" ", "").rstrip("\r")
        ends = symbol.endswith("</w>")
        counts.update({symbol.removesuffix("</w>") if ends else symbol + SEPARATOR: 0})
