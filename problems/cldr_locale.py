"""The texts of one locale, all from CLDR through Babel: names, numbers, dates and the glue between them.

No-break, narrow and thin spaces become plain ones, as people type them, and soft hyphens are removed. ASCII digits
become the locale's own if its default numbering system has others. A method returns None if the locale has no text for
the thing in question.
"""

import datetime
import decimal
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import babel
from babel import dates, lists, localedata, numbers
from babel.core import get_global

from t2t_ext.errors import UserError, suggest

Period = Literal["year", "month", "week", "day", "hour", "minute", "second"]
# Code point of the digit zero in CLDR's default systems, for which Babel substitutes the symbols but not the digits.
_ZEROS = {
    "adlm": 0x1E950,
    "arab": 0x660,
    "arabext": 0x6F0,
    "beng": 0x9E6,
    "cakm": 0x11136,
    "deva": 0x966,
    "hmnp": 0x1E140,
    "mtei": 0xABF0,
    "mymr": 0x1040,
    "nkoo": 0x7C0,
    "olck": 0x1C50,
    "tibt": 0xF20,
}
# The text between a heading and the text that it announces; Babel has no such pattern.
_COLONS = {"am": "፦ ", "fr": " : ", "hy": "՝ ", "ja": "：", "km": "៖ ", "yue": "：", "zh": "："}
_NO_VALUE = "∅∅∅"  # CLDR's mark for a name that a locale deliberately does not have
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}


class CldrLocale:
    """The texts of one locale.

    Attributes:
      identifier: CLDR's identifier, such as ``de`` or ``zh_Hant_HK``.
      language: Its language, such as ``zh``.
    """

    def __init__(self, identifier: str) -> None:
        """Loads a locale; use ``of`` instead, which caches it.

        Raises:
          UserError: CLDR has no such locale.
        """
        self._locale = parse_locale(identifier)
        # Babel's cache mixes the names of locales that it resolves: German months came out in Chinese.
        localedata._cache.clear()
        self.identifier = str(self._locale)
        self.language = self._locale.language
        # The locale's short time format tells whether it has a 12-hour or 24-hour clock; quoted text is literal.
        short_time = re.sub("'[^']*'", "", str(self._locale.time_formats["short"]))
        self.clock = "hm" if re.search("[hK]", short_time) else "Hm"
        self._script = self._locale.script or get_global("likely_subtags").get(self.language, "")
        system = self._locale.default_numbering_system
        self._numbering = "default" if system in _ZEROS and system in self._locale.number_symbols else "latn"
        self._characters = dict.fromkeys(map(ord, "\u00a0\u2009\u202f"), " ") | {0xAD: ""}
        if self._numbering == "default":
            self._characters |= {ord("0") + digit: chr(_ZEROS[system] + digit) for digit in range(10)}

    @classmethod
    @functools.cache
    def of(cls, identifier: str) -> Self:
        """Returns the one instance of a locale."""
        return cls(identifier)

    def _typed(self, text: str) -> str:
        return text.translate(self._characters)

    # Names.

    @functools.cached_property
    def _names(self) -> dict[str, Mapping]:
        """The locale's own dictionaries: kind -> key -> name."""
        locale = self._locale
        zones = {
            f"{zone}/{variant}": name
            for zone, named in locale.meta_zones.items()
            for variant, name in named.get("long", {}).items()
        }
        return {
            "territory": locale.territories,
            "language": locale.languages,
            "script": locale.scripts,
            "currency": locale.currencies,
            "city": {zone: named["city"] for zone, named in locale.time_zones.items() if "city" in named},
            "zone": zones,
            "weekday": locale.days["stand-alone"]["wide"],
            "month": locale.months["stand-alone"]["wide"],
        }

    def names(self, kind: str) -> Mapping:
        """Returns the locale's names of a kind: key -> name, as CLDR has them."""
        return self._names[kind]

    def name(self, kind: str, key: str | int) -> str | None:
        """Returns the name of a territory, language, script, currency, city, time zone, weekday or month."""
        name = self._names[kind].get(key)
        if name is None and kind == "city" and "Latn" in self._script:
            # CLDR: if a locale gives no exemplar city, it is the end of the time zone's identifier.
            name = str(key).rpartition("/")[2].replace("_", " ")
        if not name or _NO_VALUE in name or name.casefold() == str(key).casefold():
            return None
        return self._typed(name)

    # Numbers, amounts and measures.

    def percent(self, number: str) -> str:
        """Returns a percentage; ``number`` is in percent."""
        share = decimal.Decimal(number) / 100
        return self._typed(
            numbers.format_percent(
                share, locale=self._locale, decimal_quantization=False, numbering_system=self._numbering
            )
        )

    def compact(self, mantissa: str, power: int) -> str:
        """Returns a large number in words, if the locale has such words ("12.5 million")."""
        # If a locale has no long form, CLDR inherits the short one.
        length: Literal["long", "short"] = "long" if self._locale.compact_decimal_formats.get("long") else "short"
        return self._typed(
            numbers.format_compact_decimal(
                decimal.Decimal(mantissa).scaleb(power),
                format_type=length,
                locale=self._locale,
                fraction_digits=1,
                numbering_system=self._numbering,
            )
        )

    def measure(self, number: str, unit: str) -> str | None:
        """Returns a number of units with the unit's name written out."""
        value = decimal.Decimal(number)
        # Babel gives no public access to patterns, and format_unit appends the unit's code if a pattern is missing.
        patterns = self._locale._data["unit_patterns"].get(unit, {})
        plural = self._locale.plural_form(value)
        for length in ("long", "short"):  # if a locale has no long form, CLDR inherits the short one
            if plural in patterns.get(length, {}):
                shown = numbers.format_decimal(value, locale=self._locale, numbering_system=self._numbering)
                return self._typed(patterns[length][plural].format(shown))
        return None

    def money(self, amount: str, currency: str, form: Literal["name", "standard"] = "standard") -> str:
        """Returns an amount with the currency's symbol, or (``name``) with its name in the right plural form."""
        digits = numbers.get_currency_precision(currency)
        value = decimal.Decimal(amount).quantize(decimal.Decimal(1).scaleb(-digits))
        text = numbers.format_currency(
            value, currency, locale=self._locale, format_type=form, numbering_system=self._numbering
        )
        return self._typed(text)

    # Dates and times.

    def date(self, width: str, day: int, month: int, year: int) -> str:
        """Returns a date: in words (``full``, ``long``), or in numbers with all digits of the year (``yMd``)."""
        date = datetime.date(year, month, day)
        if width == "yMd":
            return self._typed(dates.format_skeleton(width, date, fuzzy=False, locale=self._locale))
        return self._typed(dates.format_date(date, width, locale=self._locale))

    def part_of_date(self, skeleton: str, day: int, month: int, year: int) -> str:
        """Returns the fields of a date that a skeleton selects; the locale must have exactly this skeleton."""
        moment = datetime.datetime(year, month, day)
        return self._typed(dates.format_skeleton(skeleton, moment, fuzzy=False, locale=self._locale))

    def time(self, hour: int, minute: int, second: int | None = None) -> str:
        """Returns a time of day to the minute or second."""
        width: Literal["short", "medium"] = "short" if second is None else "medium"
        return self._typed(dates.format_time(datetime.time(hour, minute, second or 0), width, locale=self._locale))

    def interval(self, skeleton: str, start: datetime.datetime, end: datetime.datetime) -> str | None:
        """Returns an interval; None if it is empty or the locale has no pattern for exactly this difference."""
        if skeleton == "time":
            skeleton = self.clock
        patterns = self._locale.interval_formats.get(skeleton)
        if start >= end or not patterns or not any(field in patterns for field in _largest_difference(start, end)):
            return None
        return self._typed(dates.format_interval(start, end, skeleton, fuzzy=False, locale=self._locale))

    def relative(self, number: int, period: Period, direction: int) -> str:
        """Returns a time before or after now ("in 3 days")."""
        seconds = datetime.timedelta(seconds=direction * number * _SECONDS[period])
        return self._typed(
            dates.format_timedelta(
                seconds, granularity=period, threshold=10**6, add_direction=True, locale=self._locale
            )
        )

    # Glue.

    def listing(self, style: Literal["standard", "or"], items: Sequence[str]) -> str:
        """Returns a list in words: ``standard`` ("and") or ``or``."""
        text = lists.format_list(items, style, self._locale)
        return self._typed(_euphonic(self.language, text[: -len(items[-1])], items[-1]))

    def bracketed(self, outside: str, inside: Sequence[str]) -> str:
        """Returns ``outside`` with a specification in brackets, in the pattern of a time zone after its city."""
        separator = self._locale.list_patterns["standard"]["middle"]
        specified = functools.reduce(separator.format, inside)
        return self._typed(self._locale.zone_formats["fallback"] % {"1": outside, "0": specified})

    def headed(self, head: str, body: str) -> str:
        """Returns a heading, a colon, and the text that it announces."""
        return head + _COLONS.get(self.language, ": ") + body

    def spanned(self, start: str, end: str) -> str:
        """Returns "from - to" with the dash that CLDR uses in intervals."""
        return self._typed(self._locale.interval_formats[None].format(start, end))

    def at(self, date: str, time: str) -> str:
        """Returns a date with a time of day."""
        pattern = str(self._locale.datetime_formats["long"]).replace("'", "")
        return self._typed(pattern.replace("{1}", date).replace("{0}", time))


