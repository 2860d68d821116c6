"""The user's own parallel text, given by flags, without any code."""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext import registry
from t2t_ext.data import readers
from t2t_ext.data.readers import PairFiles
from t2t_ext.errors import UserError
from t2t_ext.problem import DEV, TEST, TRAIN, ParallelFilesProblem, Sample

MOST_DEV_LINES = 2000
DEV_SHARE = 0.05
_DEV_SEED = 20180731


@registry.register_problem
class TranslateParallelText(ParallelFilesProblem):
    """Line-aligned files, plain or gzipped, or tab-separated files of source and target.

    Options (flags of ``t2t_ext-datagen``):
      train_source, train_target: Files of the same number of lines each; several pairs of files are separated by
        commas. Without ``train_target`` the sources are tab-separated files of source and target.
      dev_source, dev_target: Likewise, but one source; several targets are several reference translations.
      test_source, test_target: Likewise.
      dev_lines: Without ``dev_source``, so many lines of the training text, chosen at random with a fixed seed, become
        the dev set and are not trained on; 0 for 5%, but at most 2,000. A training line that repeats a held-out line
        word for word stays: take duplicates out first.
      source_language, target_language: Tags such as ``de``, noted with the data.
    """

    path_options = ("train_source", "train_target", "dev_source", "dev_target", "test_source", "test_target")

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        train_source: str = "",
        train_target: str = "",
        dev_source: str = "",
        dev_target: str = "",
        test_source: str = "",
        test_target: str = "",
        dev_lines: int = 0,
        source_language: str = "",
        target_language: str = "",
    ) -> None:
        """Makes the problem; reads nothing yet. Without any files it can find data that were generated before.

        Raises:
          UserError: The options do not go together.
        """
        super().__init__(
            name=name, was_reversed=was_reversed, source_language=source_language, target_language=target_language
        )
        given = {
            "train_source": train_source,
            "train_target": train_target,
            "dev_source": dev_source,
            "dev_target": dev_target,
            "test_source": test_source,
            "test_target": test_target,
            "dev_lines": dev_lines,
            "source_language": source_language,
            "target_language": target_language,
        }
        self._options = {option: value for option, value in given.items() if value}
        if dev_lines < 0 or (dev_lines and dev_source):
            raise UserError(
                f"--dev_lines={dev_lines}: give a positive number of lines to hold out of the training text, or "
                f"--dev_source and no --dev_lines."
            )
        self._files = {split: self._paired(split) for split in (TRAIN, DEV, TEST)}
        self.splits = (TRAIN, DEV, TEST) if self._files[TEST] else (TRAIN, DEV)
        self.multiple_references = any(files.references for pairs in self._files.values() for files in pairs)
        self._counts: dict[PairFiles, int] = {}

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that were given."""
        return self._options

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Checks that all files are there.

        Raises:
          UserError: No training text is given, or files are missing; all that are missing are listed.
        """
        del tmp_dir
        if not self._files[TRAIN]:
            raise UserError(
                f"{self.base_name} needs your training text: --train_source=FILE --train_target=FILE (plain or .gz, "
                f"one sentence a line), or --train_source=FILE.tsv (source TAB target); --dev_source and --dev_target "
                f"likewise."
            )
        paths = [path for pairs in self._files.values() for files in pairs for path in files.paths]
        readers.require_files(paths, "Correct the flags that name them (--train_source, --dev_target, ...).")

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairFiles]:
        """Returns the files of a split; those of train, where the dev set is held out of it."""
        del tmp_dir
        return self._files[TRAIN] if self._is_held_out(split) else self._files[split]

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
        lines_before = 0
        for files in self._files[TRAIN]:
            for source, target in readers.read_pairs(
                files, self.reading, lambda number, before=lines_before: (before + number in held_out) == is_dev
            ):
                if is_dev and (not source.strip() or not target.strip()):
                    self.reading.drops["empty"] += 1
                    continue
                yield {"inputs": source, "targets": [target] if self.multiple_references else target}
            lines_before += self._lines(files)

    def _paired(self, split: str) -> tuple[PairFiles, ...]:
        """Returns the files that the options of a split name."""
        sources, targets = ([*self._paths(f"{split}_{side}")] for side in ("source", "target"))
        if not sources:
            if targets:
                raise UserError(f"--{split}_target is given without --{split}_source; give both.")
            return ()
        if not targets:
            return tuple(
                PairFiles(path, advice=f" (of line-aligned files, give --{split}_target too)") for path in sources
            )
        if split != TRAIN and len(sources) == 1:
            return (PairFiles(sources[0], targets[0], tuple(targets[1:])),)
        if len(sources) != len(targets):
            raise UserError(
                f"--{split}_source names {len(sources)} file(s) and --{split}_target {len(targets)}; "
                f"every source file needs its target file."
            )
        return tuple(PairFiles(source, target) for source, target in zip(sources, targets, strict=True))

    def _paths(self, option: str) -> Iterator[pathlib.Path]:
        for path in self._options.get(option, "").split(","):
            if path:
                yield pathlib.Path(path).expanduser()

    def _is_held_out(self, split: str) -> bool:
        return split == DEV and not self._files[DEV]

    def _shares_training_text(self, split: str) -> bool:
        return split in (TRAIN, DEV) and not self._files[DEV]

    def _lines(self, files: PairFiles) -> int:
        if files not in self._counts:
            self._counts[files] = readers.count_pairs(files)
        return self._counts[files]

    def _training_lines(self) -> int:
        return sum(self._lines(files) for files in self._files[TRAIN])

    def _held_out_lines(self) -> list[int]:
        """Returns which lines of the training text, counted from 1 through all files, are the dev set.

        Raises:
          UserError: There are not enough lines.
        """
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
