"""Reads translation memories (TMX 1.4) of any size as a stream.

A ``<tu>`` has a ``<tuv xml:lang="de-AT">`` for each language, with the text in its ``<seg>``. Markup inside the text
(``<bpt>``, ``<ept>``, ``<ph>``, ``<it>``, ``<ut>``) is program-specific formatting and is left out; the text inside
``<hi>`` is kept. Entities that a file itself defines could fill the memory and are refused (``defusedxml``).
"""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from t2t_ext.data.corpora import raw_files
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.errors import UserError

NO_TRANSLATION = "no_translation"
_BLOCK_BYTES = 1 << 18
_MOST_CHARACTERS_OF_SEGMENT = 10_000_000
_FORMATTING = ("bpt", "ept", "ph", "it", "ut", "sub")
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclasses.dataclass(frozen=True)
class TmxFile:
    """A translation memory, as a ``readers.PairSource``.

    Attributes:
      path: The file, compressed or not.
      source_language: The tag of the source language; ``de`` also matches ``de-AT`` and ``DE_de``.
      target_language: The tag of the target language, which matches in the same way.
    """

    path: pathlib.Path
    source_language: str
    target_language: str

    def __post_init__(self) -> None:
        """Checks that both languages are given."""
        if not self.source_language or not self.target_language:
            raise UserError(
                f"{self.path} holds texts in several languages: say which (--source_language=de --target_language=en)."
            )

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The file."""
        return (raw_files.on_disk(self.path),)

    def count(self) -> int:
        """Returns the number of translation units.

        Raises:
          UserError: No unit has texts in both languages.
        """
        units, pairs = 0, 0
        seen: collections.Counter[str] = collections.Counter()
        for unit in _units(self.path):
            units += 1
            pairs += None not in self._texts(unit)
            seen.update(unit.texts.keys())
        if not pairs:
            tags = ", ".join(tag for tag, _ in seen.most_common(20)) or "none"
            raise UserError(
                f"{self.path} has no text in both {self.source_language!r} and {self.target_language!r}; "
                f"its languages: {tags}."
            )
        return units

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target) for each unit, with the first text of each language; see ``PairSource.read``."""
        for number, unit in enumerate(_units(self.path), 1):
            if wanted and not wanted(number):
                continue
            source, target = self._texts(unit)
            if source is None or target is None:
                missing = self.source_language if source is None else self.target_language
                report.drop(NO_TRANSLATION, self.path, unit.line, f"the unit has no text in {missing!r}")
            else:
                yield source, target

    def _texts(self, unit: "_Unit") -> tuple[str | None, str | None]:
        """Returns a unit's source and target: for ``pt``, the text in ``pt``, or in ``pt-PT`` if not the other side."""
        wanted = [_normal(language) for language in (self.source_language, self.target_language)]
        found: list[str | None] = []
        for own, other in (wanted, wanted[::-1]):
            similar = (text for tag, text in unit.texts.items() if tag.startswith(f"{own}-") and tag != other)
            found.append(unit.texts[own] if own in unit.texts else next(similar, None))
        return found[0], found[1]


class _Unit(NamedTuple):
    """A translation unit: the line on which it begins, and its texts by lowercased language tag."""

    line: int
    texts: dict[str, str]


def _normal(tag: str) -> str:
    return tag.strip().lower().replace("_", "-")


def _units(path: pathlib.Path) -> Iterator[_Unit]:
    """Yields the translation units as they are read, keeping only one block of the file in memory."""
    from xml.etree.ElementTree import ParseError

    import defusedxml
    from defusedxml.ElementTree import XMLParser

    target = _Target(path)
    parser = XMLParser(target=target)
    target.line = lambda: parser.parser.CurrentLineNumber
    try:
        with raw_files.opened(path) as file:
            while block := file.read(_BLOCK_BYTES):
                parser.feed(block)
                yield from target.taken()
            parser.close()
            yield from target.taken()
    except ParseError as error:
        place = f"{path}, line {error.position[0]}{target.place()}"
        raise UserError(f"{place}: damaged or incomplete TMX ({error}).") from error
    except defusedxml.DefusedXmlException as error:
        raise UserError(
            f"{path}, line {target.line()}: the document defines entities of its own or refers to other files, which "
            f"can be made to fill the memory or to read what it should not: refused."
        ) from error
    except (LookupError, ValueError) as error:  # from the parser, about the declared encoding
        raise UserError(
            f"{path} declares an encoding that TMX is not read in ({error}); convert it to UTF-8, and its declaration."
        ) from error


class _Target:
    """Collects translation units from the events of the parser."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.line: Callable[[], int] = lambda: 0
        self._complete: list[_Unit] = []
        self._began = self._length = self._formatting = self._number = 0
        self._texts: dict[str, str] = {}
        self._language = ""
        self._pieces: list[str] | None = None

    def taken(self) -> list[_Unit]:
        """Returns the complete units and forgets them."""
        complete, self._complete = self._complete, []
        return complete

    def place(self) -> str:
        """Returns the number of the current unit, for messages."""
        return f", unit {self._number:,}" if self._number else ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handles the beginning of an element."""
        tag = tag.rpartition("}")[2]  # some programs declare a namespace
        if self._pieces is not None:
            self._formatting += tag in _FORMATTING
        elif tag == "tu":
            self._number += 1
            self._began, self._texts = self.line(), {}
        elif tag == "tuv":
            self._language = _normal(attributes.get(_XML_LANGUAGE) or attributes.get("lang") or "")
        elif tag == "seg":
            self._pieces, self._length = [], 0

    def data(self, text: str) -> None:
        """Handles text inside an element."""
        if self._pieces is not None and not self._formatting:
            self._length += len(text)
            if self._length > _MOST_CHARACTERS_OF_SEGMENT:
                raise UserError(
                    f"{self._path}, line {self.line()}{self.place()}: a segment of over "
                    f"{_MOST_CHARACTERS_OF_SEGMENT:,} characters; no sentence is that long."
                )
            self._pieces.append(text)

    def end(self, tag: str) -> None:
        """Handles the end of an element."""
        tag = tag.rpartition("}")[2]
        if tag == "seg" and self._pieces is not None:
            text = " ".join("".join(self._pieces).split("\n")) if self._pieces else ""
            self._texts.setdefault(self._language, text.strip(" \t\r"))
            self._pieces, self._formatting = None, 0
        elif self._pieces is not None:
            self._formatting -= tag in _FORMATTING
        elif tag == "tu":
            self._complete.append(_Unit(self._began, self._texts))

    def close(self) -> Any:
        """Handles the end of the document."""
