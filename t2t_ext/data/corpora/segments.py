"""Reads pairs from marked-up files: segments with ids, and WIT3's training text with lines of tags.

Segments (SGML, XML) are aligned by document id and segment id. The two training files of WIT3 for a language pair,
``train.tags.LANGUAGES.LANGUAGE``, have the same lines of text in the same order, but not always the same lines of tags
(for example, only a translation names a translator). Lines with a talk's URL, number, keywords, speaker, translators or
reviewers are skipped. Titles and descriptions are read as text, without their tags.
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
from t2t_ext.data.corpora.markup import DUPLICATE, Segment, read_segments, resolved
from t2t_ext.data.corpora.readers import INVALID_UTF8, ReadReport, read_lines
from t2t_ext.errors import UserError

MISALIGNED = "misaligned_segment"
EXTRA = "extra_segment"
_Key = tuple[str, str]
# Groups of kinds of sets; of each file, the sets of the first group that occurs in it are read.
_SOURCE_KINDS, _TARGET_KINDS = (("srcset", ""),), (("refset", ""), ("tstset",))
# The first three tags count anywhere in a line, as in the widely used recipe; later releases have the other tags.
_LEFT_OUT = re.compile(rb"<(?:url|talkid|keywords)>|^\s*</?(?:speaker|translator|reviewer|doc)\b")
_KEPT_TAGS = re.compile(rb"</?(title|description)>")


@dataclasses.dataclass(frozen=True)
class SegmentFiles:
    """A source file and its translations (WIT3's XML, NIST's and WMT's SGML), as a ``readers.PairSource``.

    Attributes:
      source: The source file.
      targets: The files with translations. A file may contain several translations, distinguished by ``sysid``; each of
        them is a reference.
      encodings: The encodings that the files may have besides UTF-8 if they declare none.
      replacements: Pairs (old, new) of strings that are replaced in each segment, in this order.
      resolve_entities: Whether ``&amp;`` becomes ``&``.
      references: The required number of references; 0 accepts any number.
      separate: Whether each translation forms a separate pair with the source, as in training text.
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
        """All files on disk, the source first."""
        return tuple(dict.fromkeys(map(raw_files.on_disk, (self.source, *self.targets))))

    def count(self) -> int:
        """Returns the number of source segments; with ``separate``, multiplied by the number of translations."""
        kinds = collections.Counter(segment.kind for segment in self._segments(self.source))
        segments = sum(kinds[kind] for kind in _chosen_kinds(kinds, _SOURCE_KINDS))
        return segments * (self.translations() if self.separate else 1)

    def translations(self) -> int:
        """Returns the number of translations per segment: the number of systems, summed over the target files."""
        count = 0
        for path in self.targets:
            systems = collections.defaultdict(set)
            for segment in self._segments(path):
                systems[segment.kind].add(segment.system)
            count += len(set().union(*(systems[kind] for kind in _chosen_kinds(systems, _TARGET_KINDS))))
        return count

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, translation, further translations...) for each source segment; see ``PairSource.read``.

        Segments without a translation, translations without a source and repeated ids are unusable. The latter two have
        no pair number, so they are counted only if the first pair is wanted. With ``separate``, each translation has
        its own number.

        Raises:
          UserError: A file has no segments of its side, or the number of translations is not ``references``.
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
        """Returns the segments of each system by document id and segment id; one system "" without ``by_system``."""
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
    """Returns the kinds of sets to read from a file: the first wanted group that occurs, otherwise all kinds there.

    (WIT3 publishes some references only as the source of the opposite direction.)
    """
    found = ([kind for kind in there if kind in kinds] for kinds in wanted)
    return next(filter(None, found), list(there))


@dataclasses.dataclass(frozen=True)
class TaggedLineFiles:
    """WIT3's training text of a language pair, as a ``readers.PairSource``.

    Attributes:
      source: The file of the source side.
      target: The file of the target side.
      encodings: The encodings that the files may have besides UTF-8; see ``charsets.encoding_of_lines``.
      resolve_entities: Whether ``&amp;`` and the like become characters, as in the XML of the evaluation sets.
    """

    source: pathlib.Path
    target: pathlib.Path
    encodings: tuple[str, ...] = ()
    resolve_entities: bool = True

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The two files."""
        return tuple(map(raw_files.on_disk, (self.source, self.target)))

    def count(self) -> int:
        """Returns the number of lines of text; see ``PairSource.count``."""
        return sum(1 for _ in self._lines())

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields (source, target) for each line of text; see ``PairSource.read``."""
        sides = (self.source, self.target)
        encodings = [encoding_of_lines(path, self.encodings) if self.encodings else "utf-8" for path in sides]
        for number, lines in enumerate(self._lines(report, wanted), 1):
            if wanted and not wanted(number):
                continue
            texts = []
            for path, encoding, line in zip(sides, encodings, lines, strict=True):
                try:
                    text = line.text.decode(encoding)
                    texts.append(resolved(text) if self.resolve_entities else text)
                except UnicodeDecodeError:
                    report.drop(INVALID_UTF8, path, line.number, not_in(encoding))
                    break
            else:
                report.at = (self.source, lines[0].number)
                yield tuple(texts)

    def _lines(
        self, report: ReadReport | None = None, wanted: Callable[[int], bool] | None = None
    ) -> Iterator[tuple["_Line", "_Line"]]:
        """Yields lines with their translations; raises a UserError if a title stands beside anything but a title."""
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
    """A line of text: its number in the file, the tag around it ("" if none), and the text without the tag."""

    number: int
    tag: str
    text: bytes


def _text_lines(
    path: pathlib.Path, report: ReadReport | None = None, wanted: Callable[[int], bool] | None = None
) -> Iterator[_Line]:
    """Yields the lines of text; characters removed from a line are counted if the next line of text is wanted."""
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
