"""Unfinished translations of training data: which chunks there are, which are done, and how they are joined.

A chunk is some thousand pairs of a split, translated by one of the models. Each chunk is a file of its own, which is
written completely or not at all and records the settings it was made with. A killed process therefore loses at most
one chunk, several machines can share the work, and chunks of other models never get into the same set. The work is
kept in a hidden folder of the data directory (``.P_synchronous.decoding`` for pseudo references) until all of it is
joined. This module imports no TensorFlow.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from t2t_ext.config.decode import NOT_IN_THE_RESULT, DecodeHParams
from t2t_ext.data.corpora.text_lines import one_line
from t2t_ext.data.datasets.example_store import UNREADABLE
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import shard_name, text_name
from t2t_ext.data.datasets.pseudo_references import DIRECTIONS, SplitPseudo
from t2t_ext.data.generation.shards import npz_bytes
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs, locks, stored

DEFAULT_CHUNK_PAIRS = 2000

_SETTINGS = "settings.json"
# These say where a run is; work can be resumed after the run has moved.
_FOR_PEOPLE_ONLY = frozenset({"run"})
# Decode hparams that do not count, since one translation of each source is kept.
NOT_IN_THE_TRANSLATIONS = (*NOT_IN_THE_RESULT, "num_hypotheses", "return_beams", "write_beam_scores")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some pairs of a split for one of the models.

    Attributes:
      split: Name of the split, such as ``train``.
      direction: Which model: ``l2r`` or ``r2l``, or its name in augmented data.
      number: Number of the chunk among those of the split and model.
      first: Number of the first pair.
      last: Number of the last pair plus 1.
    """

    split: str
    direction: str
    number: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the chunk's file."""
        return f"{self.split}.{self.direction}.{self.number:06d}.npz"

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.last - self.first


@dataclasses.dataclass(frozen=True)
class Translations:
    """The translations of some pairs by a model.

    Attributes:
      ids: A sequence of ids in text order with EOS for each pair; empty if the pair failed.
      texts: The same translations as text.
      failures: Why each pair failed; empty if it did not.
    """

    ids: Sequence[Sequence[int] | np.ndarray]
    texts: Sequence[str]
    failures: Sequence[str]


def plan(pairs: Mapping[str, int], chunk_pairs: int, models: Sequence[str] = DIRECTIONS) -> list[Chunk]:
    """Returns the chunks for numbers of pairs by split, at most ``chunk_pairs`` each, in the order of their making."""
    return [
        Chunk(split, direction, number, first, min(first + chunk_pairs, count))
        for split, count in pairs.items()
        for direction in models
        for number, first in enumerate(range(0, count, chunk_pairs))
    ]


