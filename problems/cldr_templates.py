"""The templates of the offline corpus: how atoms become phrases.

A template is a tree of pieces. A leaf turns a few atoms into text (three numbers into a date). A combination joins the
texts of its parts with glue that CLDR has for every locale: lists, brackets, dashes, date with time. Hence no template
needs the grammar of any language.
"""

import dataclasses
import datetime
import functools
from collections.abc import Callable, Sequence
from typing import Protocol

from t2t_ext.problems.cldr_atoms import Key
from t2t_ext.problems.cldr_locale import CldrLocale


class Piece(Protocol):
    """A part of a template, or a whole one."""

    @property
    def name(self) -> str:
        """Its composition in words; pieces with equal names are equal."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of the atoms that it needs, in order."""

    def text(self, voice: "Voice", keys: Sequence[Key]) -> str | None:
        """Returns the locale's text for atoms with these keys; None if the locale has none."""
        ...


class Voice:
    """A locale with a cache of its leaves' texts.

    Attributes:
      locale: The locale.
    """

    def __init__(self, locale: CldrLocale) -> None:
        self.locale = locale
        self._said: dict[tuple[str, Sequence[Key]], str | None] = {}

    def say(self, leaf: "Leaf", keys: Sequence[Key]) -> str | None:
        """Returns the text of a leaf, which is formatted only once; None if the locale has none."""
        memory = leaf.name, tuple(keys)
        if memory not in self._said:
            try:
                self._said[memory] = leaf.format(self.locale, *keys) or None
            except (LookupError, NotImplementedError, ValueError):
                # The locale lacks the pattern, Babel cannot fill it (Chinese parts of the day), or the day is invalid.
                self._said[memory] = None
        return self._said[memory]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Text made of atoms.

    Attributes:
      name: Its name.
      kinds: The kinds of its atoms.
      format: (locale, *keys) -> text or None.
    """

    name: str
    kinds: Sequence[str]
    format: Callable[..., str | None]

    def text(self, voice: Voice, keys: Sequence[Key]) -> str | None:
        """Returns the leaf's text; None if the locale has none."""
        return voice.say(self, keys)


class Combination:
    """Pieces joined by glue.

    Attributes:
      name: The glue's name and those of the parts.
      kinds: The kinds of all parts' atoms, in order.
    """

    def __init__(self, glue: str, join: Callable[[CldrLocale, Sequence[str]], str], *parts: Piece) -> None:
        self.name = f"{glue}({', '.join(part.name for part in parts)})"
        self.kinds = tuple(kind for part in parts for kind in part.kinds)
        self._parts = parts
        self._join = join

    def text(self, voice: Voice, keys: Sequence[Key]) -> str | None:
        """Returns the joined texts of the parts; None if one of them has none."""
        texts = []
        start = 0
        for part in self._parts:
            end = start + len(part.kinds)
            text = part.text(voice, keys[start:end])
            if text is None:
                return None
            texts.append(text)
            start = end
        return self._join(voice.locale, texts)


# A list with "and", and one with "or".
every = functools.partial(Combination, "and", lambda locale, texts: locale.listing("standard", texts))
either = functools.partial(Combination, "or", lambda locale, texts: locale.listing("or", texts))
# A text, and in brackets after it its specification.
within = functools.partial(Combination, "in", lambda locale, texts: locale.bracketed(texts[0], texts[1:]))
# A heading, a colon and the text after it; two ends joined by a dash; a date with a time of day.
head = functools.partial(Combination, "head", lambda locale, texts: locale.headed(*texts))
span = functools.partial(Combination, "span", lambda locale, texts: locale.spanned(*texts))
at = functools.partial(Combination, "at", lambda locale, texts: locale.at(*texts))


def _named(kind: str) -> Leaf:
    return Leaf(kind, (kind,), lambda locale, key: locale.name(kind, key))


def _interval(name: str, skeleton: str, kinds: Sequence[str], moments: Callable[..., tuple]) -> Leaf:
    def text(locale: CldrLocale, *keys: int) -> str | None:
        start, end = moments(*keys)
        return locale.interval(skeleton, datetime.datetime(*start), datetime.datetime(*end))

    return Leaf(name, kinds, text)


