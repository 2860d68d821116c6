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

_SECTIONS_WITH_CONTENTS = 4  # a page with as many has a table of contents


class Block(Protocol):
    """A part of a report; ``Table`` is one."""

    def text(self) -> str:
        """Returns the part for a terminal; empty where it cannot be shown there."""

    def html(self) -> Html:
        """Returns the part for a page."""


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph.

    Attributes:
      words: Its words.
      kind: ``note`` stands out, ``signature`` is for machines, ``small`` for explanations, which the page alone has.
    """

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
    """A list of sentences.

    Attributes:
      sentences: The sentences.
      bullet: What each begins with on a terminal.
    """

    sentences: Sequence[str]
    bullet: str = "* "

    def text(self) -> str:
        """Returns a line for each."""
        return "\n".join(self.bullet + each for each in self.sentences)

    def html(self) -> Html:
        """Returns the list; nothing of an empty one."""
        if not self.sentences:
            return Html()
        return element("ul", *(element("li", each) for each in self.sentences))


@dataclasses.dataclass(frozen=True)
class Either:
    """Words that look one way on a terminal and another way on a page; or that one of them does not have.

    Attributes:
      terminal: The words for a terminal.
      page: The words for a page.
    """

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
class Figure:
    """A picture, which a page embeds and a terminal does not show.

    Attributes:
      svg: The picture, or what draws it when the page is made.
      described: What it shows, for those who do not see it.
      caption: Below it.
      as_is: Whether its colors mean more or less, so that a dark page leaves them alone.
    """

    svg: bytes | Callable[[], bytes]
    described: str
    caption: str = ""
    as_is: bool = False

    def text(self) -> str:
        """Returns nothing."""
        return ""

    def html(self) -> Html:
        """Returns the picture, embedded."""
        svg = self.svg() if callable(self.svg) else self.svg
        caption = element("figcaption", self.caption) if self.caption else Html()
        return element("figure", html.image(svg, self.described), caption, class_="as-is" if self.as_is else "")


@dataclasses.dataclass(frozen=True)
class PageOnly:
    """A part that is too long or too wide for a terminal."""

    block: Block

    def text(self) -> str:
        """Returns nothing."""
        return ""

    def html(self) -> Html:
        """Returns the part."""
        return self.block.html()


@dataclasses.dataclass(frozen=True)
class Section:
    """A part with a heading.

    Attributes:
      title: The heading.
      blocks: What stands below it.
    """

    title: str
    blocks: Sequence[Block]

    def text(self) -> str:
        """Returns heading and blocks; nothing where no block can be shown on a terminal."""
        shown = list(filter(None, (block.text() for block in self.blocks)))
        return "\n".join([f"== {self.title}", *shown]) if shown else ""

    def html(self) -> Html:
        """Returns the section."""
        return element("section", element("h2", self.title), *(block.html() for block in self.blocks))


@dataclasses.dataclass(frozen=True)
class Report:
    """What a command has found.

    Attributes:
      title: Of the page.
      blocks: What it holds.
      command: The command that made it, such as ``t2t_ext-compare``.
    """

    title: str
    blocks: Sequence[Block]
    command: str

    def text(self) -> str:
        """Returns the blocks for a terminal, an empty line between them."""
        return "\n\n".join(filter(None, (block.text() for block in self.blocks)))

    def page(self) -> str:
        """Returns one page that holds everything, with a table of contents where it has many sections."""
        titles = [block.title for block in self.blocks if isinstance(block, Section)]
        with_contents = len(titles) >= _SECTIONS_WITH_CONTENTS
        parts: list[str] = []
        number = 0
        for block in self.blocks:
            if isinstance(block, Section):
                number += 1
                if number == 1 and with_contents:
                    links = (element("a", title, href=f"#part{n}") for n, title in enumerate(titles, 1))
                    parts.append(element("nav", element("ul", *(element("li", link) for link in links))))
                parts.append(element("div", block.html(), id=f"part{number}"))
            else:
                parts.append(block.html())
        return html.page(self.title, joined(Html(f"{part}\n") for part in parts), self.command)


def as_json(content: Any) -> str:
    """Returns JSON as reports write it."""
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def directory_for(path: files.PathLike, flag: str = "--out_dir") -> pathlib.Path:
    """Makes the directory of a report where it is missing, and returns its path.

    Args:
      path: The directory.
      flag: The flag that names it, for errors.

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
    """Writes the files of a report into a directory, which is made where it is missing.

    Args:
      directory: Where to.
      contents: Name -> content; None removes what an earlier call left under this name.

    Returns:
      The names of the files that are there now, in the order given.

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