class WorkFolder:
    """The folder of unfinished work; created by ``open``.

    Attributes:
      path: The folder.
    """

    def __init__(self, path: pathlib.Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._made_with = _made_with(settings)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        path: pathlib.Path,
        settings: Mapping[str, Any],
        overwrite: bool,
        what: str,
        shard: tuple[int, int] | None = None,
    ) -> Iterator[Self]:
        """Opens or begins the work of a problem, and keeps other processes from doing the same part meanwhile.

        Args:
          path: The folder, in an existing data directory.
          settings: Everything that the ids depend on, ready for JSON.
          overwrite: Whether work done with other settings is discarded.
          what: What is made, for messages.
          shard: (i, n): this process does the i-th of n parts; with (0, 1), it does everything and joins it. None: the
            same as (0, 1), but the work cannot be shared.

        Raises:
          UserError: There is work done with other settings, another process is doing the same work, or the folder
            cannot be created.
        """
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise UserError(f"{path.parent} cannot be written to: {why}. Choose another folder.") from error
        share = "share the work: --shard=1/2 for one process, --shard=2/2 for the other."
        advice = f"Wait until it is done, or {share if shard else 'choose another directory.'}"
        held = functools.partial(locks.held, what=f"is making {what} in {path.parent}", advice=advice)
        with contextlib.ExitStack() as stack:
            part = shard if shard != (0, 1) else None
            stack.enter_context(held(path / "lock", shared=part is not None))
            if part:
                stack.enter_context(held(path / f"lock.{part[0]}-of-{part[1]}"))
            files.remove_leftovers(path)
            work = cls(path, settings)
            work._check_settings(settings, overwrite, alone=part is None)
            yield work

    def _check_settings(self, settings: Mapping[str, Any], overwrite: bool, *, alone: bool) -> None:
        """Records the settings of the work, or checks that they are the recorded ones.

        If no other process can be at work here (``alone``) and nothing was made, other settings replace them.
        """
        noted, chunks = self.path / _SETTINGS, list(self.path.glob("*.npz"))
        try:
            before = stored.read(noted, dict[str, Any])
        except FileNotFoundError:
            before = {} if chunks else None
        except (OSError, stored.Damaged):
            before = {}
        if before is not None and not differences(before, settings):
            self._made_with = _made_with(before)  # as in the chunks, where more settings may have counted
            return
        if before is not None and not overwrite and not (alone and not chunks):
            found = differences(before, settings) if before else [f"{_SETTINGS} is missing or damaged"]
            raise UserError(
                f"{self.path} holds unfinished work that was begun in another way: {'; '.join(found)}. Give what was "
                f"given then to resume it, or --overwrite to begin again."
            )
        for chunk in chunks:
            chunk.unlink()
        files.write_text_atomically(noted, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")

    def is_done(self, chunk: Chunk) -> bool:
        """Returns whether a chunk is there.

        Raises:
          UserError: The chunk is damaged, or was made with other settings (copied from another machine's work).
        """
        path = self.path / chunk.name
        if not path.exists():
            return False
        with self._reading(path), np.load(path, allow_pickle=False) as content:
            made_with, pairs = content["made_with"], len(content["lengths"])
        if not np.array_equal(made_with, self._made_with):
            raise UserError(
                f"{path} was made with other models, settings or data than {_SETTINGS} in its folder says. Remove that "
                f"file, which is then made again, and see where it came from."
            )
        if pairs != chunk.pairs:
            raise UserError(f"{path} holds {pairs} pairs instead of {chunk.pairs}. Remove that file.")
        return True

    def save(self, chunk: Chunk, made: Translations) -> None:
        """Saves the translations of a chunk.

        Raises:
          UserError: The disk is full, or the folder no longer exists.
        """
        flat = np.array([i for ids in made.ids for i in ids], np.int32)
        reasons = sorted({reason for reason in made.failures if reason})
        numbers = {"": 0, **{reason: number for number, reason in enumerate(reasons, 1)}}
        arrays = {
            "made_with": self._made_with,
            "ids": flat.astype(np.uint16) if not flat.size or flat.max() < 1 << 16 else flat,
            "lengths": np.array([len(ids) for ids in made.ids], np.int32),
            "texts": np.frombuffer("".join(f"{one_line(text)}\n" for text in made.texts).encode(), np.uint8),
            "failures": np.array([numbers[reason] for reason in made.failures], np.uint8),
            "reasons": np.frombuffer("\n".join(reasons).encode(), np.uint8),
        }
        files.write_bytes_atomically(self.path / chunk.name, npz_bytes(arrays))

    def load(self, chunk: Chunk) -> Translations:
        """Returns the translations in a chunk; the ids are arrays.

        Raises:
          UserError: The chunk is missing or damaged.
        """
        path = self.path / chunk.name
        with self._reading(path), np.load(path, allow_pickle=False) as content:
            ids = np.split(content["ids"], np.cumsum(content["lengths"])[:-1])
            reasons = ["", *content["reasons"].tobytes().decode().split("\n")]
            return Translations(
                ids=ids,
                texts=content["texts"].tobytes().decode().split("\n")[:-1],
                failures=[reasons[number] for number in content["failures"]],
            )

    def remove(self) -> None:
        """Removes the folder with everything in it."""
        files.remove_directory(self.path)

    @contextlib.contextmanager
    def _reading(self, path: pathlib.Path) -> Iterator[None]:
        try:
            yield
        except UNREADABLE as error:
            raise UserError(
                f"{path} is damaged ({error}). Remove that file and run the same command again: it is made again, the "
                f"others stay."
            ) from error


def shortlist_settings(hparams: DecodeHParams) -> dict[str, str]:
    """Returns what settings record of a shortlist besides its path: the SHA-256 of the file; nothing without one.

    Raises:
      UserError: The file cannot be read.
    """
    if not hparams.shortlist:
        return {}
    try:
        path = inputs.on_disk(pathlib.Path(hparams.shortlist).expanduser())
        return {"shortlist_sha256": files.sha256_of_file(path)}
    except OSError as error:
        raise UserError(f"The shortlist {hparams.shortlist} cannot be read: {error.strerror or error}.") from error


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of the settings that ids depend on; the location of a run does not count."""

    def counting(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: counting(each) for name, each in value.items() if name not in _FOR_PEOPLE_ONLY}
        return list(map(counting, value)) if isinstance(value, list) else value

    return hashlib.sha256(json.dumps(counting(settings), sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _made_with(settings: Mapping[str, Any]) -> np.ndarray:
    """Returns the fingerprint of settings as uint8 [32]."""
    return np.frombuffer(bytes.fromhex(fingerprint(settings)), np.uint8)


def differences(before: Any, now: Any, place: str = "") -> list[str]:
    """Returns the differences between two settings, one phrase each, except those that do not affect translations."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = [name for name in {**before, **now} if name not in (*_FOR_PEOPLE_ONLY, *NOT_IN_THE_TRANSLATIONS)]
        return [
            phrase
            for name in names
            for phrase in differences(before.get(name), now.get(name), f"{place} {name}".strip())
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [phrase for pair in zip(before, now, strict=True) for phrase in differences(*pair, place)]
    shown = [json.dumps(value, ensure_ascii=False) for value in (before, now)]
    was, is_now = (text if len(text) <= 60 else f"{text[:40]}..." for text in shown)
    return [] if before == now else [f"{place} was {was}, now {is_now}"]


def shard_sizes(data: GeneratedData, split: str) -> list[int]:
    """Returns the number of pairs in each shard of a split.

    Raises:
      UserError: A shard is damaged.
    """
    sizes = []
    for path in data.shard_paths(split):
        try:
            with np.load(path, allow_pickle=False) as shard:
                sizes.append(len(shard["inputs_lengths"]))
        except UNREADABLE as error:
            raise UserError(
                f"The data shard {path} is damaged: {error}. Make it again: t2t_ext-datagen "
                f"--problem={data.manifest.problem} --data_dir={data.data_dir} --overwrite"
            ) from error
    return sizes


def join(
    work: WorkFolder, chunks: Sequence[Chunk], sizes: Sequence[int], problem: str, split: str, folder: pathlib.Path
) -> SplitPseudo:
    """Writes a split's shards, with ``sizes`` pairs each, and its texts, from all its chunks in order.

    Returns:
      What was written, without statistics.

    Raises:
      UserError: A chunk is missing or damaged, or the disk is full.
    """
    failures: dict[str, collections.Counter[str]] = {direction: collections.Counter() for direction in DIRECTIONS}

    def pairs_of(direction: str) -> Iterator[tuple[Sequence[int] | np.ndarray, str]]:
        for chunk in chunks:
            if chunk.direction == direction:
                loaded = work.load(chunk)
                failures[direction].update(filter(None, loaded.failures))
                yield from zip(loaded.ids, loaded.texts, strict=True)

    pairs = {direction: pairs_of(direction) for direction in DIRECTIONS}
    texts = {direction: text_name(problem, split, direction) for direction in DIRECTIONS}
    shards = [shard_name(problem, split, index, len(sizes)) for index in range(len(sizes))]
    with contextlib.ExitStack() as stack:
        paths = {each: stack.enter_context(files.atomic_file(folder / texts[each])) for each in DIRECTIONS}
        streams = {each: stack.enter_context(open(path, "wb")) for each, path in paths.items()}
        for name, size in zip(shards, sizes, strict=True):
            arrays: dict[str, np.ndarray] = {}
            for direction in DIRECTIONS:
                taken = list(itertools.islice(pairs[direction], size))
                flat = np.concatenate([np.zeros(0, np.uint16), *(ids for ids, _ in taken)])  # int32 if any of them is
                arrays |= {direction: flat, f"{direction}_lengths": np.array([len(ids) for ids, _ in taken], np.int32)}
                streams[direction].write("".join(f"{line}\n" for _, line in taken).encode())
            files.write_bytes_atomically(folder / name, npz_bytes(arrays))
    by_frequency = {
        direction: dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        for direction, counts in failures.items()
    }
    return SplitPseudo(pairs=sum(sizes), shards=shards, texts=texts, failures=by_frequency, statistics={})
