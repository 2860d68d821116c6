"""Errors that are reported to the user.

A ``UserError`` is a mistake that the user can correct. Its message says what is
wrong, which value was given, what is allowed and what to do next. The commands
print it on one line without a traceback and exit with status 2.
"""

import difflib
import importlib.util
from collections.abc import Iterable

_LONGEST_NAME = 200


class UserError(Exception):
    """A mistake made by the user, explained in one message without a traceback.

    Attributes:
      exit_status: The exit status of a command that fails with this error.
    """

    exit_status = 2


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, truncated to 200 characters; the error's type if it has none."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:200] + "..."


def shortened(text: str, most: int = 100) -> str:
    """Returns a text for use in a message: in full up to ``most`` characters, otherwise its beginning and length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def suggest(name: str, candidates: Iterable[str], limit: int = 3) -> str:
    """Returns a sentence that suggests the names closest to a misspelled one.

    Args:
      name: The name that was not found.
      candidates: The names that exist.
      limit: The maximum number of suggestions.

    Returns:
      ``" Did you mean 'a' or 'b'?"`` with a leading space, or an empty string when nothing is close.
    """
    if len(name) > _LONGEST_NAME:  # comparing takes quadratic time
        return ""
    others = [each for each in candidates if each != name]
    close = difflib.get_close_matches(name, others, n=limit, cutoff=0.6)
    if not close and len(name) > 2:  # the first words of a longer name: moses for moses_tokenize
        close = [each for each in others if each.startswith(f"{name}_")][:limit]
    if not close:
        return ""
    return " Did you mean " + " or ".join(repr(match) for match in close) + "?"


def require_package(module: str, extra: str, need: str, otherwise: str = "") -> None:
    """Checks that a package from one of t2t_ext's extras is installed, without importing it.

    Args:
      module: The module to look for, such as ``jieba``.
      extra: The extra that installs it, such as ``zh``.
      need: What needs the package; the subject of the message's sentence.
      otherwise: A sentence that says what can be done instead.

    Raises:
      UserError: The package is not installed.
    """
    if importlib.util.find_spec(module) is None:
        install = f"pip install 't2t_ext[{extra}]'"
        raise UserError(f"{need} needs the package {module}, which is not installed: {install}. {otherwise}".rstrip())
