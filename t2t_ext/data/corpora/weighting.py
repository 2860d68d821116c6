"""Training text from several corpora: how often each one's pairs occur, and which tag their source begins with.

A corpus of weight 2 has every pair twice, one of weight 0.5 every other pair: a weight w means that a pair occurs
floor(w) times, and once more where a hash of its text falls below the fractional part. So the choice depends on the
pairs alone, not on their order, the number of processes or a seed, and a corpus that is read again gives the same.

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
    """(source, target, further references...) that occurs ``times`` times."""

    times: int = 1


class WeightedSample(dict):
    """A sample that occurs ``times`` times."""

    times: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSource:
    """Files that make one corpus, with its weight and tag; itself a ``PairSource``.

    Attributes:
      name: What the corpus is called in reports.
      files: Where its pairs are, read one after the other.
      weight: How often every pair occurs on average, at least 0.
      tag: What the source begins with, such as ``<2de>``; empty for nothing.
    """

    name: str
    files: Sequence[PairSource]
    weight: float = 1.0
    tag: str = ""

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All the files."""
        return tuple(path for files in self.files for path in files.paths)

    def count(self) -> int:
        """Returns the number of pairs of the files, not counting the weight; see ``PairSource.count``."""
        return sum(files.count() for files in self.files)

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields every pair that occurs at all once, tagged; a ``WeightedPair`` where it occurs more than once.

        The report takes the pairs and occurrences of this corpus; numbers of pairs go through all the files. See
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
            before += files.count() if wanted is not None else 0


class ReversedPairs(ChangedPairs):
    """Pairs of which source and target change places. Of several references the first remains."""

    def change(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Returns (target, source)."""
        return pair[1], pair[0]


def occurrences(weight: float, texts: Sequence[str]) -> int:
    """Returns how often a pair occurs in a corpus of a weight (at least 0), whichever side comes first in ``texts``."""
    whole = math.floor(weight)
    fraction = weight - whole
    if not fraction:
        return whole
    text = "\n".join(sorted(texts[:2])).encode(errors="surrogatepass")
    digest = hashlib.blake2b(text, digest_size=_HASH_BYTES).digest()
    return whole + (int.from_bytes(digest) < fraction * 2 ** (8 * _HASH_BYTES))


def as_sample(row: tuple[str, ...], multiple_references: bool) -> dict[str, Any]:
    """Returns the sample of a pair: ``inputs`` and ``targets``.

    Args:
      row: (source, target, further references...).
      multiple_references: Whether ``targets`` is the list of all references.
    """
    source, *targets = row
    sample = {"inputs": source, "targets": targets if multiple_references else targets[0]}
    if not isinstance(row, WeightedPair):
        return sample
    weighted = WeightedSample(sample)
    weighted.times = row.times
    return weighted


def checked_tag(tag: str, where: str) -> str:
    """Returns a tag.

    Raises:
      UserError: It is not of that form, or means something else in a vocabulary.
    """
    if tag and not _TAG.fullmatch(tag):
        raise UserError(f"{where}: the tag {tag!r} must be one word in angle brackets, such as <2de> or <paracrawl>.")
    if tag in _RESERVED or _BYTE.fullmatch(tag):
        raise UserError(f"{where}: {tag} has a meaning of its own in vocabularies. Choose another tag, such as <2de>.")
    return tag


def checked_weight(text: str | float, where: str) -> float:
    """Returns a weight.

    Raises:
      UserError: It is not a number from 0 to 1,000.
    """
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight <= _MOST_OCCURRENCES:
        raise UserError(f"{where}: the weight {text!r} must be a number from 0 to {_MOST_OCCURRENCES:,}.")
    return weight


def listed(text: str, count: int, flag: str) -> list[str]:
    """Returns the values of a comma-separated list, one for each corpus; none where the text is empty.

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
    """Returns the values of ``"paracrawl:0.5,yandex:2"`` by corpus.

    Args:
      text: Corpora and values; a value alone is that of all corpora.
      names: The corpora that there are.
      option: The option's name, for messages.

    Raises:
      UserError: There is no such corpus (close names are suggested), or one is named twice or has no value.
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
    """Returns lines that are to be translated with the tag in front that the model expects there.

    Args:
      lines: The lines; empty ones stay so.
      tags: The tags that the model knows.
      tag: What every line begins with, in place of a tag that it has; empty to leave those alone.
      default_tag: What lines without a tag begin with, where no ``tag`` is given.

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
