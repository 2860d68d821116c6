"""Problems for the user's own parallel text, which is given by flags and needs no code."""

import dataclasses
import filecmp
import functools
import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from t2t_ext import registry
from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.data.corpora import archives, charsets, formats, raw_files, readers
from t2t_ext.data.corpora import weighting as corpora
from t2t_ext.data.corpora.readers import PairFiles, PairSource
from t2t_ext.data.corpora.rows import RowFile
from t2t_ext.data.corpora.segments import SegmentFiles
from t2t_ext.data.corpora.weighting import CorpusSource
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import inputs, log
from t2t_ext.problem import DEV, TEST, TRAIN, MixedTranslationProblem, Sample

MOST_DEV_LINES = 2000
DEV_SHARE = 0.05
_DEV_SEED = 20180731
_LINES_LOOKED_AT = 100


@registry.register_problem
class TranslateParallelText(MixedTranslationProblem):
    """The user's files: line-aligned, tab-separated, TMX, segments (SGML, WIT3's XML and tags), Parquet, JSON lines.

    The format of a file is recognized by its content (``t2t_ext.data.corpora.formats``). Each may be compressed (.gz,
    .bz2, .xz, .zst) or be in an archive: ``corpus.tgz:de-en/train.de``.

    Options are the fields of ``OwnTextOptions``. Several pairs of training files are separated by commas. Several dev
    or test targets are several reference translations. If there is no target, the source file has both sides.
    """

    path_options = ("train_source", "train_target", "dev_source", "dev_target", "test_source", "test_target")

    options_class: ClassVar[type[OwnTextOptions]] = OwnTextOptions

    def __init__(self, *, name: str | None = None, was_reversed: bool = False, **options: Any) -> None:
        """Makes the problem; reads nothing yet. Without any files it can use data that were generated before."""
        given = self.options_class(**options)
        super().__init__(
            name=name,
            was_reversed=was_reversed,
            source_language=given.source_language,
            target_language=given.target_language,
            tags=[corpora.checked_tag(tag.strip(), "--train_tags") for tag in given.train_tags.split(",")],
        )
        self._options: dict[str, Any] = {name: getattr(given, name) for name in given.changed()}
        self.default_tag = self._checked_default_tag(given.default_tag)
        self._columns, self._encodings = _columns(given.columns), _known_encodings(given.encodings)
        self._named = {split: self._paired(split) for split in (TRAIN, DEV, TEST)}
        self.splits = (TRAIN, DEV, TEST) if self._named[TEST] else (TRAIN, DEV)
        self._counts: dict[PairSource, int] = {}

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Checks that all files are there, and that source and target are not the same text.

        Raises:
          UserError: A file is missing, lacks one of the two sides, or is its own translation.
        """
        del tmp_dir
        if not self._files[TRAIN]:
            raise UserError(
                f"{self.base_name} needs your training text: --train_source=FILE --train_target=FILE (one sentence a "
                f"line, plain or compressed), or --train_source=FILE.tsv (source TAB target) or FILE.tmx; --dev_source "
                f"and --dev_target likewise."
            )
        paths = [path for pairs in self._files.values() for files in pairs for path in files.paths]
        readers.require_files(paths, "Correct the flags that name them (--train_source, --dev_target, ...).")
        for split, named in self._named.items():
            for source, *targets in named:
                if not targets:
                    _require_tabs(split, source)
                for target in targets:
                    _refuse_same_text(split, source, target)
                if targets:
                    _warn_of_tabs(split, source)

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairSource]:
        """Returns the files of a split; for a dev set that is held out of the training text, those of train."""
        del tmp_dir
        return self._files[split] or (self._files[TRAIN] if split == DEV else ())

    def count(self, split: str, tmp_dir: str | os.PathLike) -> int:
        """Returns the number of lines of a split."""
        if not self._shares_training_text(split):
            return super().count(split, tmp_dir)
        lines, held_out = self._training_lines(), len(self._held_out_lines())
        return held_out if split == DEV else lines - held_out

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the pairs of a split in the order of the files."""
        if not self._shares_training_text(split):
            yield from super().samples(split, tmp_dir)
            return
        held_out = frozenset(self._held_out_lines())
        is_dev = split == DEV
        self.reading.strict = False  # lines of the training text may be unusable
        self.reading.held_out = True
        lines_before = 0
        for files in self._files[TRAIN]:
            if is_dev and isinstance(files, CorpusSource):
                files = dataclasses.replace(files, weight=1.0)  # noqa: PLW2901 - every held-out line once

            def wanted(number: int, before: int = lines_before) -> bool:
                return (before + number in held_out) == is_dev

            for row in files.read(self.reading, wanted):
                if is_dev and not all(text.strip() for text in (_untagged(files, row[0]), *row[1:])):
                    self.reading.drops["empty"] += 1
                    if self.reading.at:
                        self.reading.first.setdefault("empty", ":".join(map(str, self.reading.at)))
                    continue
                self.reading.add_sample()
                yield corpora.as_sample(row, self.multiple_references)
            lines_before += self._lines(files)

    @functools.cached_property
    def multiple_references(self) -> bool:  # type: ignore[override]
        """Whether a dev or test set has several translations; looks into the files if they exist."""
        splits = (DEV if self._named[DEV] else TRAIN, TEST)  # a held-out dev set has the training text's references
        sources = (self._pair_source(split, *paths) for split in splits for paths in self._named[split])
        return not self.turned and any(map(_has_references, sources))

    @functools.cached_property
    def _files(self) -> dict[str, tuple[PairSource, ...]]:
        """Split -> its files. Created on demand, because it reads the beginning of each existing file."""
        found = {split: [self._pair_source(split, *paths) for paths in named] for split, named in self._named.items()}
        takes = [getattr(each, "columns", ()) or isinstance(each, RowFile) for each in itertools.chain(*found.values())]
        if self._columns and takes and not any(takes):
            raise UserError(
                f"columns={','.join(map(str, self._columns))} says which columns of a file are read, but no file that "
                "is named has columns; leave it out."
            )
        return {split: self._as_corpora(split, each) for split, each in found.items()}

    def _paired(self, split: str) -> tuple[tuple[pathlib.Path, ...], ...]:
        """Returns the files that the options name for a split; each entry has a source and its translations."""
        sources, targets = ([*self._paths(f"{split}_{side}")] for side in ("source", "target"))
        if not sources:
            if targets:
                raise UserError(f"--{split}_target is given without --{split}_source; give both.")
            return ()
        if not targets:
            return tuple((path,) for path in sources)
        if split != TRAIN and len(sources) == 1:
            return ((sources[0], *targets),)
        if len(sources) != len(targets):
            raise UserError(
                f"--{split}_source names {len(sources)} file(s) and --{split}_target {len(targets)}; "
                f"every source file needs its target file."
            )
        return tuple(zip(sources, targets, strict=True))

    def _pair_source(self, split: str, source: pathlib.Path, *targets: pathlib.Path) -> PairSource:
        languages = [self._options.get(f"{side}_language", "") for side in ("source", "target")]
        return formats.pair_source(
            source, targets, split=split, languages=(languages[0], languages[1]), separate=split == TRAIN,
            columns=self._columns, encodings=self._encodings,
        )  # fmt: skip

    def _as_corpora(self, split: str, pairs: Sequence[PairSource]) -> tuple[PairSource, ...]:
        """Returns the files of a split with their weights and tags, in the direction of this problem."""
        if self.turned:
            pairs = [corpora.ReversedPairs(files) for files in pairs]
        if split != TRAIN:
            if not self.default_tag:
                return tuple(pairs)
            return tuple(CorpusSource(name=split, files=(files,), tag=self.default_tag) for files in pairs)
        given = [self._options.get(option, "") for option in ("train_weights", "train_tags")]
        if not pairs or (len(pairs) == 1 and not any(given)):
            return tuple(pairs)
        weights = corpora.listed(given[0], len(pairs), "--train_weights")
        tags = corpora.listed(given[1], len(pairs), "--train_tags")
        names = _distinct([files.paths[0] for files in pairs])
        mixed = [
            CorpusSource(name=name, files=(files,), weight=corpora.checked_weight(weight, "--train_weights"), tag=tag)
            for name, files, weight, tag in zip(
                names, pairs, weights or ["1"] * len(pairs), tags or [""] * len(pairs), strict=True
            )
        ]
        if not any(corpus.weight for corpus in mixed):
            raise UserError(f"--train_weights={given[0]} leaves no training text.")
        return tuple(corpus for corpus in mixed if corpus.weight)

    def _checked_default_tag(self, tag: str) -> str:
        """Returns the default tag; raises a UserError if it is not one of the training tags."""
        if tag and tag not in self.tags:
            raise UserError(
                f"--default_tag={tag} is not one of --train_tags: {', '.join(self.tags) or 'none is given'}."
                f"{suggest(tag, self.tags)}"
            )
        return tag

    def _paths(self, option: str) -> Iterator[pathlib.Path]:
        paths = self._options.get(option, "")
        if "," in paths and os.path.isfile(os.path.expanduser(paths)):
            raise UserError(
                f"--{option}={paths}: commas separate files here, so that this one, whose path has a comma, cannot be "
                "given. Give it under another name, such as that of a link to it."
            )
        for path in map(str.strip, paths.split(",")):
            if path:
                yield pathlib.Path(path).expanduser()

    def _shares_training_text(self, split: str) -> bool:
        return split in (TRAIN, DEV) and not self._files[DEV]

    def _lines(self, files: PairSource) -> int:
        if files not in self._counts:
            self._counts[files] = files.count()
        return self._counts[files]

    def _training_lines(self) -> int:
        return sum(self._lines(files) for files in self._files[TRAIN])

    def _held_out_lines(self) -> list[int]:
        """Returns the line numbers of the held-out dev set, counted from 1 through all training files."""
        lines = self._training_lines()
        if not lines:
            paths = ", ".join(str(path) for files in self._files[TRAIN] for path in files.paths)
            raise UserError(f"The training text is empty ({paths}).")
        wanted = self._options.get("dev_lines") or min(MOST_DEV_LINES, max(1, int(lines * DEV_SHARE)))
        if wanted >= lines:
            raise UserError(
                f"The training text has {lines} line(s), so {wanted} cannot be held out as the dev set. "
                f"Give a dev set: --dev_source=FILE --dev_target=FILE."
            )
        return np.sort(1 + np.random.default_rng(_DEV_SEED).choice(lines, wanted, replace=False)).tolist()


