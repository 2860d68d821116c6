"""Tags of languages: ``de``, ``zh_CN``, ``pt-BR``."""

import re

from t2t_ext.errors import UserError, shortened

_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*")
# Codes of three letters (ISO 639-2 and 639-3) of the languages that are not scored or cut as others are.
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
    """Returns the language of a tag: ``zh`` of ``zh-Hant``, ``zh_CN`` and ``zho``; empty of an empty one."""
    code = re.split(r"[-_]", tag)[0].lower()
    return _SHORT.get(code, code)


def check_language(tag: str, flag: str) -> None:
    """Checks a tag that a user gives; what is stored is not checked, it may be older.

    Args:
      tag: The tag; an empty one says that the language is not known.
      flag: The flag that it was given with.

    Raises:
      UserError: It does not look like a tag; that of a language of this English name is suggested.
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
    """Returns the shortest tag of a language by its English name, or an empty string."""
    from babel import Locale

    wanted = " ".join(re.split(r"[-_\s]+", name.strip().lower()))
    found = [tag for tag, known in Locale("en").languages.items() if known.lower() == wanted]
    return min(found, key=len, default="")
