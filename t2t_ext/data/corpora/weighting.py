"""Combines training text from several corpora with weights and source tags.

With weight 2, each pair of a corpus occurs twice; with weight 0.5, about half of the pairs occur. For weight w, a pair
occurs floor(w) times, and once more if a hash of its text falls below the fractional part of w. The selection therefore
depends only on the pairs, not on their order, the number of processes or a seed. Reading a corpus again gives the same
result.

A tag is a word such as ``<2de>`` or ``<paracrawl>`` in front of the source, as in Johnson et al. 2017 (target
language), https://aclanthology.org/Q17-1024, and Caswell et al. 2019 (back-translations),
https://aclanthology.org/W19-5206.
"""

import dataclasses
import hashlib
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_ext.data.corpora.readers import ChangedPairs, PairSource, ReadReport
from t2t_ext.data.text.document_steps import CLOSE, OPEN
from t2t_ext.data.text.special_ids import SPECIAL_PIECES
from t2t_ext.errors import UserError, suggest

PAIRS, OCCURRENCES = "pairs", "occurrences"
_TAG = re.compile(r"<[^\s<>]+>")
_RESERVED = {*SPECIAL_PIECES, "<s>", OPEN, CLOSE}
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_HASH_BYTES = 8
_MOST_OCCURRENCES = 1000


class WeightedPair(tuple):
    """A pair (source, target, further references...) that occurs ``times`` times."""

    times: int = 1


class WeightedSample(dict):
    """A sample that occurs ``times`` times."""

    times: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSource:
    """The files of one corpus with its weight and tag, as a ``PairSource``.

    Attributes:
      name: The name of the corpus in reports.
      files: The sources of its pairs, which are read one after the other.
      weight: How often a pair occurs on average, at least 0.
      tag: The tag at the beginning of each source, such as ``<2de>``; empty for no tag.
    """

    name: str
    files: Sequence[PairSource]
    weight: float = 1.0
    tag: str = ""

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All files that are read."""
        return tuple(path for files in self.files for path in files.paths)

    def count(self) -> int:
        """Returns the number of pairs in the files, regardless of the weight; see ``PairSource.count``."""
        return sum(files.count() for files in self.files)

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields each tagged pair once, as a ``WeightedPair`` if it occurs repeatedly; skips pairs that do not occur.

        The report counts the pairs and occurrences of this corpus. Pairs are numbered consecutively over all files. See
        ``PairSource.read``.
        """
        described = {"weight": self.weight, "tag": self.tag, PAIRS: 0, OCCURRENCES: 0}
        counted = report.corpora.setdefault(self.name, described)
        prefix = f"{self.tag} " if self.tag else ""
        before = 0
        for files in self.files:
            chosen = None if wanted is None else (lambda number, before=before: wanted(before + number))
            for row in files.read(report, chosen):
                times = occurrences(self.weight, row)
                counted[PAIRS] += 1
                counted[OCCURRENCES] += times
                pair = (prefix + row[0], *row[1:])
                if times > 1:
                    weighted = WeightedPair(pair)
                    weighted.times = times
                    yield weighted
                elif times:
                    yield pair
                else:
                    report.at = None  # not the place of the next corpus's first pair, which may have none
            before += files.count() if wanted is not None else 0


