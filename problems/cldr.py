"""An offline corpus for any two languages: ``translate_ende_cldr``, ``translate_frru_cldr``, ...

The corpus has names of territories, languages, scripts, currencies and cities, measures, dates, times, intervals,
relative times, amounts of money, and lists of them. They are composed into phrases of up to about thirty words, with
texts that CLDR (through Babel, whose version is pinned) has in both languages. It has about 99,000 pairs, needs no
download and is the same everywhere. It is meant for demonstrations and tests, not for quality on real text.

A problem's name has two locales of two or three letters each (``translate_enfil_cldr``), or locales with scripts and
territories, all joined by underscores (``translate_en_zh_hant_cldr``, ``translate_pt_br_de_ch_cldr``).
"""

import os
from collections.abc import Iterator

from babel import localedata

from t2t_ext import registry
from t2t_ext.errors import UserError
from t2t_ext.problem import Sample, TranslationProblem
from t2t_ext.problems import cldr_corpus, cldr_locale

_PREFIX, _SUFFIX = "translate_", "_cldr"


def locales_in(name: str) -> tuple[str, str]:
    """Returns the locales that a problem's name joins.

    Args:
      name: Such as ``translate_ende_cldr`` or ``translate_en_zh_hant_cldr``. If underscores can be read in two ways,
        the longer source locale is meant: ``pt_br_fr`` is Brazilian Portuguese to French.

    Returns:
      CLDR's identifiers of source and target, such as ``("en", "zh_Hant")``.

    Raises:
      UserError: CLDR has no such locale, both are the same, or the name can be read in two ways.
    """
    body = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    if "_" in body:
        parts = body.split("_")
        readings = [("_".join(parts[:place]), "_".join(parts[place:])) for place in range(len(parts) - 1, 0, -1)]
    else:
        readings = [(body[:place], body[place:]) for place in range(2, len(body) - 1)]
    known = {identifier.casefold() for identifier in localedata.locale_identifiers()}
    possible = [reading for reading in readings if known.issuperset(reading)]
    if len(possible) > 1 and "_" not in body:
        choices = " or ".join(f"{_PREFIX}{source}_{target}{_SUFFIX}" for source, target in possible)
        raise UserError(f"The problem name {name!r} can be read in two ways: write {choices}.")
    # If no reading is possible, complain about the one with the most known locales.
    reading = possible[0] if possible else max(readings, key=lambda reading: len(known.intersection(reading)))
    source, target = (str(cldr_locale.parse_locale(identifier)) for identifier in reading)
    if source == target:
        raise UserError(f"The problem {name!r} would translate {source!r} into itself. Name two different locales.")
    return source, target


@registry.register_problem_family(
    r"translate_([a-z]{2,3})([a-z]{2,3})_cldr", example="any two languages of CLDR: translate_nlja_cldr"
)
@registry.register_problem_family(
    r"translate_[a-z]{2,3}(_[a-z]{4})?(_([a-z]{2}|[0-9]{3}))?_[a-z]{2,3}(_[a-z]{4})?(_([a-z]{2}|[0-9]{3}))?_cldr",
    example="any two locales of CLDR: translate_en_zh_hant_cldr, translate_pt_br_es_mx_cldr",
)
@registry.register_problem("translate_ende_cldr")
@registry.register_problem("translate_enes_cldr")
@registry.register_problem("translate_enfr_cldr")
@registry.register_problem("translate_enro_cldr")
@registry.register_problem("translate_enru_cldr")
@registry.register_problem("translate_envi_cldr")
@registry.register_problem("translate_enzh_cldr")
class TranslateCldr(TranslationProblem):
    """The offline corpus of the two locales in the problem's name.

    No source has two targets and no target two sources, so both directions are well defined.
    """

    approx_vocab_size = 4096

    def __init__(self, *, name: str = "translate_ende_cldr", was_reversed: bool = False) -> None:
        """Makes the problem; composes nothing yet.

        Args:
          name: The registered name, which contains the locales (see ``locales_in``).
          was_reversed: Whether source and target change places.

        Raises:
          UserError: The name does not contain two locales that CLDR has.
        """
        self._locales = locales_in(name)
        source, target = (identifier.replace("_", "-") for identifier in self._locales)
        super().__init__(name=name, was_reversed=was_reversed, source_language=source, target_language=target)

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the pairs of a split in the base problem's direction; needs no files.

        Raises:
          UserError: CLDR has too few texts for one of the locales.
        """
        del tmp_dir
        for pair in cldr_corpus.corpus(*self._locales)[split]:
            yield {"inputs": pair.source, "targets": pair.target}

    def count(self, split: str, tmp_dir: str | os.PathLike) -> int:
        """Returns the number of pairs of a split."""
        del tmp_dir
        return len(cldr_corpus.corpus(*self._locales)[split])
