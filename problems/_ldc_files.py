"""Finds source and translation files in folders of the Linguistic Data Consortium's corpora.

Releases have different folders. But in all of them the two sides of a text have the same name except for the part that
marks the language: an ending (``.zh``, ``.en``, ``.chn``, ``.eng``) or a folder (``chinese``, ``source``; ``english``,
``translation/E01``). Files are line-aligned or have segments with ids, in GB18030, Big5 or UTF-8.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence

from t2t_ext.data.corpora import archives, charsets, compression, formats
from t2t_ext.data.corpora.markup import read_segments
from t2t_ext.data.corpora.readers import PairFiles, PairSource, ReadReport, count_lines
from t2t_ext.data.corpora.segments import SegmentFiles
from t2t_ext.errors import UserError
from t2t_ext.problem import TRAIN

SOURCE, TARGET = "source", "target"
UNPAIRED = "unpaired_file"
ENCODINGS = charsets.CHINESE
_ENDINGS = {
    **dict.fromkeys(("zh", "cn", "ch", "chn", "chi", "cmn", "man", "c"), SOURCE),
    **dict.fromkeys(("en", "eng", "e"), TARGET),
}
_FOLDERS = {
    **dict.fromkeys(("source", "src", "chinese", "chn", "chi", "cmn", "zh", "ch"), SOURCE),
    **dict.fromkeys(("translation", "translations", "trans", "ref", "english", "eng", "en"), TARGET),
}
_TRANSLATOR = re.compile(r"E\d\d?", re.I)
_NO_TEXT = re.compile(
    r"\.(?:dtd|pdf|html?|doc|ps|pl|py|sh|md5|tbl|json|log)$|^readme"
    r"|^(?:index|files?|docs?)(?:[ _-]?list)?(?:\.(?:txt|lst))?$",
    re.I,
)
_MARKUP = (".sgm", ".sgml", ".xml", ".txt")
_ALIASES = {f"mt0{year}": (f"mt0{year}", f"MT0{year}", f"nist0{year}", f"NIST0{year}") for year in range(2, 7)}
_COMPRESSIONS = tuple(filter(None, compression.SUFFIXES))


def unpack(directory: pathlib.Path, name: str) -> None:
    """Unpacks the archive of a corpus if there is one and no folder; does so again if the archive has changed."""
    folder = _folder(directory, (name,))
    if folder and not folder.name.endswith(archives.UNPACKED):
        return
    for ending in archives.ENDINGS:
        path = directory / f"{name}{ending}"
        if path.is_file():
            archives.unpacked_beside(path)


def corpus(directory: pathlib.Path, number: str) -> list[PairSource]:
    """Returns the pairs of files of a corpus, in the order of their names, and its unpaired files.

    The list is empty if the corpus has no pair of files.
    """
    folder = _folder(directory, (number,))
    if not folder:
        return []
    sources, targets = _sides(folder)
    found: list[PairSource] = []
    for key, path in sources.items():
        if formats.format_of(path) == formats.SEGMENTS and key in targets:
            found.append(formats.pair_source(path, targets[key], split=TRAIN, separate=True, encodings=ENCODINGS))
        else:
            found.extend(PairFiles(path, target, encodings=ENCODINGS) for target in targets.get(key, ()))
    if not found:
        return []
    alone = [path for key, path in sources.items() if key not in targets]
    alone += [path for key, paths in targets.items() if key not in sources for path in paths]
    return [*found, *map(UnpairedFile, sorted(alone))]


@dataclasses.dataclass(frozen=True)
class UnpairedFile:
    """A file of a corpus without its other side: a ``readers.PairSource`` that has lines to count but no pairs."""

    path: pathlib.Path

    @property
    def paths(self) -> tuple[pathlib.Path, ...]:
        """The file."""
        return (self.path,)

    def count(self) -> int:
        """Returns the number of segments or lines."""
        if formats.format_of(self.path) == formats.SEGMENTS:
            return sum(1 for _ in read_segments(self.path, ENCODINGS))
        return count_lines(self.path)

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields nothing; counts every line as dropped."""
        for number in range(1, self.count() + 1):
            if not wanted or wanted(number):
                report.drop(UNPAIRED, self.path, number, "the file has no counterpart of the same name")
        yield from ()


def what_is_wrong(directory: pathlib.Path, number: str) -> str:
    """Returns the reason why a corpus has no pairs, for messages."""
    folder = _folder(directory, (number,))
    if not folder:
        return f"no folder {number} and no archive {number}.tgz (or .zip, .tar.gz, ...)"
    sources, targets = _sides(folder)
    return (
        f"{folder} has {len(sources)} Chinese and {len(targets)} English files, none of the same name; expected "
        f"are NAME.zh beside NAME.en, or folders chinese (source) and english (translation) with the same names"
    )


def plain_training_text(directory: pathlib.Path) -> tuple[PairSource, ...]:
    """Returns ``train.zh`` and ``train.en``, compressed or not; an empty tuple if one is missing."""
    source = _first_file(directory, [f"train.{ending}" for ending in ("zh", "cn", "ch")])
    target = _first_file(directory, ["train.en"])
    return (PairFiles(source, target, encodings=ENCODINGS),) if source and target else ()


