"""Builds reports: a title and blocks, each of which can be shown as text and as HTML.

report = Report("Scores", [Paragraph("Of two systems."), table, Section("Curves", [Figure(svg, "Scores")])], "CMD")
print(report.text())
write(directory, {"scores.html": report.page(), "scores.tsv": table.tsv()})
"""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.reporting import html
from t2t_ext.reporting.html import Html, element, joined

_SECTIONS_WITH_CONTENTS = 3  # a page with at least this many sections has a table of contents


class Block(Protocol):
    """A part of a report, such as a ``Table``."""

    def text(self) -> str:
        """Returns the block for a terminal; empty if it cannot be shown there."""
        return ""

    def html(self) -> Html:
        """Returns the block for a page."""


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph of some kind: ``note`` is highlighted, ``signature`` is for programs, ``small`` is only on pages."""

    words: str
    kind: str = ""

    def text(self) -> str:
        """Returns the words; empty for the kind ``small``."""
        return {"note": f"note: {self.words}", "signature": f"[{self.words}]", "small": ""}.get(self.kind, self.words)

    def html(self) -> Html:
        """Returns the paragraph."""
        words = element("code", self.words) if self.kind == "signature" else self.words
        return element("p", words, class_=self.kind)


@dataclasses.dataclass(frozen=True)
class Note(Paragraph):
    """A highlighted paragraph."""

    kind: str = "note"


@dataclasses.dataclass(frozen=True)
class Items:
    """A list of sentences; on a terminal, each begins with ``bullet``."""

    sentences: Sequence[str]
    bullet: str = "* "

    def text(self) -> str:
        """Returns one line per sentence."""
        return "\n".join(self.bullet + each for each in self.sentences)

    def html(self) -> Html:
        """Returns the list; empty if there are no sentences."""
        return element("ul", *(element("li", each) for each in self.sentences)) if self.sentences else Html()


@dataclasses.dataclass(frozen=True)
class Either:
    """Words that differ between a terminal and a page; either form may be empty."""

    terminal: str
    page: Html

    def text(self) -> str:
        """Returns the words for a terminal."""
        return self.terminal

    def html(self) -> Html:
        """Returns the words for a page."""
        return self.page


@dataclasses.dataclass(frozen=True)
class Definitions:
    """A list of names with the words that belong to them.

    Attributes:
      rows: Pairs of a name and its words.
      title: The title above the list; empty for none. A list with a title has a frame.
    """

    rows: Sequence[tuple[str, str | Either]]
    title: str = ""

    def text(self) -> str:
        """Returns one line per name, with the words aligned."""
        width = max((len(name) for name, _ in self.rows), default=0)
        lines = [
            f"{'  ' * bool(self.title)}{name.ljust(width)}  {words.terminal if isinstance(words, Either) else words}"
            for name, words in self.rows
        ]
        return "\n".join([*filter(None, [self.title]), *lines])

    def html(self) -> Html:
        """Returns the list of definitions."""
        parts: list[Html] = []
        for name, words in self.rows:
            shown = words.page if isinstance(words, Either) else words
            parts += [element("dt", name), element("dd", shown, dir="auto")]
        listed = element("dl", *parts)
        return element("section", element("h3", self.title), listed, class_="card") if self.title else listed


@dataclasses.dataclass(frozen=True)
class Figure(Block):
    """A picture that is embedded in a page and not shown on a terminal.

    Attributes:
      svg: The picture, or a function that draws it when the page is made.
      described: A description for people who cannot see the picture.
      caption: The caption below the picture; empty for none.
    """

    svg: bytes | Callable[[], bytes]
    described: str
    caption: str = ""

    def html(self) -> Html:
        """Returns the embedded picture with its caption."""
        svg = self.svg() if callable(self.svg) else self.svg
        caption = element("figcaption", self.caption) if self.caption else Html()
        return element("figure", html.drawing(svg, self.described), caption, class_="drawn")


@dataclasses.dataclass(frozen=True)
class PageOnly(Block):
    """A block that is too long or too wide for a terminal."""

    block: Block

    def html(self) -> Html:
        """Returns the block for a page."""
        return self.block.html()


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and the blocks below it, which may include sections."""

    title: str
    blocks: Sequence[Block]

    def text(self) -> str:
        """Returns the heading and the blocks; empty if no block can be shown on a terminal."""
        shown = list(filter(None, (block.text() for block in self.blocks)))
        return "\n".join([f"== {self.title}", *shown]) if shown else ""

    def html(self, place: str = "", level: int = 2) -> Html:
        """Returns the section with a heading of the given level; links use ``place`` as its id."""
        return element("section", element(f"h{level}", self.title), *_html(self.blocks, place, level + 1), id=place)


