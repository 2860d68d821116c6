"""The atoms of the offline corpus: the units from which its phrases are composed.

An atom is a kind and a key: ``("territory", "RO")``, ``("day", 5)``, ``("count", "12500")``. Atoms that have their own
name in CLDR (territories, languages, ...) are used only if both locales have a name for them. The others (numbers,
days, hours) exist in every locale.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence

from babel import localedata
from babel.core import get_global

from t2t_ext.problems.cldr_locale import CldrLocale

Key = str | int
Atom = tuple[str, Key]

# Kinds that share a dictionary: in all of them, source names and target names correspond one to one.
_ONE_DICTIONARY = ("territory", "language", "currency", "city", "zone", "weekday", "month")
# A script's name may equal a language's because it only occurs in brackets after a language ("Serbian (Latin)").
_NAMED = (*_ONE_DICTIONARY, "script")

# Measures of everyday life and of school; CLDR has twice as many.
_UNITS = {
    "acceleration": "g-force",
    "angle": "degree radian",
    "area": "acre hectare square-centimeter square-foot square-kilometer square-meter square-mile",
    "concentr": "karat",
    "consumption": "liter-per-100-kilometer",
    "digital": "bit byte gigabyte kilobyte megabyte terabyte",
    "duration": "century day hour millisecond minute month second week year",
    "electric": "ampere milliampere ohm volt",
    "energy": "joule kilocalorie kilojoule kilowatt-hour",
    "force": "newton",
    "frequency": "gigahertz hertz kilohertz megahertz",
    "graphics": "megapixel pixel",
    "length": (
        "astronomical-unit centimeter decimeter foot inch kilometer "
        "light-year meter mile millimeter nanometer nautical-mile "
        "yard"
    ),
    "light": "lux",
    "mass": "carat gram kilogram milligram ounce pound tonne",
    "power": "gigawatt horsepower kilowatt megawatt watt",
    "pressure": "bar hectopascal millibar",
    "speed": "kilometer-per-hour knot meter-per-second mile-per-hour",
    "temperature": "celsius fahrenheit kelvin",
    "volume": (
        "centiliter cubic-centimeter cubic-kilometer cubic-meter cup deciliter "
        "gallon hectoliter liter milliliter pint teaspoon "
        "tablespoon"
    ),
}


@functools.cache
def _open_kinds() -> Mapping[str, Sequence[Key]]:
    """Returns the keys of the kinds that need no name in CLDR."""
    # Integers; the smaller they are, the denser.
    counts = (range(1, 100), range(100, 1000, 25), range(1000, 10000, 250), range(10000, 100001, 2500))
    # Numbers below 100 with one decimal that is not 0, spread by a multiplicative step.
    tenths = [37 * i % 997 for i in range(1, 160)]
    # Amounts of money with hundredths up to 2,000, and round ones up to 100,000.
    hundredths = [7919 * i % 200003 for i in range(1, 121)]
    round_ones = [*range(1, 50), *range(50, 1000, 50), *range(1000, 10000, 500), *range(10000, 100001, 5000)]
    return {
        "day": range(1, 32),
        "month_number": range(1, 13),
        "year": range(1980, 2031),
        "quarter": range(1, 5),
        "hour": range(24),
        "minute": range(0, 60, 5),
        "minute_second": range(1, 60, 2),
        "count": [*map(str, itertools.chain(*counts))],
        "decimal": [f"{number / 10:.1f}" for number in tenths if number % 10],
        "amount": [*(f"{number / 100:.2f}" for number in hundredths), *map(str, round_ones)],
        "percent": [*map(str, range(1, 100)), *(f"{number}.5" for number in range(0, 100, 3)), "100"],
        # Two significant digits, so that no locale rounds its "12.5 million", whichever powers of ten its words mean.
        "mantissa": [
            *map(str, range(2, 100)),
            *map(str, range(100, 1000, 50)),
            *(f"{n / 10}" for n in range(11, 99, 4)),
        ],
        "power": [3, 6, 9, 12],
        "few": range(1, 31),
        "period": ["second", "minute", "hour", "day", "week", "month", "year"],
        "direction": [-1, 1],
        "unit": [f"{quantity}-{unit}" for quantity, units in _UNITS.items() for unit in units.split()],
    }


@functools.cache
def _candidates() -> Mapping[str, Sequence[Key]]:
    """Returns the keys of the named kinds that are looked up in every locale, sorted."""
    english = CldrLocale.of("en")
    no_place = {"XA", "XB", "ZZ"}
    # The larger languages: those with a code of two letters, and their national variants that have names.
    languages = sorted(key for key in english.names("language") if len(key.partition("_")[0]) == 2)
    # The scripts that those languages are written in.
    tags = [*localedata.locale_identifiers(), *map(get_global("likely_subtags").get, languages)]
    parts = {part for tag in tags if tag for part in tag.split("_")[1:]}
    # Currencies that are legal tender somewhere today.
    uses = itertools.chain.from_iterable(get_global("territory_currencies").values())
    # Time zones that are named after a city; America/Indiana/Knox is one of many villages.
    zones = get_global("zone_territories")
    cities = (zone for zone in zones if zone.count("/") == 1 and not zone.startswith(("Etc/", "Antarctica/")))
    return {
        "territory": sorted(set(english.names("territory")) - no_place),
        "language": languages,
        "script": sorted(part for part in parts if len(part) == 4 and part.isalpha()),
        "currency": sorted({code for code, _, end, tender in uses if tender and end is None}),
        "city": sorted(cities),
        "zone": sorted(zone for zone in english.names("zone") if zone.endswith("/standard")),
        "weekday": range(7),
        "month": range(1, 13),
    }


def inventory(source: CldrLocale, target: CldrLocale) -> dict[str, list[Key]]:
    """Returns the atoms that both locales have.

    A name that equals its code does not count as a name and is left out. If two names would make the dictionary of the
    two locales ambiguous in either direction, the later one is left out (in the order of kinds and keys).

    Returns:
      Kind -> keys, in a fixed order.
    """
    keys: dict[str, list[Key]] = {kind: list(of_kind) for kind, of_kind in _open_kinds().items()}
    forwards: dict[str, str] = {}
    backwards: dict[str, str] = {}
    for kind in _NAMED:
        if kind not in _ONE_DICTIONARY:
            forwards, backwards = {}, {}
        keys[kind] = []
        own: set[str] = set()
        for key in _candidates()[kind]:
            name, translation = source.name(kind, key), target.name(kind, key)
            if name is None or translation is None or name in own:
                continue
            if forwards.setdefault(name, translation) == translation and (
                backwards.setdefault(translation, name) == name
            ):
                own.add(name)
                keys[kind].append(key)
    return keys
