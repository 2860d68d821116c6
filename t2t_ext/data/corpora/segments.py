"""Pairs out of marked-up files: segments with ids, and WIT3's training text between lines of tags.

Segments (SGML, XML) are aligned by the ids of their documents and their own. The training files of WIT3,
``train.tags.LANGUAGES.LANGUAGE``, have the same lines of text in the same order, though not always the same lines of
tags (only a translation has a translator). Their lines with a talk's address, number, keywords, speaker, translators
and reviewers are left out; title and description are text, without their tags.
"""

import collections
import dataclasses
import itertools
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from t2t_ext.data.corpora import raw_files
from t2t_ext.data.corpora.charsets import encoding_of_lines, not_in
from t2t_ext.data.corpora.markup import DUPLICATE, Segment, read_segments
from t2t_ext.data.corpora.readers import INVALID_UTF8, ReadReport, read_lines
from t2t_ext.errors import UserError

MISALIGNED = "misaligned_segment"
EXTRA = "extra_segment"
_Key = tuple[str, str]
# A file's sets of the first kinds that it has.
_SOURCE_KINDS, _TARGET_KINDS = (("srcset", ""),), (("refset", ""), ("tstset",))
# The first three anywhere in a line, as the widely used recipe leaves lines out; later releases have the others.
_LEFT_OUT = re.compile(rb"<(?:url|talkid|keywords)>|^\s*</?(?:speaker|translator|reviewer|doc)\b")
_KEPT_TAGS = re.compile(rb"</?(title|description)>")


