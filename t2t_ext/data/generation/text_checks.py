"""Checks individual texts without a translation model: scripts, damaged encodings, numbers, and languages.

Characters are looked up in tables over all of Unicode, many texts at once.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from t2t_ext.config.languages import base_language
from t2t_ext.errors import UserError, require_package

_CODE_POINTS = 0x110000
# A text's language is judged only with at least this many characters, and is certain with at least this probability.
_LEAST_CHARACTERS = 20
_CERTAIN = 0.95
# CLDR's combined scripts (ISO 15924) -> their parts.
_PARTS_OF_SCRIPTS = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Hrkt": ("Hira", "Kana"),
}
# Windows-1252's characters at 0x80 to 0x9F, where Latin-1 has control characters.
_WINDOWS_1252 = bytes(range(0x80, 0xA0)).decode("cp1252", "ignore")
_CONTINUATION = f"[\u0080-\u00bf{_WINDOWS_1252}]"
_MISREAD = re.compile(
    f"[\u00c2-\u00df]{_CONTINUATION}|[\u00e0-\u00ef]{_CONTINUATION}{{2}}|[\u00f0-\u00f4]{_CONTINUATION}{{3}}"
)
# Usual originals of misread UTF-8: Latin letters and signs, Greek, Cyrillic, Vietnamese, punctuation, CJK, emoji.
_USUAL = re.compile(
    "[\u00a0-\u017f\u0370-\u04ff\u1e00-\u1eff\u2000-\u206f\u20a0-\u20bf\u2100-\u214f\u3000-\u9fff\uac00-\ud7a3"
    "\ufeff\uff00-\uffef\U0001f300-\U0001faff]"
)
# A closing quotation mark that no letter follows may be a real one („Ä“), but not after Â, Ã and â.
_CLOSING = "\u201c\u201d\u2019\u00bb\u203a\u2026"
_COMMON_LEADS = "\u00c2\u00c3\u00e2"
_DAMAGED = r"[[\p{Cc}--[\t\r\n]]\p{Co}\p{Cs}\p{Noncharacter_Code_Point}\uFFFD]"
_NUMBER = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f]\d+)*")
_DIGITS = re.compile(r"\d+")
_NOT_DIGITS = re.compile(r"\D")
_NOT_WORDS = re.compile(r"[\W_]+")


def script_share(texts: Sequence[str], language: str) -> np.ndarray:
    """Returns the share of the letters of every text that are in the script of its language.

    The scripts are those of CLDR's likely subtags (``zh`` -> Han, ``ja`` -> Han, Hiragana and Katakana). A script in
    the tag, as in ``sr-Latn``, takes precedence. Letters without a script of their own (U+00B5) are not counted.

    Args:
      texts: Any strings.
      language: A language tag; an empty or unknown one has no known scripts.

    Returns:
      float64 [texts] in [0, 1]; 1 if a text has no letters or the scripts of the language are unknown.
    """
    scripts = scripts_of(language)
    if not scripts:
        return np.ones(len(texts))
    in_script, letters = _counted(texts, (_in_scripts(scripts), _in_scripts(())))
    return np.where(letters > 0, in_script / np.maximum(letters, 1), 1.0)


@functools.cache
def scripts_of(language: str) -> tuple[str, ...]:
    """Returns the scripts (ISO 15924) in which a language is written, by CLDR; none if it is unknown."""
    from babel.core import get_global

    parts = language.replace("-", "_").split("_")
    written = [part.title() for part in parts[1:] if len(part) == 4 and part.isalpha()]
    likely = get_global("likely_subtags")
    code = base_language(language)
    for tag in ("_".join([code, *(part.upper() for part in parts[1:2])]), code):
        if not written and language and tag in likely:
            written = [part for part in likely[tag].split("_") if len(part) == 4 and part.isalpha()]
    return _PARTS_OF_SCRIPTS.get(written[0], (written[0],)) if written else ()


def has_encoding_trouble(texts: Sequence[str]) -> np.ndarray:
    """Returns which texts show damage by a wrong encoding or the like: bool [texts].

    Signs of damage are control characters other than TAB, CR and LF, the replacement character U+FFFD, private-use
    characters, noncharacters and lone surrogates, and UTF-8 that was read as Latin-1 or Windows-1252 (``Ã¤`` for
    ``ä``).
    """
    (damaged,) = _counted(texts, (_table(_DAMAGED),))
    found = damaged > 0
    joined = "\n".join(texts)
    ends: np.ndarray | None = None
    for match in _MISREAD.finditer(joined):
        follows = joined[match.end() : match.end() + 1]
        # The bytes that were decoded as Windows-1252 or Latin-1.
        raw = b"".join(each.encode("latin-1" if ord(each) < 0x100 else "cp1252") for each in match.group())
        if _USUAL.fullmatch(raw.decode("utf-8", "ignore")) and (
            match.group()[0] in _COMMON_LEADS or match.group()[1] not in _CLOSING or follows.isalpha()
        ):
            if ends is None:
                ends = np.cumsum(_lengths(texts))
            found[np.searchsorted(ends, match.start(), side="right")] = True
    return found


def same_numbers(source: str, target: str) -> bool:
    """Returns whether two texts have the same numbers in digits, in any order.

    Separators within a number are ignored (1.000 and 1000), or all of them divide it (10.30 and 10:30, 1 000 and 1,000,
    § 3,4 and § 3, 4), whichever makes the numbers the same.
    """
    return any(_numbers(pattern, source) == _numbers(pattern, target) for pattern in (_NUMBER, _DIGITS))


def _numbers(pattern: re.Pattern, text: str) -> list[str]:
    return sorted(str(int(_NOT_DIGITS.sub("", found)[:4000])) for found in pattern.findall(text))


def normalized(text: str) -> str:
    """Returns a text without details that differ between editions: letter case, punctuation, whitespace.

    The result is NFKC, case-folded, with only letters and digits. A text that has none of these is returned without
    whitespace at its ends.
    """
    return _NOT_WORDS.sub("", unicodedata.normalize("NFKC", text).casefold()) or text.strip()


def reads_like_the_other(source: tuple[Sequence[str], str], target: tuple[Sequence[str], str]) -> np.ndarray:
    """Returns which pairs have a side that reads more like the other side's language: bool [pairs].

    Each side is given as texts and language tag. A language identifier (py3langid), restricted to the two languages,
    reads every text. A pair is unfit if a side is with certainty in the other side's language. Texts of fewer than 20
    characters are too short to judge. Languages with the same code, or unknown to py3langid, are never told apart.

    Raises:
      UserError: py3langid is not installed.
    """
    found = np.zeros(len(source[0]), bool)
    codes = [base_language(tag) for _, tag in (source, target)]
    identify = _identifier(*codes)
    if identify is not None:
        for (texts, _), other in ((source, codes[1]), (target, codes[0])):
            for row, text in enumerate(texts):
                if len(text) >= _LEAST_CHARACTERS:
                    language, probability = identify.classify(text)
                    found[row] |= language == other and probability >= _CERTAIN
    return found


def require_language_identifier(languages: Sequence[str]) -> None:
    """Raises a UserError if py3langid is not installed or the languages of the problem are not known."""
    require_package("py3langid", "language", "language=true in --cleaning", "Or leave it out.")
    if not all(languages):
        raise UserError(
            "cleaning's language=true needs to know the languages: give --source_language and --target_language."
        )


@functools.cache
def _identifier(source: str, target: str) -> Any:
    """Returns the identifier of two languages, or None if it cannot tell them apart."""
    require_language_identifier((source, target))
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    if source == target:
        return None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    try:
        identifier.set_languages([source, target])
    except ValueError:  # it does not know one of them
        return None
    return identifier


def _lengths(texts: Sequence[str]) -> np.ndarray:
    """Returns the number of characters of every text, including the line feed that separates it from the next."""
    return np.fromiter(map(len, texts), np.int64, len(texts)) + 1


def _counted(texts: Sequence[str], tables: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns for every table (bool [code points]) how many characters of every text are in it: int64 [texts]."""
    if not len(texts):
        return [np.zeros(0, np.int64) for _ in tables]
    ends = np.cumsum(_lengths(texts))
    codes = np.frombuffer(("\n".join(texts) + "\n").encode("utf-32-le", "surrogatepass"), np.uint32)
    starts = np.concatenate([[0], ends[:-1]])
    return [np.add.reduceat(table[codes].astype(np.int64), starts) for table in tables]


