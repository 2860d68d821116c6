"""Reads probing tasks in SentEval's format (Conneau et al. 2018): sentences, their classes and partitions.

A line is ``PARTITION TAB CLASS TAB SENTENCE``: the partition ``tr``, ``va`` or ``te``, the class, and the sentence's
tokens separated by spaces. If there are more fields, the sentence is the last one. Imports no TensorFlow.
"""

import collections
import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from t2t_ext.data.corpora import readers
from t2t_ext.data.corpora.compression import SUFFIXES
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs

SURFACE, SYNTACTIC, SEMANTIC, OTHER = CATEGORIES = ("surface", "syntactic", "semantic", "other")
TRAIN, VALID, TEST = PARTITIONS = ("tr", "va", "te")
# File name without ".txt" -> the task's name in the papers' tables, and its category (Ampomah et al. 2021, table 4).
TASKS: Mapping[str, tuple[str, str]] = {
    "sentence_length": ("SentLen", SURFACE),
    "word_content": ("WC", SURFACE),
    "tree_depth": ("TDep", SYNTACTIC),
    "bigram_shift": ("BShift", SYNTACTIC),
    "top_constituents": ("ToCo", SYNTACTIC),
    "past_present": ("Tense", SEMANTIC),
    "subj_number": ("SubjN", SEMANTIC),
    "obj_number": ("ObjN", SEMANTIC),
    "odd_man_out": ("SoMo", SEMANTIC),
    "coordination_inversion": ("CoIn", SEMANTIC),
}
_FIELDS = 3
_SUBSET_SEED = 1  # seed for drawing a limited number of sentences: the same ones in every call and for every run


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The sentences of a partition, tokens separated by spaces, and the numbers of their classes, int32 [sentences]."""

    sentences: tuple[str, ...]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.sentences)


@dataclasses.dataclass(frozen=True, eq=False)
class ProbingTask:
    """A probing task.

    Attributes:
      stem: The file's name without its suffixes.
      path: The file.
      sha256: Digest of the file.
      classes: Names of the classes in the training partition, sorted.
      partitions: ``tr``, ``va``, ``te`` -> the partition.
      dropped: Reason -> number of lines left out for it.
      first: Reason -> number of the first such line, from 1.
      repeated: Number of test sentences that are also training sentences.
    """

    stem: str
    path: pathlib.Path
    sha256: str
    classes: tuple[str, ...]
    partitions: Mapping[str, Partition]
    dropped: Mapping[str, int]
    first: Mapping[str, int]
    repeated: int

    @property
    def name(self) -> str:
        """The task's name in the papers or, for other tasks, the file's stem."""
        return TASKS.get(self.stem, (self.stem, OTHER))[0]

    @property
    def category(self) -> str:
        """One of ``CATEGORIES``."""
        return TASKS.get(self.stem, (self.stem, OTHER))[1]

    @property
    def majority(self) -> float:
        """The accuracy on the test partition of always predicting the most frequent class in training."""
        counts = np.bincount(self.partitions[TRAIN].labels, minlength=len(self.classes))
        return float((self.partitions[TEST].labels == int(counts.argmax())).mean())

    def notes(self) -> list[str]:
        """Returns notes on the file for the reader: lines left out, and test sentences that are also in training."""
        found = [
            f"{self.path}: lines left out: {count:,}, {reason} (first: line {self.first[reason]})"
            for reason, count in self.dropped.items()
        ]
        if self.repeated:
            found.append(
                f"{self.path}: {self.repeated:,} of {len(self.partitions[TEST]):,} test sentences are training "
                "sentences, too"
            )
        return found


def stem_of(path: files.PathLike) -> str:
    """Returns a file's name without ``.txt`` and any compression suffix."""
    name = pathlib.Path(path).name
    for suffix in SUFFIXES[1:]:
        name = name.removesuffix(suffix)
    return name.removesuffix(".txt")