TERRITORY, LANGUAGE, SCRIPT, CURRENCY = map(_named, ("territory", "language", "script", "currency"))
CITY, ZONE, WEEKDAY, MONTH = map(_named, ("city", "zone", "weekday", "month"))

_DATE = ("day", "month_number", "year")
FULL_DATE = Leaf("full_date", _DATE, lambda locale, *keys: locale.date("full", *keys))
LONG_DATE = Leaf("long_date", _DATE, lambda locale, *keys: locale.date("long", *keys))
SHORT_DATE = Leaf("short_date", _DATE, lambda locale, *keys: locale.date("yMd", *keys))
DAY_OF_MONTH = Leaf("day_of_month", _DATE[:2], lambda locale, *keys: locale.part_of_date("MMMMd", *keys, 2000))
MONTH_OF_YEAR = Leaf("month_of_year", _DATE[1:], lambda locale, *keys: locale.part_of_date("yMMMM", 1, *keys))
QUARTER = Leaf("quarter", ("quarter", "year"), lambda locale, key, year: locale.part_of_date("yQQQQ", 1, 3 * key, year))
TIME = Leaf("time", ("hour", "minute"), CldrLocale.time)
EXACT_TIME = Leaf("exact_time", ("hour", "minute_second", "minute_second"), CldrLocale.time)
DAYS = _interval("days", "yMMMd", ("day", "day", *_DATE[1:]), lambda d1, d2, m, y: ((y, m, d1), (y, m, d2)))
DAYS_OF_MONTHS = _interval(
    "days_of_months",
    "yMMMd",
    ("day", "month_number", "day", "month_number", "year"),
    lambda d1, m1, d2, m2, y: ((y, m1, d1), (y, m2, d2)),
)
MONTHS = _interval(
    "months", "yMMMM", ("month_number", "month_number", "year"), lambda m1, m2, y: ((y, m1, 1), (y, m2, 1))
)
TIMES = _interval(
    "times",
    "time",
    ("hour", "minute", "hour", "minute"),
    lambda h1, m1, h2, m2: ((2000, 1, 1, h1, m1), (2000, 1, 1, h2, m2)),
)
RELATIVE = Leaf("relative", ("few", "period", "direction"), CldrLocale.relative)

PERCENT = Leaf("percent", ("percent",), CldrLocale.percent)
COMPACT = Leaf("compact", ("mantissa", "power"), CldrLocale.compact)
MEASURE = Leaf("measure", ("count", "unit"), CldrLocale.measure)
FINE_MEASURE = Leaf("fine_measure", ("decimal", "unit"), CldrLocale.measure)
MONEY = Leaf("money", ("amount", "currency"), CldrLocale.money)
MONEY_IN_WORDS = Leaf("money_in_words", ("amount", "currency"), lambda locale, *keys: locale.money(*keys, "name"))

LOCALE = within(LANGUAGE, TERRITORY)
WRITTEN_LOCALE = within(LANGUAGE, SCRIPT, TERRITORY)