@functools.cache
def _in_scripts(scripts: tuple[str, ...]) -> np.ndarray:
    """Returns which code points are letters of some scripts, or of any script if none is given: bool [code points].

    Raises:
      UserError: Unicode does not have such a script.
    """
    import regex  # knows the Script property, unlike re

    wanted = "".join(rf"\p{{Script={script}}}" for script in scripts)
    try:
        return _table(rf"[\p{{L}}&&[{wanted}]]" if scripts else r"[\p{L}--[\p{Script=Common}\p{Script=Inherited}]]")
    except regex.error:
        raise UserError(f"{', '.join(scripts)} is no script of Unicode (ISO 15924, such as Latn).") from None


@functools.cache
def _script_numbers(scripts: tuple[str, ...]) -> np.ndarray:
    """Returns the number of each code point's script, from 1; one more for other letters, 0 for other characters."""
    numbers = _in_scripts(()).astype(np.uint8) * (len(scripts) + 1)
    for number, script in enumerate(scripts, 1):
        numbers[_in_scripts((script,))] = number
    return numbers


@functools.cache
def _table(pattern: str) -> np.ndarray:
    """Returns which code points match a pattern: bool [code points]."""
    import regex

    table = np.zeros(_CODE_POINTS, bool)
    characters = "".join(map(chr, range(_CODE_POINTS)))
    table[[match.start() for match in regex.finditer(f"(?V1){pattern}", characters)]] = True
    return table


def letters_by_script(texts: Sequence[str], scripts: Sequence[str], other: str) -> dict[str, int]:
    """Returns script (ISO 15924), or ``other`` for the rest -> number of letters, if there are any."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    counts = np.bincount(_script_numbers(tuple(scripts))[codes], minlength=len(scripts) + 2).tolist()
    return {name: count for name, count in zip([*scripts, other], counts[1:], strict=True) if count}