def evaluation_set(directory: pathlib.Path, name: str, number: str, references: int) -> PairSource | None:
    """Returns the files of an evaluation set: plain ones, or SGML in a folder; None if the set is incomplete.

    Args:
      directory: Where the set is.
      name: The set's name, such as ``mt03``.
      number: Its catalog number, which the folder may also be named after.
      references: How many translations it must have.
    """
    for alias in _ALIASES[name]:
        source = _first_file(directory, [f"{alias}.{ending}" for ending in ("zh", "cn", "ch", "src")])
        for pattern in ("en{}", "en.{}", "ref{}", "ref.{}"):
            for first in (0, 1):
                names = [f"{alias}.{pattern.format(first + i)}" for i in range(references)]
                found = [file for reference in names if (file := _first_file(directory, [reference]))]
                if source and len(found) == references:
                    return PairFiles(source, found[0], tuple(found[1:]), encodings=ENCODINGS)
    folder = _folder(directory, (*_ALIASES[name], number))
    return _marked_up_set(folder, references) if folder else None


def _marked_up_set(folder: pathlib.Path, references: int) -> SegmentFiles | None:
    """Returns the Chinese source and the English references among a folder's SGML files; None if either is missing.

    Raises:
      UserError: There are several Chinese source files.
    """
    sources: list[pathlib.Path] = []
    targets: list[pathlib.Path] = []
    for path in _files(folder):
        if path.name.lower().removesuffix(".gz").endswith(_MARKUP) and formats.format_of(path) == formats.SEGMENTS:
            first = next(read_segments(path, ENCODINGS), None)
            if first is None or (not first.language.startswith(("zh", "ch", "man", "cmn")) and first.language):
                continue
            {"srcset": sources, "refset": targets}.get(first.kind, []).append(path)
    if len(sources) > 1:
        raise UserError(f"{folder} has several Chinese source files; keep one: {', '.join(map(str, sources))}.")
    if not sources or not targets:
        return None
    return SegmentFiles(sources[0], tuple(targets), ENCODINGS, references=references)


def _folder(directory: pathlib.Path, names: Sequence[str]) -> pathlib.Path | None:
    """Returns the folder whose name is one of ``names``, perhaps with a suffix after it; None if there is none."""
    with contextlib.suppress(OSError):
        for entry in sorted(directory.iterdir()):
            if entry.is_dir() and re.match(rf"(?:{'|'.join(map(re.escape, names))})(?![0-9A-Za-z])", entry.name, re.I):
                return entry
    return None


def _first_file(directory: pathlib.Path, names: Sequence[str]) -> pathlib.Path | None:
    return next(filter(None, (compression.with_suffix_of_file(directory / name) for name in names)), None)


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the files in and below a folder that may hold text, in the order of their paths."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and not _NO_TEXT.search(name) and not archives.is_archive(name):
                yield pathlib.Path(parent, name)


def _sides(folder: pathlib.Path) -> tuple[dict[str, pathlib.Path], dict[str, list[pathlib.Path]]]:
    """Returns the source files and the lists of their translations, both by the part of the path that they share."""
    sources: dict[str, pathlib.Path] = {}
    targets: dict[str, list[pathlib.Path]] = {}
    marked = [(path, *_side_and_key(path.relative_to(folder))) for path in _files(folder)]
    # Names may differ in case, as NAME.zh and name.en, unless several sources differ in nothing else.
    spellings: dict[str, set[str]] = {}
    for _, side, key in marked:
        if side == SOURCE:
            spellings.setdefault(key.lower(), set()).add(key)
    for path, side, spelled in marked:
        key = spelled if len(spellings.get(spelled.lower(), ())) > 1 else spelled.lower()
        if side == SOURCE:
            # A second source of the same name stays by itself, and so counts as unpaired.
            sources[key if key not in sources else f"{key}//{path.name}"] = path
        elif side == TARGET:
            targets.setdefault(key, []).append(path)
    return sources, targets


def _side_and_key(path: pathlib.Path) -> tuple[str, str]:
    """Returns which side a file belongs to ("" if its path does not tell) and the path without that mark."""
    name = path.name
    for ending in _COMPRESSIONS:
        name = name.removesuffix(ending)
    side = ""
    pieces: list[str] = []
    folders: list[str] = []
    for piece in name.split("."):
        if not side and pieces and piece.lower() in _ENDINGS:
            side = _ENDINGS[piece.lower()]
        elif not (pieces and piece.lower() in ("sgm", "sgml", "xml", "txt")):
            pieces.append(piece)
    for folder in path.parts[:-1]:
        if folder.lower() in _FOLDERS and (not side or side == _FOLDERS[folder.lower()]):
            side = _FOLDERS[folder.lower()]
        elif not _TRANSLATOR.fullmatch(folder):
            folders.append(folder)
    return side, "/".join((*folders, ".".join(pieces)))
