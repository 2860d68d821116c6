"""Language tags such as ``de``, ``zh_CN`` and ``pt-BR``."""

import re

from t2t_ext.errors import UserError, shortened

_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*")
# Three-letter codes (ISO 639-2 and 639-3) of the languages that are scored or segmented differently from others.
_SHORT = {
    "zho": "zh",
    "chi": "zh",
    "cmn": "zh",
    "jpn": "ja",
    "kor": "ko",
    "tha": "th",
    "lao": "lo",
    "khm": "km",
    "mya": "my",
    "bur": "my",
    "bod": "bo",
    "tib": "bo",
    "dzo": "dz",
}


def base_language(tag: str) -> str:
    """Returns the language of a tag: ``zh`` for ``zh-Hant``, ``zh_CN`` and ``zho``; "" for an empty tag."""
    code = re.split(r"[-_]", tag)[0].lower()
    return _SHORT.get(code, code)


def check_language(tag: str, flag: str) -> None:
    """Checks a tag that a user gives; stored tags are not checked, because they may be older.

    Args:
      tag: The tag; empty if the language is not known.
      flag: The flag that it was given with.

    Raises:
      UserError: It does not look like a tag. If it is the English name of a language, the message suggests its tag.
    """
    if not tag or _TAG.fullmatch(tag):
        return
    meant = _tag_of_name(tag)
    if meant:
        raise UserError(f"{flag}={tag}: a language tag such as {meant} is expected. Did you mean {meant!r}?")
    raise UserError(
        f"{flag}={shortened(tag)}: a language tag such as de is expected: two or three letters, then a script or "
        "country if need be, such as zh-Hant or pt_BR."
    )


def _tag_of_name(name: str) -> str:
    """Returns the shortest tag of the language with this English name, or an empty string."""
    from babel import Locale

    wanted = " ".join(re.split(r"[-_\s]+", name.strip().lower()))
    found = [tag for tag, known in Locale("en").languages.items() if known.lower() == wanted]
    return min(found, key=len, default="")
