"""Reports: a title and blocks, each of which shows itself as text and as HTML.

report = Report("Scores", [Paragraph("Of two systems."), table, Section("Curves", [Figure(svg, "Scores")])], "CMD")
print(report.text())
write(directory, {"scores.html": report.page(), "scores.tsv": table.tsv()})
"""

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

_SECTIONS_WITH_CONTENTS = 3  # a page with as many has a table of contents


class Block(Protocol):
    """A part of a report; ``Table`` is one."""

    def text(self) -> str:
        """Returns the part for a terminal; empty where it cannot be shown there."""
        return ""

    def html(self) -> Html:
        """Returns the part for a page."""


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph: ``note`` stands out, ``signature`` is for machines, ``small`` explains and is on pages only."""

    words: str
    kind: str = ""

    def text(self) -> str:
        """Returns the words; nothing of an explanation."""
        return {"note": f"note: {self.words}", "signature": f"[{self.words}]", "small": ""}.get(self.kind, self.words)

    def html(self) -> Html:
        """Returns the paragraph."""
        words = element("code", self.words) if self.kind == "signature" else self.words
        return element("p", words, class_=self.kind)


@dataclasses.dataclass(frozen=True)
class Note(Paragraph):
    """A paragraph that stands out."""

    kind: str = "note"


@dataclasses.dataclass(frozen=True)
class Items:
    """A list of sentences; ``bullet`` is what each begins with on a terminal."""

    sentences: Sequence[str]
    bullet: str = "* "

    def text(self) -> str:
        """Returns a line for each."""
        return "\n".join(self.bullet + each for each in self.sentences)

    def html(self) -> Html:
        """Returns the list; nothing of an empty one."""
        return element("ul", *(element("li", each) for each in self.sentences)) if self.sentences else Html()


@dataclasses.dataclass(frozen=True)
class Either:
    """Words that look one way on a terminal and another way on a page; or that one of them does not have."""

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
    """Names and the words that belong to them.

    Attributes:
      rows: A name and its words each.
      title: Above them; empty for none. With one they are framed.
    """

    rows: Sequence[tuple[str, str | Either]]
    title: str = ""

    def text(self) -> str:
        """Returns a line for each, the words aligned."""
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
    """A picture, which a page embeds and a terminal does not show.

    Attributes:
      svg: The picture, or what draws it when the page is made.
      described: What it shows, for those who do not see it.
      caption: Below it.
    """

    svg: bytes | Callable[[], bytes]
    described: str
    caption: str = ""

    def html(self) -> Html:
        """Returns the picture, embedded."""
        svg = self.svg() if callable(self.svg) else self.svg
        caption = element("figcaption", self.caption) if self.caption else Html()
        return element("figure", html.drawing(svg, self.described), caption, class_="drawn")


@dataclasses.dataclass(frozen=True)
class PageOnly(Block):
    """A part that is too long or too wide for a terminal."""

    block: Block

    def html(self) -> Html:
        """Returns the part."""
        return self.block.html()


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and the blocks below it, some of which may be sections themselves."""

    title: str
    blocks: Sequence[Block]

    def text(self) -> str:
        """Returns heading and blocks; nothing where no block can be shown on a terminal."""
        shown = list(filter(None, (block.text() for block in self.blocks)))
        return "\n".join([f"== {self.title}", *shown]) if shown else ""

    def html(self, place: str = "", level: int = 2) -> Html:
        """Returns the section with a heading of a level; ``place`` is what links lead to."""
        return element("section", element(f"h{level}", self.title), *_html(self.blocks, place, level + 1), id=place)


def _html(blocks: Sequence[Block], place: str, level: int) -> list[Html]:
    """Returns blocks in order, the sections among them with headings of a level."""
    places = iter(_places(blocks, place))
    return [
        Html(f"{block.html(next(places)[0], level) if isinstance(block, Section) else block.html()}\n")
        for block in blocks
    ]


def _places(blocks: Sequence[Block], place: str) -> list[tuple[str, Section]]:
    """Returns the sections among blocks at a place of the page, each with its own."""
    sections = [block for block in blocks if isinstance(block, Section)]
    return [(f"{place}{'-' if place else 'part'}{number}", each) for number, each in enumerate(sections, 1)]


def _contents(blocks: Sequence[Block], place: str = "") -> Html:
    """Returns links to the sections among blocks, and below each those to its own; nothing where there are none."""
    items = [
        element("li", element("a", each.title, href=f"#{there}"), _contents(each.blocks, there))
        for there, each in _places(blocks, place)
    ]
    return element("ul", *items) if items else Html()


@dataclasses.dataclass(frozen=True)
class Report:
    """What a command, such as ``t2t_ext-compare``, has found: a title and blocks."""

    title: str
    blocks: Sequence[Block]
    command: str

    def text(self) -> str:
        """Returns the blocks for a terminal, an empty line between them."""
        return "\n\n".join(filter(None, (block.text() for block in self.blocks)))

    def page(self) -> str:
        """Returns one page that holds everything, with a table of contents where it has many sections."""
        parts, links = _html(self.blocks, "", 2), _contents(self.blocks)
        if links.count("<a ") >= _SECTIONS_WITH_CONTENTS:
            first = next(number for number, block in enumerate(self.blocks) if isinstance(block, Section))
            parts.insert(first, element("nav", links, aria_label="Contents"))
        return html.page(self.title, joined(parts), self.command)


def as_json(content: Any) -> str:
    """Returns JSON as reports write it."""
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def directory_for(path: files.PathLike, flag: str = "--out_dir") -> pathlib.Path:
    """Makes the directory of a report where it is missing, and returns its path; ``flag`` names it in errors.

    Raises:
      UserError: It cannot be made or written to.
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


def write(directory: files.PathLike, contents: Mapping[str, str | bytes | None]) -> list[str]:
    """Writes the files of a report, name -> content, into a directory, which is made where it is missing.

    None removes what an earlier call left under this name. Returns the names of the files that are there now, in order.

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
