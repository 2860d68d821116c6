"""Reads WIT3's training files, ``train.tags.LANGUAGES.LANGUAGE``: lines of text between lines of tags.

Lines with a talk's address, number, keywords, speaker, translators and reviewers are left out; title and description
are text, without their tags. Both files have the same lines of text in the same order, though not always the same
lines of tags (only a translation has a translator).
"""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from t2t_ext.data.corpora import raw_files
from t2t_ext.data.corpora.readers import INVALID_UTF8, ReadReport, read_lines
from t2t_ext.errors import UserError

# The first three anywhere in a line, as the widely used recipe leaves lines out; later releases have the others.
_LEFT_OUT = re.compile(rb"<(?:url|talkid|keywords)>|^\s*</?(?:speaker|translator|reviewer|doc)\b")
_KEPT_TAGS = re.compile(rb"</?(title|description)>")


@dataclasses.dataclass(frozen=True)
class TaggedLineFiles:
    """The training text of a language pair; a ``readers.PairSource``.

    Attributes:
      source: The source side.
      target: The target side.
    """

    source: pathlib.Path
    target: pathlib.Path

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The two files."""
        return tuple(map(raw_files.on_disk, (self.source, self.target)))

    def count(self) -> int:
        """Returns the number of lines of text.

        Raises:
          UserError: The two files differ in it, or a title stands beside something else.
        """
        count = 0
        for one, other in itertools.zip_longest(_text_lines(self.source), _text_lines(self.target)):
            if one is None or other is None or one.tag != other.tag:
                raise self._misaligned(one, other)
            count += 1
        return count

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target) of every line of text.

        Args:
          report: Where lines that are not UTF-8 are counted.
          wanted: Says of the number of a pair, from 1, whether it is read; all are by default.

        Raises:
          UserError: As ``count``, or a file is damaged.
        """
        sides = itertools.zip_longest(_text_lines(self.source, report), _text_lines(self.target, report))
        for number, (one, other) in enumerate(sides, 1):
            if one is None or other is None or one.tag != other.tag:
                raise self._misaligned(one, other)
            if wanted and not wanted(number):
                continue
            texts = []
            for path, line in ((self.source, one), (self.target, other)):
                try:
                    texts.append(line.text.decode())
                except UnicodeDecodeError:
                    report.drop(INVALID_UTF8, path, line.number, "invalid UTF-8")
                    break
            else:
                yield tuple(texts)

    def _misaligned(self, one: "_Line | None", other: "_Line | None") -> UserError:
        places = " and ".join(
            f"{path}, " + (f"line {line.number} ({line.tag or 'a sentence'})" if line else "its end")
            for path, line in ((self.source, one), (self.target, other))
        )
        return UserError(
            f"These files are not translations line by line: without the lines of tags, {places} stand beside each "
            f"other. One of them is incomplete or of another release; get both anew."
        )


class _Line(NamedTuple):
    """A line of text: its number in the file, the tag that it stood in ("" for none), the text without it."""

    number: int
    tag: str
    text: bytes


def _text_lines(path: pathlib.Path, report: ReadReport | None = None) -> Iterator[_Line]:
    for number, line in enumerate(read_lines(path, report), 1):
        if b"<" not in line:
            yield _Line(number, "", line)
        elif not _LEFT_OUT.search(line):
            tag = _KEPT_TAGS.search(line)
            yield _Line(number, tag[1].decode() if tag else "", _KEPT_TAGS.sub(b"", line) if tag else line)
