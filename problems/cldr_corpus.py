"""Composes the offline corpus of two CLDR locales and splits it.

A composition is the ordered tuple of a template and its atoms. SHA-3 digests alone decide which compositions are drawn,
in which order, and to which split each belongs. So the corpus is the same in every process and on every machine.
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from t2t_ext.errors import UserError
from t2t_ext.problems.cldr_atoms import Atom, Key, inventory
from t2t_ext.problems.cldr_locale import CldrLocale
from t2t_ext.problems.cldr_templates import TEMPLATES, Piece, Voice

MIN_PAIRS = 60_000  # fewer are not worth training on; only locales with little data in CLDR have fewer
_HELD_OUT = 11  # number of compositions per 1,000 that are drawn for dev; the same number is drawn for test
_ATTEMPTS = 8  # draws per wanted pair before a template counts as exhausted
# A phrase never has the same atom twice of these kinds.
_DIFFERENT = frozenset({"territory", "language", "script", "city", "currency", "unit", "weekday", "month", "percent"})


class Pair(NamedTuple):
    """A sentence, its translation, and the template and atoms of which both are composed.

    Attributes:
      source: The source sentence; no other pair of the corpus has it.
      target: The target sentence; no other pair of the corpus has it.
      template: The name of the template.
      atoms: The atoms in order.
    """

    source: str
    target: str
    template: str
    atoms: tuple[Atom, ...]


def digest(*parts: str | Key) -> bytes:
    """Returns 64 bytes that depend only on the parts."""
    return hashlib.shake_256("\x1f".join(map(str, parts)).encode()).digest(64)


def split_of(template: str, keys: Sequence[Key]) -> str:
    """Returns the split that a composition belongs to, in all locales."""
    place = int.from_bytes(digest("split", template, *keys)[:8]) % 1000
    return "test" if place < _HELD_OUT else "dev" if place < 2 * _HELD_OUT else "train"


def _draws(piece: Piece, keys: Mapping[str, Sequence[Key]], wanted: int) -> Iterator[tuple[Key, ...]]:
    """Yields distinct tuples of atoms for a template: all of them if there are few, otherwise a sample."""
    choices = [keys[kind] for kind in piece.kinds]
    if math.prod(map(len, choices)) <= 2 * wanted:
        yield from sorted(itertools.product(*choices), key=lambda drawn: digest("draw", piece.name, *drawn))
        return
    seen = set()
    for attempt in range(_ATTEMPTS * wanted):
        numbers = digest("draw", piece.name, attempt)
        drawn = tuple(
            choice[int.from_bytes(numbers[4 * place : 4 * place + 4]) * len(choice) >> 32]
            for place, choice in enumerate(choices)
        )
        if drawn not in seen:
            seen.add(drawn)
            yield drawn


def _compose(source: CldrLocale, target: CldrLocale) -> Iterator[Pair]:
    """Yields pairs whose source and target both differ from those of all earlier pairs."""
    keys = inventory(source, target)
    voices = Voice(source), Voice(target)
    sources: set[str] = set()
    targets: set[str] = set()
    for piece, wanted in TEMPLATES:
        made = 0
        for drawn in _draws(piece, keys, wanted):
            if made == wanted:
                break
            named = [atom for atom in zip(piece.kinds, drawn, strict=True) if atom[0] in _DIFFERENT]
            if len(set(named)) < len(named):
                continue
            said, meant = (piece.text(voice, drawn) for voice in voices)
            if said is None or meant is None or said in sources or meant in targets:
                continue
            sources.add(said)
            targets.add(meant)
            made += 1
            yield Pair(said, meant, piece.name, tuple(zip(piece.kinds, drawn, strict=True)))


@functools.lru_cache(maxsize=1)
def corpus(source: str, target: str) -> Mapping[str, Sequence[Pair]]:
    """Returns the corpus of two locales.

    Dev and test contain only pairs whose template and atoms all occur in train; the few others are left out.

    Args:
      source: CLDR's identifier of the source locale.
      target: CLDR's identifier of the target locale.

    Returns:
      ``train``, ``dev`` and ``test`` -> pairs, all templates mixed.

    Raises:
      UserError: There is no such locale, or CLDR has too few texts for one.
    """
    splits: dict[str, list[Pair]] = {"train": [], "dev": [], "test": []}
    for pair in _compose(CldrLocale.of(source), CldrLocale.of(target)):
        splits[split_of(pair.template, [key for _, key in pair.atoms])].append(pair)
    trained = {part for pair in splits["train"] for part in (pair.template, *pair.atoms)}
    for split in ("dev", "test"):
        splits[split] = [pair for pair in splits[split] if trained.issuperset((pair.template, *pair.atoms))]
    size = sum(map(len, splits.values()))
    if size < MIN_PAIRS:
        raise UserError(
            f"CLDR names too little in both {source!r} and {target!r}: {size:,} pairs, where {MIN_PAIRS:,} are the "
            f"least that is worth training on. Choose locales that CLDR covers well, such as 'de', 'ja' or 'sw'."
        )
    for pairs in splits.values():
        pairs.sort(key=lambda pair: digest("order", pair.template, *(key for _, key in pair.atoms)))
    return splits