def _largest_difference(start: datetime.datetime, end: datetime.datetime) -> str:
    """Returns CLDR's letters for the largest field in which two different moments differ."""
    letters = {"year": "y", "month": "M", "day": "d", "hour": "ahH", "minute": "m"}
    return next(letters[field] for field in letters if getattr(start, field) != getattr(end, field))


def _euphonic(language: str, before: str, last: str) -> str:
    """Returns a list joined to its last item, with the conjunction that the beginning of the item requires.

    CLDR's patterns cannot express this; ICU does the same for these two languages.
    """
    sound = last.casefold()
    if language == "es" and before.endswith(" y ") and re.match(r"i|í|hi(?![ae])|hí", sound):
        before = before[:-2] + "e "
    elif language == "es" and before.endswith(" o ") and re.match(r"h?[oó]|8|11(?!\d)", sound):
        before = before[:-2] + "u "
    elif language == "he" and before.endswith(" ו") and not re.match("[א-ת]", sound):
        before += "-"
    return before + last


def parse_locale(identifier: str) -> babel.Locale:
    """Returns Babel's locale for an identifier in upper or lower case, with ``_`` or ``-``.

    Raises:
      UserError: CLDR has no such locale; the message suggests similar ones.
    """
    known = {known.casefold(): known for known in localedata.locale_identifiers()}
    name = identifier.replace("-", "_").casefold()
    if name not in known:
        # The usual mistake is a country's code in place of the language's: cz for cs.
        spoken = get_global("likely_subtags").get(f"und_{name.upper()}", "").partition("_")[0]
        close = f" Did you mean {spoken!r}?" if spoken in known else suggest(name, known)
        raise UserError(
            f"CLDR has no locale {identifier!r} (Babel {babel.__version__}).{close} "
            f"Use identifiers such as 'de', 'pt_br' or 'zh_hant'."
        )
    return babel.Locale.parse(known[name])