def _html(blocks: Sequence[Block], place: str, level: int) -> list[Html]:
    """Returns the HTML of blocks in order; sections among them have headings of the given level."""
    places = iter(_places(blocks, place))
    return [
        Html(f"{block.html(next(places)[0], level) if isinstance(block, Section) else block.html()}\n")
        for block in blocks
    ]


def _places(blocks: Sequence[Block], place: str) -> list[tuple[str, Section]]:
    """Returns the sections among blocks, each with its id, which extends the id ``place`` of their parent."""
    sections = [block for block in blocks if isinstance(block, Section)]
    return [(f"{place}{'-' if place else 'part'}{number}", each) for number, each in enumerate(sections, 1)]


def _contents(blocks: Sequence[Block], place: str = "") -> Html:
    """Returns nested links to the sections among blocks and to their subsections; empty if there are none."""
    items = [
        element("li", element("a", each.title, href=f"#{there}"), _contents(each.blocks, there))
        for there, each in _places(blocks, place)
    ]
    return element("ul", *items) if items else Html()


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of a command such as ``t2t_ext-compare``: a title and blocks."""

    title: str
    blocks: Sequence[Block]
    command: str

    def text(self) -> str:
        """Returns the blocks for a terminal, separated by empty lines."""
        return "\n\n".join(filter(None, (block.text() for block in self.blocks)))

    def page(self) -> str:
        """Returns a page with all blocks, and with a table of contents if it has at least three sections."""
        parts, links = _html(self.blocks, "", 2), _contents(self.blocks)
        if links.count("<a ") >= _SECTIONS_WITH_CONTENTS:
            first = next(number for number, block in enumerate(self.blocks) if isinstance(block, Section))
            parts.insert(first, element("nav", links, aria_label="Contents"))
        return html.page(self.title, joined(parts), self.command)


def as_json(content: Any) -> str:
    """Returns content as JSON in the form that reports use."""
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def directory_for(path: files.PathLike, flag: str = "--out_dir") -> pathlib.Path:
    """Creates the directory of a report if it is missing, and returns its path; error messages name ``flag``.

    Raises:
      UserError: The directory cannot be created or written to.
    """
    directory = pathlib.Path(path).expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK) else "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UserError(f"{flag}={path}: the directory cannot be written to ({reason}). Choose another {flag}.")
    return directory


def checked_directory(path: files.PathLike, flag: str = "--out_dir") -> pathlib.Path:
    """Returns the path of a report's directory, after making it and removing it again if it was missing.

    The report that is written at the end makes it; an error on the way leaves no empty directory.

    Raises:
      UserError: The directory cannot be created or written to.
    """
    directory = pathlib.Path(path).expanduser()
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory_for(path, flag)
    for made in missing:
        with contextlib.suppress(OSError):  # another process has put something there
            made.rmdir()
    return directory


def write(directory: files.PathLike, contents: Mapping[str, str | bytes | None]) -> list[str]:
    """Writes the files of a report to a directory, which is created if it is missing.

    Args:
      directory: The directory.
      contents: The content of each file by name; None removes a file that an earlier call left under this name.

    Returns:
      The names of the files that were written, in order.

    Raises:
      UserError: The directory cannot be written to.
    """
    directory = directory_for(directory)
    for name, content in contents.items():
        if content is None:
            (directory / name).unlink(missing_ok=True)
        else:
            data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
            files.write_bytes_atomically(directory / name, data)
    return [name for name, content in contents.items() if content is not None]