# (template, number of pairs that are made from it; fewer if it does not have as many)
TEMPLATES: Sequence[tuple[Piece, int]] = (
    # Names, single and combined.
    *((name, 700) for name in (TERRITORY, LANGUAGE, CURRENCY, CITY, ZONE)),
    (LOCALE, 3000),
    (within(LANGUAGE, SCRIPT), 1000),
    (WRITTEN_LOCALE, 2500),
    (within(LANGUAGE, either(SCRIPT, SCRIPT)), 1500),
    (within(TERRITORY, CURRENCY), 1500),
    (within(CITY, TERRITORY), 1500),
    # Lists.
    (every(TERRITORY, TERRITORY), 2500),
    (every(TERRITORY, TERRITORY, TERRITORY), 3000),
    (every(TERRITORY, TERRITORY, TERRITORY, TERRITORY), 1500),
    (either(TERRITORY, TERRITORY), 1500),
    (every(LANGUAGE, LANGUAGE), 1500),
    (either(LANGUAGE, LANGUAGE, LANGUAGE), 2000),
    (every(CURRENCY, CURRENCY), 1000),
    (either(CURRENCY, CURRENCY, CURRENCY), 1000),
    (every(CITY, CITY, CITY), 2000),
    (either(CITY, CITY), 1000),
    (every(WEEKDAY, WEEKDAY, WEEKDAY), 200),
    (either(MONTH, MONTH, MONTH), 400),
    (every(LOCALE, LOCALE), 1000),
    # Dates and times.
    (FULL_DATE, 3000),
    (LONG_DATE, 2500),
    (SHORT_DATE, 1500),
    (DAY_OF_MONTH, 400),
    (MONTH_OF_YEAR, 700),
    (QUARTER, 250),
    (TIME, 300),
    (EXACT_TIME, 1000),
    (at(FULL_DATE, TIME), 2000),
    (at(LONG_DATE, TIME), 2000),
    (DAYS, 1500),
    (DAYS_OF_MONTHS, 1500),
    (MONTHS, 700),
    (TIMES, 1000),
    (RELATIVE, 450),
    (either(ZONE, ZONE), 800),
    (within(TIME, ZONE), 2000),
    (within(EXACT_TIME, CITY), 1000),
    # Quantities.
    (PERCENT, 150),
    (COMPACT, 600),
    (MEASURE, 2500),
    (FINE_MEASURE, 2000),
    (MONEY, 2500),
    (MONEY_IN_WORDS, 2500),
    (every(MEASURE, MEASURE), 2000),
    (either(FINE_MEASURE, FINE_MEASURE), 1000),
    (every(MONEY_IN_WORDS, MONEY_IN_WORDS), 1000),
    (either(MONEY, MONEY), 1000),
    # Longer phrases.
    (head(TERRITORY, MEASURE), 1500),
    (head(TERRITORY, MONEY_IN_WORDS), 1500),
    (head(TERRITORY, every(LANGUAGE, LANGUAGE)), 2000),
    (head(TERRITORY, every(CITY, CITY, CITY)), 1000),
    (head(CITY, at(FULL_DATE, TIME)), 1500),
    (head(CITY, TIMES), 1000),
    (head(LONG_DATE, every(TERRITORY, TERRITORY)), 1500),
    (head(FULL_DATE, every(CITY, CITY)), 1000),
    (head(DAYS, every(CITY, CITY)), 1000),
    (head(QUARTER, MONEY), 800),
    (head(MONTH_OF_YEAR, MEASURE), 1000),
    (head(MONTH_OF_YEAR, every(PERCENT, PERCENT)), 600),
    (head(span(CITY, CITY), FINE_MEASURE), 1000),
    (head(span(CITY, CITY), at(LONG_DATE, TIME)), 1000),
    (head(span(TERRITORY, TERRITORY), MONEY), 800),
    (head(LANGUAGE, every(TERRITORY, TERRITORY, TERRITORY)), 1500),
    (head(within(CITY, TERRITORY), every(WEEKDAY, WEEKDAY)), 800),
    (head(within(TERRITORY, CURRENCY), COMPACT), 1000),
    (every(within(TERRITORY, PERCENT), within(TERRITORY, PERCENT)), 1500),
    (every(within(TERRITORY, COMPACT), within(TERRITORY, COMPACT), within(TERRITORY, COMPACT)), 1000),
    (either(within(TERRITORY, MONEY_IN_WORDS), within(TERRITORY, MONEY_IN_WORDS)), 1000),
    (every(within(CITY, LONG_DATE), within(CITY, LONG_DATE)), 1000),
    (within(TERRITORY, RELATIVE), 1000),
    (within(MEASURE, RELATIVE), 800),
    (within(MONEY_IN_WORDS, LONG_DATE), 800),
    (within(DAYS_OF_MONTHS, TERRITORY), 800),
    (head(RELATIVE, every(MEASURE, MEASURE)), 600),
    (within(at(LONG_DATE, TIME), ZONE), 1500),
)
