"""Reads segments from WIT3's XML and NIST's and WMT's SGML: ``<seg id="1">`` inside ``<doc>`` inside ``<refset>``.

WMT's XML since 2021 has ``<src>``, ``<ref>`` and ``<hyp>`` inside ``<doc>`` instead, all in one file.

Real files are not strict XML: ids lack quotes, tags and attributes are in any case, the text contains bare ``&`` and
``<``, and there is no single root. The markup is therefore read as browsers read it (``html.parser``). Everything in a
segment up to ``</seg>`` is text, whatever it looks like. Each segment must have an id and an end; ``segments`` detects
repeated ids. Entities that a document itself defines are refused.
"""

import codecs
import dataclasses
import html
import html.entities
import html.parser
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

from t2t_ext.data.corpora import compression, raw_files
from t2t_ext.data.corpora.charsets import encoding_of
from t2t_ext.errors import UserError

DUPLICATE = "duplicate_segment"
MOST_CHARACTERS_OF_SEGMENT = 10_000_000
MOST_CHARACTERS_OF_TAG = 1_000_000
_SETS = ("srcset", "refset", "tstset")
_PARTS = {"src": "srcset", "ref": "refset", "hyp": "tstset"}
_REFERENCE = re.compile(r"&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,30});")
_BLOCK_BYTES = 1 << 16
# The markup that ends or interrupts the text of a segment. Tag names end where html.parser ends them.
_IN_SEGMENT = re.compile(r"<(/?)(seg|doc|srcset|refset|tstset)(?=[\t\n\r\f />])|<!\[CDATA\[", re.I)
_CDATA_END = re.compile(r"\]\]>")
_MOST_HELD = len("<![CDATA[")  # the length of the longest match, with the character after a tag name
# Replaces "&" during parsing, because html.parser would resolve "&copy=1" as HTML does. No text contains NUL.
_AMPERSAND = "\0"


@dataclasses.dataclass(frozen=True)
class Segment:
    """A segment and its place in the file.

    Attributes:
      document: The id of its document ("" if there is no document).
      system: The author or translator: the ``sysid`` of the document or the set, or a similar attribute ("" if none).
      id: The id of the segment.
      text: Its text without surrounding whitespace; entities are resolved if requested, and line ends become spaces.
      line: The number of the line on which it begins, from 1.
      kind: The set that contains it: ``srcset``, ``refset``, ``tstset`` or "".
      language: The set's source language (``srclang``), or in WMT's XML the ``lang`` of ``<src>``, ``<ref>`` or
        ``<hyp>``, in lower case, such as ``chinese`` ("" if none).
    """

    document: str
    system: str
    id: str
    text: str
    line: int
    kind: str
    language: str


def read_segments(
    path: compression.PathLike, encodings: Sequence[str] = (), *, resolve_entities: bool = True
) -> Iterator[Segment]:
    """Yields the segments of a file in order.

    Args:
      path: An XML or SGML file, compressed or not.
      encodings: The encodings that the file may have besides UTF-8 if it declares none; see ``encoding_of``.
      resolve_entities: Whether ``&amp;`` becomes ``&``; some published preparations left entities unresolved.

    Raises:
      UserError: The file is damaged or incomplete, is not in its encoding, defines entities, or has a segment that
        contains another segment or has no id. The message names the file, the line and the segment.
    """
    encoding = encoding_of(path, encodings)
    parser = _Parser(path, resolve_entities)
    decoder = codecs.getincrementaldecoder(encoding)()
    with raw_files.opened(path) as file:
        block = b" "
        while block:
            block = file.read(_BLOCK_BYTES)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                ahead = error.object[: error.start].count(b"\n")
                name = encoding.removesuffix("-sig")
                raise parser.error(f"not {name} as the file begins or declares", ahead) from error
            yield from parser.fed(text, final=not block)


def _system(values: Mapping[str, str]) -> str:
    return values.get("sysid") or values.get("refid") or values.get("translator") or values.get("system") or ""


def _character(match: re.Match[str]) -> str:
    if match[1].startswith("#"):
        return html.unescape(match[0])
    return html.entities.html5.get(f"{match[1]};", match[0])  # unescape would make &nothing; out of &not


def resolved(text: str) -> str:
    """Returns text with character references and HTML's named entities resolved; anything else stays."""
    if "&" not in text:
        return text
    found = _REFERENCE.sub(_character, text)
    return " ".join(found.replace("\r\n", "\n").split("\n")) if "\n" in found else found