class ReversedPairs(ChangedPairs):
    """A ``PairSource`` that swaps source and target, keeping only the first of several references."""

    def change(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the pair (target, source)."""
        return pair[1], pair[0]


def occurrences(weight: float, texts: Sequence[str]) -> int:
    """Returns how often a pair occurs in a corpus with this weight (at least 0), whichever side comes first."""
    whole = math.floor(weight)
    fraction = weight - whole
    if not fraction:
        return whole
    text = "\n".join(sorted(texts[:2])).encode(errors="surrogatepass")
    digest = hashlib.blake2b(text, digest_size=_HASH_BYTES).digest()
    return whole + (int.from_bytes(digest) < fraction * 2 ** (8 * _HASH_BYTES))


def as_sample(row: tuple[str, ...], multiple_references: bool) -> dict[str, Any]:
    """Returns a pair as a sample with the keys ``inputs`` and ``targets``.

    Args:
      row: The pair (source, target, further references...).
      multiple_references: Whether ``targets`` is the list of all references instead of the first reference.
    """
    source, *targets = row
    sample = {"inputs": source, "targets": targets if multiple_references else targets[0]}
    if not isinstance(row, WeightedPair):
        return sample
    weighted = WeightedSample(sample)
    weighted.times = row.times
    return weighted


def checked_tag(tag: str, where: str) -> str:
    """Returns a tag after checking its form; it may be empty.

    Raises:
      UserError: The tag is not one word in angle brackets, or it has another meaning in vocabularies.
    """
    if tag and not _TAG.fullmatch(tag):
        raise UserError(f"{where}: the tag {tag!r} must be one word in angle brackets, such as <2de> or <paracrawl>.")
    if tag in _RESERVED or _BYTE.fullmatch(tag):
        raise UserError(f"{where}: {tag} has a meaning of its own in vocabularies. Choose another tag, such as <2de>.")
    return tag


def checked_weight(text: str | float, where: str) -> float:
    """Returns a weight as a number.

    Raises:
      UserError: The weight is not a number from 0 to 1,000.
    """
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight <= _MOST_OCCURRENCES:
        raise UserError(f"{where}: the weight {text!r} must be a number from 0 to {_MOST_OCCURRENCES:,}.")
    return weight


def listed(text: str, count: int, flag: str) -> list[str]:
    """Returns the values of a comma-separated list, one for each corpus; an empty list if the text is empty.

    Raises:
      UserError: There are more or fewer values than corpora.
    """
    values = [value.strip() for value in text.split(",")] if text else []
    if values and len(values) != count:
        raise UserError(
            f"{flag}={text} has {len(values)} value(s), but there are {count} training corpora; give one for each, in "
            f"the order of their files."
        )
    return values


def named(text: str, names: Iterable[str], option: str) -> Mapping[str, str]:
    """Returns the values in a text such as ``"paracrawl:0.5,yandex:2"`` by corpus name.

    Args:
      text: Corpora and their values, or a single value for all corpora.
      names: The names of the existing corpora.
      option: The name of the option, for messages.

    Raises:
      UserError: A corpus does not exist (the message suggests close names), is named twice or has no value.
    """
    names = list(names)
    if text and ":" not in text and "," not in text:
        return dict.fromkeys(names, text)
    values: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if name not in names:
            raise UserError(
                f"{option}={text}: there is no corpus {name!r}.{suggest(name, names)} "
                f"The corpora are: {', '.join(names)}."
            )
        if not colon or not value:
            raise UserError(f"{option}={text}: say NAME:VALUE for {name}.")
        if name in values:
            raise UserError(f"{option}={text}: {name} is named twice.")
        values[name] = value
    return values


def tagged(lines: Sequence[str], tags: Sequence[str], *, tag: str = "", default_tag: str = "") -> list[str]:
    """Returns lines for translation, each with the tag that the model expects in front of it.

    Args:
      lines: The lines; blank ones get no tag.
      tags: The tags that the model knows.
      tag: The tag for all lines, which replaces the tag of a line; if empty, tags of lines stay as they are.
      default_tag: The tag for lines without a tag if no ``tag`` is given.

    Raises:
      UserError: The model does not know ``tag``.
    """
    if tag and tag not in tags:
        raise UserError(
            f"--source_tag={tag}: the model was trained without this tag.{suggest(tag, tags)} "
            f"Its tags are: {', '.join(tags) or 'none'}."
        )
    result = []
    for line in lines:
        first, _, rest = line.partition(" ")
        found, text = (first, rest) if first in tags else ("", line)
        chosen = tag or found or default_tag
        result.append(f"{chosen} {text}" if chosen and text.strip() else line)
    return result