@dataclasses.dataclass(frozen=True)
class SegmentFiles:
    """A source file and files of its translations (WIT3's XML, NIST's and WMT's SGML); a ``readers.PairSource``.

    Attributes:
      source: The source file.
      targets: Files of translations. A file may hold several, told apart by ``sysid``: each is a reference.
      encodings: Encodings that they may have beside UTF-8 where they declare none.
      replacements: Texts replaced in every segment, in order: (old, new).
      resolve_entities: Whether ``&amp;`` becomes ``&``.
      references: The number of references that there must be; 0 for however many there are.
      separate: Whether every translation makes a pair of its own with the source, as in training text.
    """

    source: pathlib.Path
    targets: tuple[pathlib.Path, ...]
    encodings: tuple[str, ...] = ()
    replacements: tuple[tuple[str, str], ...] = ()
    resolve_entities: bool = True
    references: int = 0
    separate: bool = False

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """All the files, the source first."""
        return tuple(dict.fromkeys(map(raw_files.on_disk, (self.source, *self.targets))))

    def count(self) -> int:
        """Returns the number of source segments; where ``separate``, times that of translations."""
        kinds = collections.Counter(segment.kind for segment in self._segments(self.source))
        segments = sum(kinds[kind] for kind in _chosen_kinds(kinds, _SOURCE_KINDS))
        return segments * (self.translations() if self.separate else 1)

    def translations(self) -> int:
        """Returns the number of translations of every segment: that of files, and of systems within a file."""
        count = 0
        for path in self.targets:
            systems = collections.defaultdict(set)
            for segment in self._segments(path):
                systems[segment.kind].add(segment.system)
            count += len(set().union(*(systems[kind] for kind in _chosen_kinds(systems, _TARGET_KINDS))))
        return count

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, translation, further translations...) of every source segment; see ``PairSource.read``.

        Segments without a translation, translations without a source and repeated ids cannot be used. The latter two
        have no number, and so are counted where the first pair is read. Where ``separate``, every translation is
        numbered.
        """
        counted = report if wanted is None or wanted(1) else None
        source = self._by_id(self.source, counted, _SOURCE_KINDS).get("", {})
        translations: list[tuple[pathlib.Path, dict[_Key, Segment]]] = []
        for path in self.targets:
            systems = self._by_id(path, counted, _TARGET_KINDS, by_system=True)
            if not systems:
                raise UserError(f"{path} holds no translations: no <seg> in a <refset> or <doc>.")
            translations.extend((path, segments) for segments in systems.values())
        if not source:
            raise UserError(f"{self.source} holds no source text: no <seg> in a <srcset> or <doc>.")
        if self.references and len(translations) != self.references:
            raise UserError(
                f"{', '.join(map(str, self.targets))}: {len(translations)} translation(s) of every segment, where "
                f"{self.references} are needed. Several in one file are told apart by the sysid of <doc> or <refset>."
            )
        for path, segments in translations if counted else ():
            for key, segment in segments.items():
                if key not in source:
                    explanation = f"segment {key[1]!r} of document {key[0]!r} is not in {self.source}"
                    report.drop(EXTRA, path, segment.line, explanation)
        groups = [[translation] for translation in translations] if self.separate else [translations]
        numbers = itertools.count(1)
        for (key, segment), group in itertools.product(source.items(), groups):
            number = next(numbers)
            if wanted and not wanted(number):
                continue
            without = next((path for path, segments in group if key not in segments), None)
            if without:
                explanation = f"segment {key[1]!r} of document {key[0]!r} has no translation in {without}"
                report.drop(MISALIGNED, self.source, segment.line, explanation)
                continue
            texts = [segment.text, *(segments[key].text for _, segments in group)]
            for old, new in self.replacements:
                texts = [text.replace(old, new) for text in texts]
            report.at = (self.source, segment.line)
            yield tuple(texts)

    def _segments(self, path: pathlib.Path) -> Iterator[Segment]:
        return read_segments(path, self.encodings, resolve_entities=self.resolve_entities)

    def _by_id(
        self, path: pathlib.Path, report: ReadReport | None, kinds: Sequence[Collection[str]], by_system: bool = False
    ) -> dict[str, dict[_Key, Segment]]:
        """Returns system -> document and segment id -> segment; one system "" unless they are told apart."""
        found: dict[str, dict[_Key, Segment]] = collections.defaultdict(dict)
        everything = list(self._segments(path))
        chosen = _chosen_kinds({segment.kind for segment in everything}, kinds)
        for segment in everything:
            if segment.kind in chosen:
                key = (segment.document, segment.id)
                known = found[segment.system if by_system else ""].setdefault(key, segment)
                if known is not segment and report:
                    twice = f"is there twice (first in line {known.line})"
                    explanation = f"segment {segment.id!r} of document {segment.document!r} {twice}"
                    report.drop(DUPLICATE, path, segment.line, explanation)
        return found


def _chosen_kinds(there: Collection[str], wanted: Sequence[Collection[str]]) -> Collection[str]:
    """Returns the kinds of sets of a file that are read: the first of those wanted, but all where it has none of them.

    (WIT3 gives some references as the source of the other direction alone.)
    """
    found = ([kind for kind in there if kind in kinds] for kinds in wanted)
    return next(filter(None, found), list(there))


@dataclasses.dataclass(frozen=True)
class TaggedLineFiles:
    """The training text of a language pair; a ``readers.PairSource``.

    Attributes:
      source: The source side.
      target: The target side.
      encodings: Encodings that they may have beside UTF-8; see ``charsets.encoding_of_lines``.
    """

    source: pathlib.Path
    target: pathlib.Path
    encodings: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The two files."""
        return tuple(map(raw_files.on_disk, (self.source, self.target)))

    def count(self) -> int:
        """Returns the number of lines of text; see ``PairSource.count``."""
        return sum(1 for _ in self._lines())

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target) of every line of text; see ``PairSource.read``."""
        sides = (self.source, self.target)
        encodings = [encoding_of_lines(path, self.encodings) if self.encodings else "utf-8" for path in sides]
        for number, lines in enumerate(self._lines(report, wanted), 1):
            if wanted and not wanted(number):
                continue
            texts = []
            for path, encoding, line in zip(sides, encodings, lines, strict=True):
                try:
                    texts.append(line.text.decode(encoding))
                except UnicodeDecodeError:
                    report.drop(INVALID_UTF8, path, line.number, not_in(encoding))
                    break
            else:
                report.at = (self.source, lines[0].number)
                yield tuple(texts)

    def _lines(
        self, report: ReadReport | None = None, wanted: Callable[[int], bool] | None = None
    ) -> Iterator[tuple["_Line", "_Line"]]:
        """Yields a line and its translation; raises a UserError where a title stands beside something else."""
        files = self.source, self.target
        for pair in itertools.zip_longest(*(_text_lines(path, report, wanted) for path in files)):
            one, other = pair
            if one is None or other is None or one.tag != other.tag:
                places = " and ".join(
                    f"{path}, " + (f"line {line.number} ({line.tag or 'a sentence'})" if line else "its end")
                    for path, line in zip(files, pair, strict=True)
                )
                raise UserError(
                    f"These files are not translations line by line: without the lines of tags, {places} stand beside "
                    f"each other. One of them is incomplete or of another release; get both again."
                )
            yield one, other


class _Line(NamedTuple):
    """A line of text: its number in the file, the tag that it stood in ("" for none), the text without it."""

    number: int
    tag: str
    text: bytes


def _text_lines(
    path: pathlib.Path, report: ReadReport | None = None, wanted: Callable[[int], bool] | None = None
) -> Iterator[_Line]:
    """Yields the lines of text; what is dropped of lines is counted where the next line of text is wanted."""
    pair = 1

    def counted(line: int) -> bool:
        return not wanted or wanted(pair)

    for number, line in enumerate(read_lines(path, report, counted), 1):
        tag = None
        if b"<" in line:
            if _LEFT_OUT.search(line):
                continue
            tag = _KEPT_TAGS.search(line)
        yield _Line(number, tag[1].decode() if tag else "", _KEPT_TAGS.sub(b"", line) if tag else line)
        pair += 1