def task_files(directory: files.PathLike) -> list[pathlib.Path]:
    """Returns those files of the ten tasks that a directory has, plain or compressed, in the order of ``TASKS``.

    Raises:
      UserError: The directory does not exist or has none of these files.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise UserError(f"There is no directory {directory} (--probing_dir).")
    candidates = {stem: [directory / f"{stem}.txt{suffix}" for suffix in SUFFIXES] for stem in TASKS}
    found = [next(filter(pathlib.Path.is_file, paths), None) for paths in candidates.values()]
    there = [path for path in found if path is not None]
    if not there:
        raise UserError(
            f"{directory} has none of the probing tasks: {', '.join(f'{stem}.txt' for stem in TASKS)} (or .gz). Name "
            "other files with --tasks=FILE,FILE."
        )
    return there


def read_task(path: files.PathLike, limits: Sequence[int] = (0, 0, 0), max_characters: int = 1000) -> ProbingTask:
    """Reads a task from a plain or compressed file.

    Unusable lines are left out and counted: lines that have fewer than three fields, an unknown partition, no class or
    sentence, more than ``max_characters`` characters, or a class that training does not have, or that are not UTF-8.
    ``limits`` are the maximum numbers of training, validation and test sentences, 0 for all. They select a random
    subset that is always the same.

    Raises:
      UserError: The file cannot be read, a partition is empty, or training has only one class.
    """
    path = pathlib.Path(path)
    if not inputs.is_file(path):
        raise UserError(f"There is no file {path}. Probing tasks are files as sentence_length.txt of SentEval.")
    dropped: collections.Counter[str] = collections.Counter()
    first: dict[str, int] = {}
    rows: dict[str, list[tuple[str, str, int]]] = {name: [] for name in PARTITIONS}
    for number, (reason, row) in enumerate(_rows(path, max_characters), 1):
        if reason:
            dropped[reason] += 1
            first.setdefault(reason, number)
        else:
            rows[row[0]].append((row[1], row[2], number))
    classes = tuple(sorted({label for label, _, _ in rows[TRAIN]}))
    numbers = {label: number for number, label in enumerate(classes)}
    for name in (VALID, TEST):
        strange = [number for label, _, number in rows[name] if label not in numbers]
        if strange and classes:
            reason = "a class that training does not have"
            dropped[reason] += len(strange)
            first[reason] = min(first.get(reason, strange[0]), strange[0])
            rows[name] = [row for row in rows[name] if row[0] in numbers]
    _check(path, rows, classes, dropped)
    partitions = {}
    for name, limit in zip(PARTITIONS, limits, strict=True):
        kept = rows[name]
        if 0 < limit < len(kept):
            chosen = np.sort(np.random.default_rng(_SUBSET_SEED).permutation(len(kept))[:limit])
            kept = [kept[i] for i in chosen]
        labels = np.array([numbers[label] for label, _, _ in kept], np.int32)
        partitions[name] = Partition(tuple(sentence for _, sentence, _ in kept), labels)
    trained = set(partitions[TRAIN].sentences)
    repeated = sum(sentence in trained for sentence in partitions[TEST].sentences)
    digest = files.sha256_of_file(inputs.on_disk(path))
    return ProbingTask(stem_of(path), path, digest, classes, partitions, dict(dropped), first, repeated)


def _rows(path: pathlib.Path, max_characters: int) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yields for every line the reason why it is unusable (or ""), and its partition, class and sentence."""
    nothing = ("", "", "")
    for line in readers.read_lines(path):
        try:
            fields = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            yield "not UTF-8", nothing
            continue
        if len(fields) < _FIELDS:
            yield f"fewer than {_FIELDS} fields", nothing
            continue
        partition, label, sentence = fields[0].strip(), fields[1].strip(), " ".join(fields[-1].split())
        if partition not in PARTITIONS:
            yield f"an unknown partition (there are {', '.join(PARTITIONS)})", nothing
        elif not label:
            yield "no class", nothing
        elif not sentence:
            yield "no sentence", nothing
        elif len(sentence) > max_characters:
            yield f"more than {max_characters:,} characters", nothing
        else:
            yield "", (partition, label, sentence)


def _check(
    path: pathlib.Path,
    rows: Mapping[str, list[tuple[str, str, int]]],
    classes: tuple[str, ...],
    dropped: Mapping[str, int],
) -> None:
    counts = ", ".join(f"{name} {len(rows[name]):,}" for name in PARTITIONS)
    left_out = "; ".join(f"{count:,} lines left out: {reason}" for reason, count in dropped.items())
    problem = ""
    if not all(rows.values()):
        problem = f"an empty partition ({counts})"
    elif len(classes) < 2:
        problem = f"one class only in training ({classes[0]}): there is nothing to tell apart"
    if problem:
        raise UserError(
            f"{path} has {problem}{'; ' if left_out else ''}{left_out}. A line is PARTITION TAB CLASS TAB SENTENCE, "
            "PARTITION being tr, va or te."
        )


def digest_of(task: ProbingTask) -> str:
    """Returns the SHA-256 of the used sentences in order, the only part of a task that features depend on."""
    hashed = hashlib.sha256()
    for name in PARTITIONS:
        for sentence in task.partitions[name].sentences:
            hashed.update(f"{name}\t{sentence}\n".encode())
    return hashed.hexdigest()
