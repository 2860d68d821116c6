"""Holds all pairs of a split in memory as flat arrays of ids, from which batches are gathered.

4.5 million pairs of 25 + 25 tokens take 450 MB as 16-bit ids. Reading them at the start of a run
takes seconds. After that, the position in the data is a matter of arithmetic: any batch of any
epoch can be assembled without reading the data before it.

Legend: N examples, L tokens of one side in total.
"""

import concurrent.futures
import dataclasses
import pathlib
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from t2t_ext.config.cores import usable_cores
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import StoredManifest
from t2t_ext.data.datasets.pseudo_references import DIRECTIONS, PseudoReferences
from t2t_ext.data.features.float_files import FloatSequences
from t2t_ext.errors import UserError
from t2t_ext.io import files

Sequences = tuple[np.ndarray, np.ndarray]  # flat ids and offsets

_FORMAT = np.lib.format
_SIDES = ("inputs", "targets")
# Exceptions that reading a damaged .npz file may raise.
UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ExampleStore:
    """The pairs of one split; every sequence ends with EOS.

    Attributes:
      inputs: uint16 or int32 [L], source ids of all examples, one after the other.
      input_offsets: int64 [N + 1]; example i is ``inputs[input_offsets[i]:input_offsets[i + 1]]``.
      targets: uint16 or int32 [L'], target ids, stored in the same way.
      target_offsets: int64 [N + 1].
      pseudo: For ``NAME_synchronous``, the pseudo references of the L2R model and of the R2L model, each as flat ids
        (uint16 or int32) and offsets (int64 [N + 1]). Both are in text order and end with EOS; a pair without a pseudo
        reference has length 0 there. None if there are no pseudo references.
      source_features: The feature vectors of the sources, which stay on disk; ``inputs`` then holds the numbers of the
        sequences, one for each example. None if sources are ids.
    """

    inputs: np.ndarray
    input_offsets: np.ndarray
    targets: np.ndarray
    target_offsets: np.ndarray
    pseudo: tuple[Sequences, Sequences] | None = None
    source_features: FloatSequences | None = None

    @property
    def source_feature_size(self) -> int:
        """Size of the sources' feature vectors; 0 if sources are ids."""
        return 0 if self.source_features is None else self.source_features.depth

    @property
    def num_examples(self) -> int:
        """Number of pairs, N."""
        return len(self.input_offsets) - 1

    @property
    def input_lengths(self) -> np.ndarray:
        """int32 [N], number of tokens of each source, EOS included, or of its feature vectors."""
        if self.source_features is not None:
            return self.source_features.lengths[self.inputs]
        return np.diff(self.input_offsets).astype(np.int32)

    @property
    def target_lengths(self) -> np.ndarray:
        """int32 [N], number of tokens of each target, EOS included."""
        return np.diff(self.target_offsets).astype(np.int32)

    def example(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source ids, or feature vectors, and the target ids of one example."""
        source = self.inputs[self.input_offsets[index] : self.input_offsets[index + 1]]
        if self.source_features is not None:
            source = self.source_features[int(source[0])]
        return source, self.targets[self.target_offsets[index] : self.target_offsets[index + 1]]

    @classmethod
    def from_sequences(
        cls,
        inputs: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        pseudo: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] | None = None,
    ) -> Self:
        """Makes a store from sequences of ids, which must already end with EOS (except failed pseudo references).

        Raises:
          ValueError: The sides have different numbers of sequences.
        """
        sides = (inputs, targets, *(pseudo or ()))
        if len({len(side) for side in sides}) > 1:
            raise ValueError(
                f"{len(inputs)} inputs but {len(targets)} targets"
                + (f", pseudo references: {len(pseudo[0])} and {len(pseudo[1])}" if pseudo else "")
            )
        given, wanted, *rest = map(_flattened, sides)
        return cls(*given, *wanted, pseudo=(rest[0], rest[1]) if pseudo else None)

    @classmethod
    def load(cls, generated: GeneratedData, split: str, *, verify: bool = True) -> Self:
        """Reads all shards of a split, several at a time.

        With ``verify``, the SHA-256 of each shard is compared with the one in the manifest.

        Returns:
          The store in the problem's direction (sides swapped for ``NAME_rev``). It has pseudo references if the problem
          is ``NAME_synchronous`` and the split has them.

        Raises:
          UserError: There is no such split, a shard is missing or damaged (the message names it), or files do not
            belong together.
        """
        paths = [pathlib.Path(path) for path in generated.shard_paths(split)]
        folder = paths[0].parent if paths else pathlib.Path("...")
        repair = generated.manifest.command(folder)
        with concurrent.futures.ThreadPoolExecutor(min(8, usable_cores())) as pool:
            arrays = _read_shards(paths, generated.manifest, repair, pool, _SIDES, verify)
            first, second = ("targets", "inputs") if generated.was_reversed else ("inputs", "targets")
            store = cls(*arrays[first], *arrays[second])
            # Checksums of feature files are not computed again: the files may have many gigabytes.
            store = dataclasses.replace(store, source_features=generated.source_features(split))
            features, numbers = store.source_features, store.inputs
            too_large = features is not None and len(numbers) > 0 and int(numbers.max()) >= len(features)
            if features is not None and (len(numbers) != store.num_examples or too_large):
                raise UserError(
                    f"The shards and the feature files in {folder} do not belong together. Make them again: {repair}"
                )
            sidecar = generated.pseudo
            if sidecar is None or split not in sidecar.splits:
                return store
            return dataclasses.replace(store, pseudo=_load_pseudo(sidecar, split, store.num_examples, verify, pool))


def _load_pseudo(
    sidecar: PseudoReferences, split: str, num_examples: int, verify: bool, pool: concurrent.futures.Executor
) -> tuple[Sequences, Sequences]:
    """Reads the pseudo references of a split and checks that there are as many as pairs."""
    arrays = _read_shards(sidecar.shard_paths(split), sidecar.manifest, sidecar.repair, pool, DIRECTIONS, verify)
    left, right = (arrays[direction] for direction in DIRECTIONS)
    if len(left[1]) - 1 != num_examples:
        raise UserError(
            f"{sidecar.manifest.problem} in {sidecar.data_dir} has {len(left[1]) - 1:,} pseudo references for the "
            f"{num_examples:,} pairs of the {split} split. Run: {sidecar.repair}"
        )
    return left, right


def _read_shards(
    paths: Sequence[pathlib.Path],
    manifest: StoredManifest,
    repair: str,
    pool: concurrent.futures.Executor,
    sides: tuple[str, str],
    verify: bool,
) -> dict[str, Sequences]:
    """Returns side -> (flat ids, offsets).

    Each array is allocated only once: all lengths are read first, then the ids are read into their places.

    Raises:
      UserError: A shard is missing or damaged, or (with ``verify``) its SHA-256 differs from the manifest's.
    """

    def read_all(read: Callable[..., Any], *rest: Any) -> list[Any]:
        def guarded(path: pathlib.Path, *rest: Any) -> Any:
            try:
                return read(path, *rest)
            except UNREADABLE as error:
                raise UserError(f"The data shard {path} is damaged: {error}. Make it again: {repair}") from error

        return list(pool.map(guarded, paths, *rest))

    def read_lengths(path: pathlib.Path) -> dict[str, tuple[np.ndarray, np.dtype]]:
        """Returns side -> (lengths, dtype of the ids)."""
        if verify and files.sha256_of_file(path) != manifest.files.get(path.name, {}).get("sha256"):
            raise ValueError("its SHA-256 is not the manifest's")
        result = {}
        with np.load(path, allow_pickle=False) as shard:
            for side in sides:
                with shard.zip.open(f"{side}.npy") as member:
                    is_first = _FORMAT.read_magic(member) == (1, 0)
                    read_header = _FORMAT.read_array_header_1_0 if is_first else _FORMAT.read_array_header_2_0
                    shape, _, dtype = read_header(member)
                lengths = shard[f"{side}_lengths"]
                if shape != (int(lengths.sum()),):
                    raise ValueError(f"{side} has the shape {shape}, its lengths add up to {lengths.sum()}")
                result[side] = lengths, dtype
        counts = [len(result[side][0]) for side in sides]
        if counts[0] != counts[1]:
            raise ValueError(f"{counts[0]} {sides[0]} but {counts[1]} {sides[1]}")
        return result

    parts = read_all(read_lengths)
    lengths = {side: [part[side][0] for part in parts] for side in sides}
    starts = {side: np.cumsum([0, *(int(array.sum()) for array in lengths[side])]) for side in sides}
    flat = {}
    for side in sides:
        wide = any(part[side][1] != np.uint16 for part in parts)
        flat[side] = np.empty(starts[side][-1], np.int32 if wide else np.uint16)

    def fill(path: pathlib.Path, number: int) -> None:
        with np.load(path, allow_pickle=False) as shard:
            for side in sides:
                flat[side][slice(*starts[side][number : number + 2])] = shard[side]

    read_all(fill, range(len(paths)))
    return {side: (flat[side], _offsets(np.concatenate(lengths[side] or [np.zeros(0, np.int32)]))) for side in sides}


def _flattened(sequences: Sequence[Sequence[int]]) -> Sequences:
    """Returns sequences of ids as flat ids, with 16 bits if that is enough, and offsets."""
    flat = np.concatenate([np.asarray(ids, np.int32) for ids in sequences] or [np.zeros(0, np.int32)])
    small = flat.size == 0 or flat.max() < 1 << 16
    return flat.astype(np.uint16 if small else np.int32), _offsets([len(ids) for ids in sequences])


def _offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