def _untagged(files: PairSource, source: str) -> str:
    """Returns a source without the tag of its corpus."""
    return source.removeprefix(files.tag) if isinstance(files, CorpusSource) else source


def _require_tabs(split: str, path: pathlib.Path) -> None:
    """Raises a UserError if a file that should have both sides has only one: most of its first lines have no tab."""
    with_tab, lines = _lines_with_tab(path)
    if 2 * with_tab < lines:
        found = f"has a tab in only {with_tab} of" if with_tab else "has no tabs in"
        place = f"its first {lines} lines" if lines > 1 else "its only line"
        raise UserError(
            f"{path} {found} {place}: give --{split}_target=FILE with their translations; or, for both sides in one "
            "file, lines of source TAB target."
        )


def _warn_of_tabs(split: str, path: pathlib.Path) -> None:
    """Warns of a source file that seems to have both sides though the targets are given in another file."""
    with_tab, lines = _lines_with_tab(path)
    if 2 * with_tab > lines:
        log.warning(
            f"{path}: {with_tab} of its first {lines} lines have a tab, and all of a line is the source, as "
            f"--{split}_target is given. If the file has both sides, leave --{split}_target out."
        )


def _lines_with_tab(path: pathlib.Path) -> tuple[int, int]:
    """Returns how many of the first lines of a plain file that are not blank have a tab, and how many there are."""
    if not inputs.is_file(raw_files.on_disk(path)) or formats.format_of(path) != formats.PLAIN:
        return 0, 0
    lines = [line for line in itertools.islice(readers.read_lines(path), _LINES_LOOKED_AT) if line.strip()]
    return sum(b"\t" in line for line in lines), len(lines)


