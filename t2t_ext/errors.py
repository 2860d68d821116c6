"""Errors for the person at the keyboard.

A ``UserError`` is a mistake that the user can put right. Its message says what is
wrong, which value was given, what is allowed and what to do next; the commands
print it on one line without a traceback and exit with status 2.
"""

import difflib
import importlib.util
from collections.abc import Iterable

_LONGEST_NAME = 200


class UserError(Exception):
    """A mistake of the user's, explained in one message without a traceback.

    Attributes:
      exit_status: What a command returns that fails for it.
    """

    exit_status = 2


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, of 200 characters at most; its type if it has none."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 200 else text[:200] + "..."


def shortened(text: str, most: int = 100) -> str:
    """Returns a text for a message: as it is, or its beginning and how long it is."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def suggest(name: str, candidates: Iterable[str], limit: int = 3) -> str:
    """Returns a sentence with the names closest to a misspelt one.

    Args:
      name: The name that was not found.
      candidates: The names that exist.
      limit: How many names are suggested at the most.

    Returns:
      ``" Did you mean 'a' or 'b'?"`` with a leading space, or an empty string when nothing is close.
    """
    if len(name) > _LONGEST_NAME:  # comparing takes the square of it
        return ""
    others = [each for each in candidates if each != name]
    close = difflib.get_close_matches(name, others, n=limit, cutoff=0.6)
    if not close and len(name) > 2:  # the first words of a longer name: moses of moses_tokenize
        close = [each for each in others if each.startswith(f"{name}_")][:limit]
    if not close:
        return ""
    return " Did you mean " + " or ".join(repr(match) for match in close) + "?"


def require_package(module: str, extra: str, need: str, otherwise: str = "") -> None:
    """Checks that a package of one of the extras of t2t_ext is installed, without importing it.

    Args:
      module: What is imported, such as ``jieba``.
      extra: The extra that installs it, such as ``zh``.
      need: What needs it, the subject of the sentence.
      otherwise: A sentence that says what else can be done.

    Raises:
      UserError: It is not installed.
    """
    if importlib.util.find_spec(module) is None:
        install = f"pip install 't2t_ext[{extra}]'"
        raise UserError(f"{need} needs the package {module}, which is not installed: {install}. {otherwise}".rstrip())
