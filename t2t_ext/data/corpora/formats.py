"""Recognizes the format of the user's files and creates a ``readers.PairSource`` for them.

The formats are translation memories (TMX), marked-up segments (WIT3's XML, NIST's and WMT's SGML), WIT3's lines with
tags, rows of data sets (Parquet, JSON lines), tab-separated columns and plain lines. A file is recognized by its first
bytes if it exists, otherwise by its name; JSON lines are always recognized by the name.
"""

import os
import pathlib
import re
from collections.abc import Sequence

from t2t_ext.data.corpora import archives, compression, raw_files, rows
from t2t_ext.data.corpora.readers import PairFiles, PairSource
from t2t_ext.data.corpora.segments import SegmentFiles, TaggedLineFiles
from t2t_ext.data.corpora.tmx import TmxFile
from t2t_ext.errors import UserError
from t2t_ext.io import inputs

PLAIN, SEGMENTS, TAGGED_LINES, TMX = "plain", "segments", "tagged lines", "TMX"
PARQUET, JSON_LINES = "Parquet", "JSON lines"
_HEAD_BYTES = 4096
_IN_WORDS = {
    PLAIN: "plain text", SEGMENTS: "marked up with segments (XML or SGML)",
    TAGGED_LINES: "a training file of WIT3 with tags", TMX: "a translation memory (TMX)",
    PARQUET: "Parquet", JSON_LINES: "JSON lines",
}  # fmt: skip
_ENDINGS = {
    TMX: (".tmx",),
    SEGMENTS: (".sgm", ".sgml", ".xml"),
    PARQUET: (".parquet",),
    JSON_LINES: (".jsonl", ".ndjson", ".json"),
}
_BEGINNINGS = (
    (TMX, re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!doctype\s+tmx|<tmx\b)", re.I | re.S)),
    (SEGMENTS, re.compile(
        rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!doctype[^>\[]*>\s*)?"
        rb"<(?:!doctype\s+)?(?:mteval|dataset|srcset|refset|tstset|doc|seg)\b", re.I | re.S,
    )),
    (TAGGED_LINES, re.compile(rb"\s*(?:<(?:doc|url|talkid|keywords|speaker)\b[^\n]*\n\s*){2}")),
    (PARQUET, re.compile(rows.PARQUET_MAGIC)),
)  # fmt: skip


def format_of(path: compression.PathLike) -> str:
    """Returns the format of a file: ``PLAIN``, ``SEGMENTS``, ``TAGGED_LINES``, ``TMX``, ``PARQUET`` or ``JSON_LINES``.

    Raises:
      UserError: The file cannot be read, or is an archive of several files.
    """
    name = os.fspath(path).lower()
    for ending in filter(None, compression.SUFFIXES):
        name = name.removesuffix(ending)
    if name.endswith(_ENDINGS[JSON_LINES]):
        return JSON_LINES
    if not inputs.is_file(raw_files.on_disk(path)):
        plain = TAGGED_LINES if os.path.basename(name).startswith("train.tags.") else PLAIN
        return next((kind for kind, endings in _ENDINGS.items() if name.endswith(endings)), plain)
    archives.require_member(path)
    with raw_files.opened(path) as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        head = head[2:].replace(b"\0", b"")  # UTF-16
    head = head.removeprefix(b"\xef\xbb\xbf")
    if _BEGINNINGS[2][1].match(head) and b"<seg" not in head:
        return TAGGED_LINES
    others = (*_BEGINNINGS[:2], *_BEGINNINGS[3:])
    return next((kind for kind, beginning in others if beginning.match(head)), PLAIN)


def pair_source(
    source: pathlib.Path,
    targets: Sequence[pathlib.Path] = (),
    *,
    split: str,
    languages: tuple[str, str] = ("", ""),
    separate: bool = False,
    columns: tuple[int, ...] | tuple[str, ...] = (),
    encodings: tuple[str, ...] = (),
) -> PairSource:
    """Returns a reader of a source file and its translations.

    Args:
      source: The source side, or both sides for TMX, Parquet, JSON lines and tab-separated files.
      targets: The translations; several files are several references.
      split: The prefix of the flags that name the files, for messages.
      languages: The source and target languages, needed for TMX. For Parquet and JSON lines, the names of the texts.
      separate: Whether each of several translations in marked-up files forms a pair of its own.
      columns: The columns of source and target: numbers from 1 for tab-separated files, names for Parquet and JSON
        lines.
      encodings: The encodings that the files may have besides UTF-8.

    Raises:
      UserError: The files do not fit together, or one of them cannot be read.
    """
    kind = format_of(source)
    other = next((path for path in targets if format_of(path) != kind), None)
    if other:
        raise UserError(
            f"{source} is {_IN_WORDS[kind]}, but {other} is {_IN_WORDS[format_of(other)]}; both must be of one format."
        )
    if kind in (TMX, PARQUET, JSON_LINES) and targets:
        raise UserError(f"{source} is {_IN_WORDS[kind]} and has both sides; leave out --{split}_target.")
    if kind == TMX:
        return TmxFile(source, *languages)
    if kind in (PARQUET, JSON_LINES):
        if any(isinstance(column, int) for column in columns):
            shown = ",".join(map(str, columns))
            raise UserError(f"{source} is {_IN_WORDS[kind]}: columns={shown} must be names, such as columns=de,en.")
        source_name, target_name = columns or languages
        return rows.RowFile(source, (str(source_name), str(target_name)), parquet=kind == PARQUET)
    if kind != PLAIN and not targets:
        raise UserError(f"{source} is {_IN_WORDS[kind]}; its translation is in another file: --{split}_target=FILE.")
    if kind == SEGMENTS:
        return SegmentFiles(source, tuple(targets), encodings, separate=separate)
    if kind == TAGGED_LINES:
        if len(targets) > 1:
            raise UserError(f"{source} has one translation, not {len(targets)}: give one --{split}_target.")
        return TaggedLineFiles(source, targets[0], encodings)
    if not targets:
        advice = "" if columns else f" (of line-aligned files, give --{split}_target too)"
        numbers = tuple(column for column in columns if isinstance(column, int))
        if len(numbers) < len(columns):
            shown = ",".join(map(str, columns))
            raise UserError(f"{source} is tab-separated: columns={shown} must be numbers, such as columns=1,2.")
        return PairFiles(source, advice=advice, columns=numbers, encodings=encodings)
    return PairFiles(source, targets[0], tuple(targets[1:]), encodings=encodings)