class _Parser(html.parser.HTMLParser):
    """Collects segments; ``fed`` yields the complete ones.

    html.parser reads up to the end of ``<seg ...>`` and again from ``</seg>``; ``_read_text`` reads the text between.
    """

    def __init__(self, path: compression.PathLike, resolve_entities: bool) -> None:
        super().__init__(convert_charrefs=False)
        self._resolve_entities = resolve_entities
        self._path = pathlib.Path(path)
        self._complete: list[Segment] = []
        self._kind = self._set_system = self._document = self._system = self._last_id = ""
        self._language = ""
        self._documents = 0
        self._is_in_document = False
        self._id: str | None = None  # the id of the segment that is being read
        self._line = self._length = 0
        self._pieces: list[str] = []
        self._is_in_text = self._is_in_cdata = False
        self._held = ""  # the end of the input so far, if it may be the beginning of a tag

    def set_cdata_mode(self, *args: object, **kwargs: object) -> None:
        """Does nothing, because ``<script>`` and ``<title>`` are ordinary tags here."""

    def fed(self, text: str, *, final: bool) -> Iterator[Segment]:
        """Processes more of the file and yields the segments that it completes."""
        if _AMPERSAND in text:
            raise self.error("a NUL character, which no text has: the file is damaged, or in another encoding")
        text = text.replace("&", _AMPERSAND)
        if self._is_in_text:
            before, self.rawdata = len(self._held), self._held + text
            end = self._read_text(before, 0)
            self.updatepos(before, end)
            text, self.rawdata = self.rawdata[end:], ""
        try:
            self.feed(text)
            if final:
                self.close()
        except AssertionError as error:  # html.parser raises this for malformed ``<![`` and ``<!DOCTYPE``
            raise self.error(f"markup that is none ({error})") from error
        if len(self.rawdata) > MOST_CHARACTERS_OF_TAG:  # html.parser rereads it with each block until it ends
            raise self.error(f"a tag or comment of over {MOST_CHARACTERS_OF_TAG:,} characters: does '>' miss?")
        complete, self._complete = self._complete, []
        yield from complete
        if final and self._id is not None:
            raise self.error("the file ends within a segment: it is incomplete")
        if final and (self._kind or self._is_in_document):
            raise self.error(f"the file ends within <{self._kind or 'doc'}>: it is incomplete")

    def error(self, what: str, lines_ahead: int = 0) -> UserError:
        """Returns the error for the current place in the file, or for a place some lines further on."""
        line = self.getpos()[0] + lines_ahead
        segment = self._id if self._id is not None else self._last_id
        place = f"document {self._document!r}, " if self._document else ""
        where = f" ({place}{'segment' if self._id is not None else 'after segment'} {segment!r})" if segment else ""
        return UserError(f"{self._path}, line {line}{where}: {what}.")

    def parse_starttag(self, i: int) -> int:
        """Reads a tag, and also the text if it begins a segment; returns the next position (negative: incomplete)."""
        end = super().parse_starttag(i)
        return end if end < 0 or self._id is None else self._read_text(i, end)

    def _read_text(self, counted: int, start: int) -> int:
        """Reads the text of a segment from the input so far and returns the position where it ends.

        If the text does not end in this input, this is the end of the input. For messages, ``counted`` is the position
        up to which lines have been counted.
        """
        self._is_in_text, self._held = True, ""
        while match := (_CDATA_END if self._is_in_cdata else _IN_SEGMENT).search(self.rawdata, start):
            self._add(self.rawdata[start : match.start()])
            start = match.end()
            if self._is_in_cdata or not match[2]:
                self._is_in_cdata = not self._is_in_cdata
                continue
            if (match[1], match[2].lower()) == ("/", "seg"):
                self._is_in_text = False
                return match.start()
            lines_ahead = self.rawdata.count("\n", counted, match.start())
            raise self.error(f"<{match[1]}{match[2].lower()}> before the segment ends: </seg> is missing", lines_ahead)
        end = max(start, len(self.rawdata) - _MOST_HELD)
        begun = self.rawdata.find("]" if self._is_in_cdata else "<", end)
        end = len(self.rawdata) if begun < 0 else begun
        self._add(self.rawdata[start:end])
        self._held = self.rawdata[end:]
        return len(self.rawdata)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handles the beginning of a set, a document or a segment."""
        values = {name: resolved((value or "").replace(_AMPERSAND, "&")).strip() for name, value in attrs}
        if tag == "seg":
            self._last_id = values.get("id", "")
            if not self._last_id:
                raise self.error("a segment without an id")
            self._id, self._line, self._length = self._last_id, self.getpos()[0], 0
        elif tag in _SETS:
            self._kind, self._set_system = tag, _system(values)
            self._language = values.get("srclang", "").lower()
        elif tag == "doc":
            self._documents += 1
            self._is_in_document = True
            self._document = values.get("docid") or values.get("id") or f"#{self._documents}"
            self._system = _system(values) or self._set_system
        elif tag in _PARTS and self._is_in_document:
            self._kind, self._system = _PARTS[tag], _system(values)
            self._language = values.get("lang", "").lower()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handles an empty segment, or another tag without an end tag."""
        self.handle_starttag(tag, attrs)
        if tag == "seg":
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """Handles the end of a set, a document or a segment."""
        if tag == "seg":
            if self._id is None:
                raise self.error("</seg> where no segment began")
            text = "".join(self._pieces).replace(_AMPERSAND, "&")
            text = resolved(text) if self._resolve_entities else text
            text = " ".join(text.replace("\r\n", "\n").split("\n")) if "\n" in text else text
            place = self._document, self._system, self._id
            self._complete.append(Segment(*place, text.strip(" \t\r"), self._line, self._kind, self._language))
            self._last_id, self._id, self._pieces = self._id, None, []
        elif tag == "doc":
            self._is_in_document = False
        elif tag in _SETS or (tag in _PARTS and self._is_in_document):
            self._kind = self._set_system = ""

    def _add(self, text: str) -> None:
        """Adds text to the current segment."""
        self._length += len(text)
        if self._length > MOST_CHARACTERS_OF_SEGMENT:
            raise self.error(f"the segment has over {MOST_CHARACTERS_OF_SEGMENT:,} characters: does </seg> miss?")
        self._pieces.append(text.replace(_AMPERSAND, "&amp;") if self._is_in_cdata else text)

    def handle_decl(self, decl: str) -> None:
        """Refuses a document type that defines entities."""
        if "<!entity" in decl.lower():
            raise self.error("the document defines entities of its own, which can be made to fill the memory: refused")

    def handle_comment(self, data: str) -> None:
        """Refuses an entity definition outside a document type."""
        if data.lower().startswith("entity"):
            self.handle_decl(f"<!{data}")
