"""Reads, decodes and checks the samples of a split once, and keeps them for later passes.

The first pass writes them to scratch files of ``SAMPLES_PER_CHUNK`` samples, and later passes read these instead of the
raw files. The processes that encode the train split open its scratch files themselves. The prepared texts of the
subword model's training sample are kept beside them, since steps such as Moses's tokenizer cost more than all the rest.
"""

import itertools
import json
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.corpora.weighting import WeightedSample
from t2t_ext.data.features.types import Floats
from t2t_ext.problem import TRAIN, Problem, Sample

# Small enough that no process is idle at the end of a small corpus with slow text steps.
SAMPLES_PER_CHUNK = 8192


class RawSamples:
    """The samples of a split, in order, which can be read any number of times.

    Feature vectors are not stored twice: samples that have them are read from the raw files in every pass.

    Attributes:
      report: What the last pass over the raw files dropped or changed; complete at the end of the pass.
      kept: Whether the samples are in scratch files now.
    """

    def __init__(self, problem: Problem, split: str, tmp_dir: str | os.PathLike, directory: pathlib.Path) -> None:
        """Sets up the samples; reads nothing yet.

        Args:
          problem: The problem that the samples belong to.
          split: One of its splits. An unusable line is an error in all splits except ``train``.
          tmp_dir: The directory of the raw files.
          directory: The directory for the scratch files; created when it is needed.
        """
        self.report = ReadReport()
        self.kept = False
        self._problem, self._split, self._tmp_dir, self._directory = problem, split, tmp_dir, directory
        self._chunks = 0
        self._can_be_kept = not any(isinstance(feature, Floats) for feature in problem.features().values())

    def __iter__(self) -> Iterator[Sample]:
        """Returns an iterator over the samples, which reads the scratch files if the samples are kept."""
        if self.kept:
            return itertools.chain.from_iterable(map(load_samples, self.files()))
        self.report = self._problem.reading = ReadReport(strict=self._split != TRAIN)
        return self._problem.checked_samples(self._split, self._tmp_dir)

    def keep(self) -> Iterator[Sample]:
        """Yields the samples and keeps them in scratch files, unless they are kept already or have feature vectors."""
        if self.kept or not self._can_be_kept:
            yield from self
            return
        self._directory.mkdir(exist_ok=True)
        self._chunks = 0
        names = list(self._problem.features())
        for batch in batches(self):
            rows = [(getattr(each, "times", None), {name: each[name] for name in names}) for each in batch]
            _dump(rows, self._file(self._chunks))
            self._chunks += 1
            yield from batch
        self.kept = True

    def files(self) -> Iterator[pathlib.Path]:
        """Yields the scratch files, which ``load_samples`` reads."""
        return map(self._file, range(self._chunks))

    def keep_prepared(self, numbers: Sequence[int], texts: Mapping[str, Sequence[str]]) -> None:
        """Stores the prepared texts, by feature, of the samples with these numbers (from 0), if samples are kept."""
        if not self.kept:
            return
        chunks: dict[int, dict[str, dict[int, str]]] = defaultdict(lambda: {name: {} for name in texts})
        for name, column in texts.items():
            for number, text in zip(numbers, column, strict=True):
                chunk, row = divmod(number, SAMPLES_PER_CHUNK)
                chunks[chunk][name][row] = text
        for chunk, prepared in chunks.items():
            _dump(prepared, _prepared_file(self._file(chunk)))

    def discard(self, chunk: int) -> None:
        """Removes the files of a chunk that is no longer needed."""
        if self.kept:
            self._file(chunk).unlink(missing_ok=True)
            _prepared_file(self._file(chunk)).unlink(missing_ok=True)

    def _file(self, chunk: int) -> pathlib.Path:
        return self._directory / f"{chunk:06d}"


def batches(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Yields the samples in lists, one for each chunk."""
    samples = iter(samples)
    while batch := list(itertools.islice(samples, SAMPLES_PER_CHUNK)):
        yield batch


def load_samples(path: pathlib.Path) -> list[Sample]:
    """Returns the samples of a scratch file, with their declared features and how often they occur."""
    samples: list[Sample] = []
    for times, values in _load(path):
        samples.append(values if times is None else WeightedSample(values))
        if times is not None:
            samples[-1].times = times  # type: ignore[attr-defined]
    return samples


def load_prepared(path: pathlib.Path) -> dict[str, dict[int, str]]:
    """Returns the prepared texts that are stored for the samples of a scratch file, by feature and row."""
    prepared = _prepared_file(path)
    if not prepared.exists():
        return {}
    return {name: {int(row): text for row, text in texts.items()} for name, texts in _load(prepared).items()}


def _prepared_file(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.prepared")


def _dump(content: Any, path: pathlib.Path) -> None:
    # Other machines that share the folder may read it: JSON, so that nothing in it can run as code.
    text = json.dumps(content, ensure_ascii=False, default=lambda value: np.asarray(value).tolist())
    path.write_bytes(text.encode())


def _load(path: pathlib.Path) -> Any:
    return json.loads(path.read_bytes())
