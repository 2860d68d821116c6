"""First weights from another run: by variable name, and by piece where the vocabulary is another one."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_ext.data.text_encoder import FIRST_TEXT_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.persistence import checkpoints, run_directory

Encoders = tuple[SubwordEncoder, SubwordEncoder]
SIDES = ("source", "target")
# Matrices that another run may share with others: where a name is not in the checkpoint, what else holds its rows.
_SHARED_AS = {
    "source_embedding/embeddings": ("embedding/embeddings",),
    "target_embedding/embeddings": ("embedding/embeddings",),
    "softmax/embeddings": ("target_embedding/embeddings", "embedding/embeddings"),
}


@dataclasses.dataclass(frozen=True)
class WarmStartReport:
    """What a warm start did.

    Attributes:
      origin: The checkpoint that weights came from.
      loaded: Names of variables that were taken as they are.
      mapped: Name -> (rows taken, rows of the new vocabulary): the rows of shared pieces were taken.
      skipped: Name -> why a variable of the checkpoint was not taken.
      new: Names of variables that the checkpoint does not have; they keep their fresh values.
      unshared: Name -> the checkpoint's variable that was taken for it, since there they are one matrix.
    """

    origin: pathlib.Path
    loaded: list[str]
    mapped: dict[str, tuple[int, int]]
    skipped: dict[str, str]
    new: list[str]
    unshared: dict[str, str]

    def lines(self) -> list[str]:
        """Returns the report for people."""
        lines = [f"warm start from {self.origin}: {len(self.loaded)} variables loaded as they are"]
        lines += [
            f"  {name}: rows of {taken} of {total} pieces taken over, the others are new"
            for name, (taken, total) in self.mapped.items()
        ]
        lines += [f"  {name}: from {old}, which is one with it there" for name, old in self.unshared.items()]
        lines += [f"  skipped {name}: {why}" for name, why in self.skipped.items()]
        lines.append(f"  new, not in the checkpoint: {', '.join(self.new)}" if self.new else "  no variable is new")
        return lines


def warm_start(
    fresh: Mapping[str, np.ndarray], encoders: Encoders, sides: Mapping[str, str], origin: str
) -> tuple[dict[str, np.ndarray], WarmStartReport]:
    """Takes over weights of another run.

    Args:
      fresh: Name -> freshly initialised array of the new model.
      encoders: The new run's source and target encoder.
      sides: Name -> ``source`` or ``target`` for variables whose rows (axis 0) are pieces of that vocabulary.
      origin: A run directory, or a checkpoint in one (its vocabulary is needed).

    Returns:
      (name -> array for every name of ``fresh``, the report).

    Raises:
      UserError: There is no such run or checkpoint, or nothing in it fits.
    """
    run, path = find_checkpoint(origin)
    old = checkpoints.load_arrays(path, "model")
    old_encoders = run.text_encoders()
    row_maps = {
        side: None if ours.ids_sha256 == theirs.ids_sha256 else shared_rows(ours, theirs)
        for side, ours, theirs in zip(SIDES, encoders, old_encoders, strict=True)
    }
    arrays, report = dict(fresh), WarmStartReport(path, [], {}, {}, [], {})
    for name, value in fresh.items():
        row_map = row_maps[sides[name]] if name in sides else None
        taken = next((other for other in (name, *_SHARED_AS.get(name, ())) if other in old), None)
        if taken is None:
            report.new.append(name)
            continue
        array = old[taken]
        if array.shape[1:] != value.shape[1:] or (row_map is None and array.shape != value.shape):
            report.skipped[name] = f"its shape is {list(array.shape)}, here {list(value.shape)}"
            continue
        if taken != name:
            report.unshared[name] = taken
        if row_map is None:
            arrays[name] = array.astype(value.dtype)
            report.loaded.append(name)
        else:
            arrays[name] = _with_rows(value, array, row_map)
            report.mapped[name] = (len(row_map[0]), len(value))
    used = {*fresh, *report.unshared.values()}
    report.skipped.update({name: "the new model has no such variable" for name in old if name not in used})
    if not report.loaded and not report.mapped:
        raise UserError(
            f"Nothing in {path} fits this model: the checkpoint has {', '.join(sorted(old)[:3])}, ... "
            "Start from a run of the same kind of model, or leave --warm_start_from out."
        )
    return arrays, report


def shared_rows(ours: SubwordEncoder, theirs: SubwordEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Finds the pieces that two vocabularies share.

    Returns:
      (rows in ours, rows in theirs), int64 [n] each, of the same pieces.
    """
    their_ids = {piece: row for row, piece in enumerate(_pieces(theirs))}
    pairs = [(row, their_ids[piece]) for row, piece in enumerate(_pieces(ours)) if piece in their_ids]
    if not pairs:
        return np.zeros([0], np.int64), np.zeros([0], np.int64)
    new_rows, old_rows = np.array(pairs, np.int64).T
    return new_rows, old_rows


def find_checkpoint(origin: str) -> tuple[run_directory.RunDirectory, pathlib.Path]:
    """Finds the checkpoint that ``--warm_start_from`` means, and the run that it belongs to.

    Raises:
      UserError: There is none, or it lies in no run directory.
    """
    path = pathlib.Path(origin)
    if not path.exists() and not path.parent.exists():
        raise UserError(f"--warm_start_from={origin} does not exist. Give a run directory or a checkpoint in one.")
    for folder in (path, *path.parents):
        if run_directory.RunDirectory.exists(folder):
            run = run_directory.RunDirectory.open(folder)
            wanted = None if folder == path else path
            return run, checkpoints.resolve_checkpoint(folder, wanted)
    raise UserError(
        f"--warm_start_from={origin} is neither a run directory nor a checkpoint in one. The run's subword model is "
        "needed to know which row of an embedding means which piece: copy the whole run directory."
    )


def vocabulary_sides(model: Any) -> dict[str, str]:
    """Returns which variables of a model have a row for each piece: name -> ``source`` or ``target``."""
    sides = {}
    for part, side in (("source_embedding", "source"), ("target_embedding", "target"), ("softmax", "target")):
        for variable in getattr(model, part).variables:
            sides[variable.path.split("/", 1)[1]] = side
    return sides


def _pieces(encoder: SubwordEncoder) -> list[tuple[str, str]]:
    """Returns what tells every row: ``th`` of one kind of subwords is not ``th`` of another, special ids are equal."""
    pieces = encoder.pieces(range(encoder.vocab_size))
    return [("" if row < FIRST_TEXT_ID else encoder.kind, piece) for row, piece in enumerate(pieces)]


def _with_rows(fresh: np.ndarray, old: np.ndarray, row_map: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    new_rows, old_rows = row_map
    mapped = fresh.copy()
    mapped[new_rows] = old[old_rows]
    return mapped
