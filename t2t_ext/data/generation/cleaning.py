"""Drops training pairs with named filters, applied in a fixed order; drops are counted by reason.

The reasons in order, with the settings of ``Cleaning`` that turn the filters on, and when a filter drops a pair:

  empty           always                      a side is empty or whitespace
  encoding        encoding                    see ``text_checks.has_encoding_trouble``
  too_few_words   min_words                   a side has fewer words
  too_many_words  max_words                   a side has more words
  word_ratio      max_word_ratio              the longer side has more than this many times the words of the shorter
  identical       identical                   both sides are the same text
  script          script                      too few letters of a side are in the script of its language
  language        language                    a side reads more like the other side's language
  numbers         numbers                     the sides do not have the same numbers
  test_overlap    test_overlap                the text occurs in a dev or test set
  too_long        max_subwords                a side has more subwords (also ``--max_tokens``)
  length_ratio    (``--max_length_ratio``)    the same for the ratio of subwords
  duplicate       duplicates                  occurred before; the first occurrence that no other filter drops is kept

A pair is counted once, for the first reason that applies. Words and subwords are those of the prepared text (after the
problem's text steps); words are separated by whitespace. ``empty`` checks the original and the prepared text, all other
filters the original text. Dev and test sets are never cleaned.

Most published preparations call Moses's ``clean-corpus-n.perl`` with 1 to 175 words and a ratio of 1.5; this
corresponds to ``min_words=1,max_words=175,max_word_ratio=1.5``.
"""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from t2t_ext.config.strict_params import StrictParams, hparam, parse_assignments
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.generation import text_checks
from t2t_ext.errors import UserError

EMPTY, ENCODING = "empty", "encoding"
TOO_FEW_WORDS, TOO_MANY_WORDS, WORD_RATIO = "too_few_words", "too_many_words", "word_ratio"
IDENTICAL, SCRIPT, LANGUAGE, NUMBERS = "identical", "script", "language", "numbers"
TEST_OVERLAP, TOO_LONG, LENGTH_RATIO, DUPLICATE = "test_overlap", "too_long", "length_ratio", "duplicate"
# In the order in which they are applied.
REASONS = (
    EMPTY, ENCODING, TOO_FEW_WORDS, TOO_MANY_WORDS, WORD_RATIO, IDENTICAL, SCRIPT, LANGUAGE, NUMBERS, TEST_OVERLAP,
    TOO_LONG, LENGTH_RATIO, DUPLICATE,
)  # fmt: skip

# Settings of filters that compare the two sides, or pairs with each other.
OF_BOTH_SIDES = ("max_word_ratio", "identical", "language", "numbers", "test_overlap", "duplicates")

NO, PAIR, SOURCE, TARGET, EITHER = "no", "pair", "source", "target", "either"
_KINDS = (NO, PAIR, SOURCE, TARGET, EITHER)
# Meaning of "false" and "true" for settings that have more than two values.
_MEANINGS: Mapping[str, Any] = {"duplicates": (NO, PAIR), "test_overlap": (NO, EITHER), "script": (0.0, 0.5)}
KEY_BYTES = 16
_EXAMPLE_CHARACTERS = 60
_PAIRS_AT_ONCE = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cleaning(StrictParams):
    """The settings of the filters; by default all filters are off."""

    encoding: bool = hparam(
        False, "Drop pairs with control characters, U+FFFD, private-use characters or UTF-8 that was read as Latin-1."
    )
    min_words: int = hparam(
        0, "Drop pairs with fewer words than this on either side (0 = drop none).", minimum=0, maximum=1_000_000
    )
    max_words: int = hparam(0, "Drop pairs with more words than this on either side (0 = drop none).", minimum=0)
    max_word_ratio: float = hparam(
        0.0,
        "Drop pairs whose longer side has more than this many times the words of the shorter (0 = drop none).",
        minimum=0,
        maximum=1e6,
    )
    identical: bool = hparam(False, "Drop pairs whose sides are the same text.")
    script: float = hparam(
        0.0,
        "Drop pairs if on either side less than this share of the letters is in the script of the side's language "
        "(CLDR's likely script; true = 0.5, 0 = drop none).",
        minimum=0,
        maximum=1,
    )
    language: bool = hparam(
        False, "Drop pairs with a side that looks more like the other side's language (py3langid, t2t_ext[language])."
    )
    numbers: bool = hparam(False, "Drop pairs whose sides do not contain the same numbers, written in digits.")
    test_overlap: str = hparam(
        NO,
        "Drop training pairs whose source, target, either (= true) or both (pair) occur in a development or test set, "
        "ignoring case, punctuation and whitespace.",
        choices=_KINDS,
    )
    max_subwords: int = hparam(0, "Drop pairs with more subwords than this on either side (0 = drop none).", minimum=0)
    duplicates: str = hparam(
        NO,
        "Drop all but the first of the pairs that share the text of both sides (pair = true), of the source, of the "
        "target, or of either side.",
        choices=_KINDS,
    )

    def turned(self) -> Self:
        """Returns a copy with source and target exchanged."""
        other = {SOURCE: TARGET, TARGET: SOURCE}
        sides = {name: getattr(self, name) for name in ("test_overlap", "duplicates")}
        return self.replace(**{name: other.get(kind, kind) for name, kind in sides.items()})

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str = "cleaning") -> Self:
        """Returns the cleaning that a problem declares, such as ``{"max_words": 175, "duplicates": True}``.

        Raises:
          UserError: A name is unknown or a value is not allowed; ``where`` begins the message.
        """
        values = {name: _with_meaning(name, value) for name, value in settings.items()}
        try:
            return cls().replace(**values)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None

    @classmethod
    def parse(cls, text: str, default: Mapping[str, Any]) -> Self:
        """Returns the cleaning that ``--cleaning=text`` asks for.

        Args:
          text: ``"max_words=175,duplicates=true"`` changes and extends the default; ``none`` turns all filters off, and
            ``"none,max_words=175"`` all but those that follow.
          default: The problem's own settings.

        Raises:
          UserError: A name is unknown or a value is not allowed.
        """
        first, _, rest = text.partition(",")
        if first.strip().lower() == "none":
            default, text = {}, rest
        assigned = parse_assignments(text, "--cleaning")
        booleans = {"true": True, "false": False}
        written = {name: _with_meaning(name, booleans.get(raw.lower(), raw)) for name, raw in assigned.items()}
        changes = ",".join(f"{name}={value}" for name, value in written.items())
        return cls.from_settings(default).override(changes, flag="--cleaning")

    def given(self) -> dict[str, Any]:
        """Returns the settings that are not off, ready for JSON."""
        nothing = type(self)()
        return {name: value for name, value in self.to_dict().items() if getattr(nothing, name, value) != value}