def _refuse_same_text(split: str, source: pathlib.Path, target: pathlib.Path) -> None:
    """Raises a UserError if the source and target of a split are the same text."""
    # Files of a corpus of weight 0 may be missing.
    missing = not all(inputs.is_file(raw_files.on_disk(path)) for path in (source, target))
    if missing or formats.format_of(source) == formats.SEGMENTS:  # one marked-up file may hold both sides
        return
    advice = (
        f"{'A model of it learns to copy; name' if split == TRAIN else 'Name'} the translation with --{split}_target."
    )
    (archive, member), other = archives.split_address(source), archives.split_address(target)
    if member or other[1]:
        if member == other[1] and os.path.samefile(archive, other[0]):
            raise UserError(f"--{split}_source and --{split}_target are the same file, {source}. {advice}")
        return
    if os.path.samefile(source, target):
        raise UserError(f"--{split}_source and --{split}_target are the same file, {source}. {advice}")
    both_are_files = source.is_file() and target.is_file()  # a pipe can be read only once
    if both_are_files and source.stat().st_size and filecmp.cmp(source, target, shallow=False):
        raise UserError(
            f"--{split}_source={source} and --{split}_target={target} are copies of the same text. {advice}"
        )


def _distinct(paths: Sequence[pathlib.Path]) -> list[str]:
    """Returns distinct names of files, with as many of their folders as this needs; equal paths get numbers."""
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(pathlib.Path(*path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [
        name if names.count(name) == 1 else f"{name} ({names[: number + 1].count(name)})"
        for number, name in enumerate(names)
    ]


def _columns(text: str) -> tuple[int, ...] | tuple[str, ...]:
    """Returns the numbers in ``2,4``, or the names in ``de,en``."""
    parts = tuple(part.strip() for part in text.split(",")) if text else ()
    numbers = [part.isdecimal() and int(part) > 0 for part in parts]
    are_names = len(parts) == 2 and all(parts) and not any(part.isdecimal() for part in parts)
    if not (all(numbers) or are_names) or len(set(parts)) != len(parts) or len(parts) == 1:
        raise UserError(
            f"columns={text}: give the numbers of the source's and the target's column, such as columns=1,2; of "
            "Parquet and JSON lines their names, such as columns=de,en."
        )
    return tuple(map(int, parts)) if all(numbers) else parts


def _known_encodings(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if not charsets.is_known(name):
            raise UserError(f"encodings={text}: {name!r} is not known. Known are gb18030, big5hkscs, cp1252, ...")
    return names


def _has_references(files: PairSource) -> bool:
    """Returns whether the files have more than one translation of a sentence."""
    match files:
        case PairFiles():
            return bool(files.references) or len(files.columns) > 2
        case SegmentFiles() if all(map(inputs.is_file, files.paths)):
            return files.translations() > 1
        case SegmentFiles():
            return len(files.targets) > 1
    return False