class Column(NamedTuple):
    """One side of several pairs.

    Attributes:
      texts: The original texts.
      prepared: The texts after the text steps.
      language: The tag of their language, or empty.
    """

    texts: Sequence[str]
    prepared: Sequence[str]
    language: str = ""


def unfit_pairs(
    cleaning: Cleaning, columns: Sequence[Column], evaluation_keys: Mapping[str, frozenset[bytes]] | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the reasons that depend only on a single pair, in their order, and the pairs to which they apply.

    Args:
      cleaning: The filters.
      columns: Source and target (or any number of texts that belong together).
      evaluation_keys: The keys of the dev and test sets (``overlap_keys``) for ``test_overlap``, by kind.

    Yields:
      Reason and bool [pairs]. Several reasons may apply to a pair.
    """
    rows = len(columns[0].texts)
    sides = columns[:2]

    def any_side(test: Callable[[Column], np.ndarray]) -> np.ndarray:
        return np.logical_or.reduce([test(column) for column in columns])

    # Text steps may leave nothing of a text, for example if it has only control characters.
    yield EMPTY, any_side(lambda column: _blank(column.texts, rows) | _blank(column.prepared, rows))
    if cleaning.encoding:
        yield ENCODING, any_side(lambda column: text_checks.has_encoding_trouble(column.texts))
    if cleaning.min_words or cleaning.max_words or cleaning.max_word_ratio:
        words = np.stack([word_counts(column.prepared) for column in columns])
        if cleaning.min_words:
            yield TOO_FEW_WORDS, words.min(0) < cleaning.min_words
        if cleaning.max_words:
            yield TOO_MANY_WORDS, words.max(0) > cleaning.max_words
        if cleaning.max_word_ratio:
            yield WORD_RATIO, words.max(0) > cleaning.max_word_ratio * words.min(0)
    if cleaning.identical and len(sides) == 2:
        pairs = zip(sides[0].texts, sides[1].texts, strict=True)
        yield IDENTICAL, _mask((one.strip() == other.strip() for one, other in pairs), rows)
    if cleaning.script:
        yield SCRIPT, any_side(lambda c: text_checks.script_share(c.texts, c.language) < cleaning.script)
    if cleaning.language and len(sides) == 2:
        yield LANGUAGE, text_checks.reads_like_the_other(*((side.texts, side.language) for side in sides))
    if cleaning.numbers and len(sides) == 2:
        pairs = zip(*(side.texts for side in sides), strict=True)
        yield NUMBERS, _mask((not text_checks.same_numbers(*pair) for pair in pairs), rows)
    if cleaning.test_overlap != NO and evaluation_keys:
        keys = overlap_keys(cleaning.test_overlap, columns)
        stands = [_mask((key in evaluation_keys[kind] for key in found), rows) for kind, found in keys.items()]
        yield TEST_OVERLAP, np.logical_or.reduce(stands)


def word_counts(texts: Sequence[str]) -> np.ndarray:
    """Returns the number of words, separated by whitespace, of every text: int32 [texts]."""
    return np.fromiter((len(text.split()) for text in texts), np.int32, len(texts))


def kinds_of_keys(kind: str) -> tuple[str, ...]:
    """Returns which of the keys ``pair``, ``source`` and ``target`` a setting compares."""
    return {NO: (), EITHER: (SOURCE, TARGET)}.get(kind, (kind,))


def duplicate_keys(kind: str, columns: Sequence[Column]) -> dict[str, list[bytes]]:
    """Returns, by kind of key, 16-byte BLAKE2b hashes of every pair (or of one side), which identify repetitions."""
    return _keys(kind, [column.texts for column in columns])


def overlap_keys(kind: str, columns: Sequence[Column]) -> dict[str, list[bytes]]:
    """Returns keys like ``duplicate_keys``, but ignores letter case, punctuation and whitespace."""
    return _keys(kind, [[text_checks.normalized(text) for text in column.texts] for column in columns])


def _keys(kind: str, texts: Sequence[Sequence[str]]) -> dict[str, list[bytes]]:
    chosen = {SOURCE: texts[:1], TARGET: texts[1:2] or texts[:1], PAIR: texts}
    return {
        name: [
            hashlib.blake2b("\0".join(row).encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
            for row in zip(*chosen[name], strict=True)
        ]
        for name in kinds_of_keys(kind)
    }


def clean_pairs(
    pairs: Iterable[Sequence[str]],
    cleaning: Cleaning,
    *,
    languages: Sequence[str] = ("", ""),
    prepare: Callable[[Sequence[str], Sequence[str]], Sequence[Sequence[str]]] | None = None,
    report: ReadReport | None = None,
) -> Iterator[Sequence[str]]:
    """Yields the pairs that the filters keep, for a problem that cleans its text before splitting it.

    If duplicates are dropped, the keys of earlier pairs (about 100 bytes a pair) are kept in memory. This is meant for
    corpora of at most some million pairs; data generation finds the duplicates of larger ones on disk. Only data
    generation applies limits in subwords and looks for overlap with test sets.

    Args:
      pairs: Source, target, and perhaps further items, which are passed on with them.
      cleaning: The filters.
      languages: Tags of source and target.
      prepare: Maps the texts of both sides to the texts whose words are counted; by default the texts themselves.
      report: Counts the drops and keeps the first example of each reason.
    """
    seen: dict[str, set[bytes]] = collections.defaultdict(set)
    number = 0
    pairs = iter(pairs)
    while batch := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
        texts = [[pair[side] for pair in batch] for side in range(2)]
        prepared = prepare(*texts) if prepare else texts
        columns = [Column(*column) for column in zip(texts, prepared, languages, strict=True)]
        reasons = list(unfit_pairs(cleaning, columns))
        keys = duplicate_keys(cleaning.duplicates, columns)
        for row, pair in enumerate(batch):
            reason = next((reason for reason, unfit in reasons if unfit[row]), "")
            if not reason:
                if any(found[row] in seen[kind] for kind, found in keys.items()):
                    reason = DUPLICATE
                for kind, found in keys.items():
                    seen[kind].add(found[row])
            if not reason:
                yield pair
            elif report:
                report.drops[reason] += 1
                report.first.setdefault(reason, example(number + row, pair))
        number += len(batch)


def example(index: int, texts: Sequence[str]) -> str:
    """Returns a dropped pair as users see it: its number from 1 and the beginnings of its texts."""
    return f"pair {index + 1:,}: {beginnings(texts)}"


def beginnings(texts: Sequence[str]) -> str:
    """Returns the beginnings of the texts of a pair, joined to one text."""
    shown = (" ".join(text.split()) for text in texts)
    shortened = (t if len(t) <= _EXAMPLE_CHARACTERS else f"{t[: _EXAMPLE_CHARACTERS - 3]}..." for t in shown)
    return " ||| ".join(shortened)


def _blank(texts: Sequence[str], rows: int) -> np.ndarray:
    return _mask((not text or text.isspace() for text in texts), rows)


def _mask(values: Iterable[bool], rows: int) -> np.ndarray:
    return np.fromiter(values, bool, rows)


def _with_meaning(name: str, value: Any) -> Any:
    """Returns a value, in which true and false are replaced if the setting has more than two values."""
    if isinstance(value, bool):
        off, on = _MEANINGS.get(name, (value, value))
        return on if value else off
    return value
