"""Checkpoints: each is a directory that is either complete or absent, with a checksum for every file.

    RUN/checkpoints/model.ckpt-00000500/
      checkpoint.json                              step, sha256 and size of every file, names, shapes, dtypes, metadata
      model.index, model.data-00000-of-00001       the weights, under the model's stable names
      ema.index, ...                               the average of the weights that users get, if training keeps one
      training.index, ...                          what only training needs: optimizer slots, counters, loss scale

``RUN/best`` and ``RUN/averaged`` hold checkpoints with the same layout, so selected or averaged
checkpoints do not get mixed up with those from which training resumes. Each group is an ordinary
TensorFlow tensor bundle: ``tf.train.load_checkpoint(DIRECTORY + "/model")`` reads it without this package.

Only functions that read or write arrays import TensorFlow, so listing and resolving checkpoints are cheap.
"""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from t2t_ext.data.text import VOCABULARY_NAMES
from t2t_ext.errors import UserError, suggest
from t2t_ext.io import files, stored
from t2t_ext.io.stored import Count, FileEntry

FORMAT_VERSION = 1
GROUPS = ("model", "ema", "training")
DESCRIPTION_NAME = "checkpoint.json"
_RUN_FILES = ("config.json", VOCABULARY_NAMES["target"])  # every run directory has these

_NAME = re.compile(r"model\.ckpt-(\d{1,18})")
_STEP = re.compile(r"\d{1,18}")  # no step has more digits, and Python's int() refuses more than 4,300
_FOLDERS = {"latest": "checkpoints", "best": "best", "averaged": "averaged"}

Arrays = Mapping[str, Any]
Warn = Callable[[str], None]


class DamagedCheckpointError(UserError):
    """Raised for a checkpoint whose files are missing, unreadable or not as they were written.

    Attributes:
      what: The message without the advice.
    """

    def __init__(self, what: str) -> None:
        """Adds advice to the message."""
        super().__init__(f"{what} Restore it from a backup, or choose another checkpoint.")
        self.what = what


class ArrayEntry(TypedDict):
    """The shape and the dtype of a variable."""

    shape: list[Count]
    dtype: str


class _Description(TypedDict):
    """The contents of ``checkpoint.json``."""

    format_version: Count
    step: Count
    files: dict[str, FileEntry]
    groups: dict[str, dict[str, ArrayEntry]]
    metadata: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointInfo:
    """The information in ``checkpoint.json``.

    Attributes:
      path: The checkpoint's directory.
      step: Number of steps made before the checkpoint was written, including skipped ones.
      files: Name -> ``{"sha256": str, "bytes": int}`` for every file except the description itself.
      groups: Group -> variable name -> ``{"shape": list[int], "dtype": str}``.
      metadata: Anything that the writer added (metrics, origin); JSON values.
    """

    path: pathlib.Path
    step: int
    files: dict[str, FileEntry]
    groups: dict[str, dict[str, ArrayEntry]]
    metadata: dict[str, Any]

    @property
    def users_group(self) -> str:
        """The group with the weights that users get: the averages if training keeps them, else the trained weights."""
        return "ema" if "ema" in self.groups else "model"


def checkpoint_name(step: int) -> str:
    """Returns the directory name for a step; with eight digits, names sort by step up to 99,999,999."""
    return f"model.ckpt-{step:08d}"


def checkpoint_step(path: files.PathLike) -> int | None:
    """Returns the step in a checkpoint's name, with any number of leading zeros; None for other names."""
    match = _NAME.fullmatch(pathlib.Path(path).name)
    return int(match[1]) if match else None


def save_checkpoint(
    directory: files.PathLike,
    step: int,
    model: Arrays,
    *,
    training: Arrays | None = None,
    ema: Arrays | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a checkpoint, which appears under its name only when it is complete and on the disk.

    Args:
      directory: The folder that holds the checkpoints, such as ``RUN/checkpoints``.
      step: Number of steps made so far; determines the name.
      model: Name -> array or tensor, of any shape and any numeric or boolean dtype; dtypes are kept.
      training: Optimizer slots, counters and the like, in the same form. None or empty: the group is not written.
      ema: The averages of the weights that users get, in the same form. None or empty: the group is not written.
      metadata: JSON values to keep in ``checkpoint.json``, such as the metrics at this step.

    Returns:
      The checkpoint's directory.

    Raises:
      UserError: The disk is full or not writable. Nothing is left behind and older checkpoints are untouched.
    """
    import tensorflow as tf

    groups = {"model": model, "ema": ema or {}, "training": training or {}}
    final = pathlib.Path(directory) / checkpoint_name(step)
    with tf.device("CPU:0"):
        tensors = {
            group: {name: tf.convert_to_tensor(arrays[name]) for name in sorted(arrays)}
            for group, arrays in groups.items()
            if arrays
        }
    sizes = (tensor.dtype.size * int(np.prod(tensor.shape)) for group in tensors.values() for tensor in group.values())
    with files.atomic_directory(final, needed_bytes=sum(sizes) + 4096) as temporary:
        for group, values in tensors.items():
            _write_bundle(temporary / group, values)
        description = {
            "format_version": FORMAT_VERSION,
            "step": int(step),
            "files": {
                path.name: {"sha256": files.sha256_of_file(path), "bytes": path.stat().st_size}
                for path in sorted(temporary.iterdir())
            },
            "groups": {
                group: {
                    name: {"shape": tensor.shape.as_list(), "dtype": tensor.dtype.name}
                    for name, tensor in values.items()
                }
                for group, values in tensors.items()
            },
            "metadata": dict(metadata or {}),
        }
        (temporary / DESCRIPTION_NAME).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    return final


def read_info(path: files.PathLike) -> CheckpointInfo:
    """Returns a checkpoint's description without reading arrays.

    Raises:
      DamagedCheckpointError: The description is missing, unreadable or for another step.
      UserError: A newer version of this package wrote it.
    """
    path = pathlib.Path(path)
    try:
        content = stored.read(path / DESCRIPTION_NAME, stored.Versioned)
        if content["format_version"] > FORMAT_VERSION:
            raise UserError(
                f"The checkpoint {path} has format version {content['format_version']}, this t2t_ext reads up to "
                f"{FORMAT_VERSION}. Install the newer t2t_ext that wrote it."
            )
        stored.check(content, _Description)
        if checkpoint_step(path) not in (None, content["step"]):
            raise ValueError(f"its step is {content['step']}")
        return CheckpointInfo(path=path, **{k: content[k] for k in ("step", "files", "groups", "metadata")})
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"The checkpoint {path} is damaged: it has no {DESCRIPTION_NAME}.") from error
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"The checkpoint {path} is damaged: {DESCRIPTION_NAME}: {error}.") from error


def verify_checkpoint(path: files.PathLike, groups: Iterable[str] = GROUPS) -> CheckpointInfo:
    """Checks that every file of the given groups exists and is as it was written; returns the description.

    Raises:
      DamagedCheckpointError: A file is missing or has a different size or SHA-256; the message names it.
      UserError: A newer version of this package wrote the checkpoint.
    """
    info = read_info(path)
    damaged = f"The checkpoint {info.path} is damaged"
    prefixes = tuple(f"{group}." for group in groups)
    for name, expected in info.files.items():
        if not name.startswith(prefixes):
            continue
        file = info.path / name
        try:
            if (size := file.stat().st_size) != expected["bytes"]:
                raise DamagedCheckpointError(f"{damaged}: {name} has {size} bytes instead of {expected['bytes']}.")
            if files.sha256_of_file(file) != expected["sha256"]:
                raise DamagedCheckpointError(f"{damaged}: the SHA-256 of {name} does not match.")
        except OSError as error:
            raise DamagedCheckpointError(f"{damaged}: {name}: {error.strerror}.") from error
    return info


def load_arrays(path: files.PathLike, group: str = "model", *, verify: bool = True) -> dict[str, np.ndarray]:
    """Reads one group of arrays, ``model``, ``ema`` or ``training``, with the shapes and dtypes they were saved with.

    The checksums are compared first; ``verify=False`` skips this for a checkpoint that ``latest`` has just verified.

    Raises:
      DamagedCheckpointError: The files are not as they were written.
      UserError: The checkpoint has no such group.
    """
    import tensorflow as tf

    info = verify_checkpoint(path, [group]) if verify else read_info(path)
    if group not in info.groups:
        raise UserError(f"The checkpoint {info.path} has no group {group!r}; it has {', '.join(info.groups)}.")
    try:
        with files.without_pattern(info.path) as directory:
            reader = tf.train.load_checkpoint(str(directory / group))
            arrays = {name: np.asarray(reader.get_tensor(name)) for name in info.groups[group]}
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise DamagedCheckpointError(f"The checkpoint {info.path} is damaged: {group}: {error}") from error
    for name, array in arrays.items():
        if list(array.shape) != info.groups[group][name]["shape"]:
            raise DamagedCheckpointError(f"The checkpoint {info.path} is damaged: {name} has the shape {array.shape}.")
    return arrays


def list_checkpoints(run: files.PathLike) -> list[pathlib.Path]:
    """Returns the directories of all checkpoints, including damaged ones, by step, oldest first.

    ``run`` is a run directory, whose ``checkpoints`` are listed, or a folder of checkpoints such as ``RUN/best``.
    """
    folder = pathlib.Path(run)
    if (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    if not folder.is_dir():
        return []
    found = [(checkpoint_step(entry), entry) for entry in folder.iterdir() if entry.is_dir()]
    return [entry for step, entry in sorted(found, key=lambda each: each[0] or 0) if step is not None]


def latest(run: files.PathLike, warn: Warn | None = None) -> pathlib.Path | None:
    """Returns the newest undamaged checkpoint after verifying all its files; None if there are no checkpoints.

    ``run`` is as for ``list_checkpoints``; ``warn`` is called with one line for every damaged checkpoint that is passed
    over.

    Raises:
      UserError: All checkpoints are damaged, or a newer version wrote one.
    """
    candidates = list_checkpoints(run)
    complaints, is_replaced = [], False
    for path in reversed(candidates):
        try:
            verify_checkpoint(path)
            return path
        except DamagedCheckpointError as error:
            if not path.is_dir():  # training has removed it meanwhile
                is_replaced = True
                continue
            complaints.append(error.what)
            if warn is not None:
                warn(f"{error.what} Taking the one before it.")
    if complaints:
        raise UserError(
            f"Every checkpoint in {candidates[0].parent} is damaged ({complaints[0]}). "
            "Restore one from a backup, or begin a new run in another folder."
        )
    return latest(run, warn) if is_replaced else None


def prune(run: files.PathLike, keep_max: int, protect: Iterable[files.PathLike] = ()) -> list[pathlib.Path]:
    """Deletes the oldest checkpoints and returns their paths; a kill halfway leaves no damaged checkpoint.

    Args:
      run: As for ``list_checkpoints``.
      keep_max: How many of the newest checkpoints stay, not counting older protected ones; 0 or less keeps all.
      protect: Checkpoints that stay in any case.
    """
    if keep_max <= 0:
        return []
    protected = {pathlib.Path(path).resolve() for path in protect}
    removed = []
    for path in list_checkpoints(run)[:-keep_max]:
        if path.resolve() not in protected and remove(path):
            removed.append(path)
    return removed


def remove(path: pathlib.Path) -> bool:
    """Deletes a checkpoint and returns whether it still existed; a kill halfway leaves no damaged checkpoint."""
    with contextlib.suppress(FileNotFoundError):
        files.remove_directory(path)
        return True
    return False


def resolve_checkpoint(
    run_dir: files.PathLike, checkpoint_path: files.PathLike | None = None, warn: Warn | None = None
) -> pathlib.Path:
    """Returns the directory of the checkpoint that a user means.

    Args:
      run_dir: The run directory.
      checkpoint_path: None or ``"latest"``: the newest of the run. ``"best"``, ``"averaged"``: the newest in these
        folders. A number such as ``500``: the checkpoint of this step. Otherwise a path, possibly relative to the run
        or its checkpoints: a checkpoint's directory, a file in it, a run directory or a folder of checkpoints (the
        newest is taken), or a prefix in T2T's style, ``.../model.ckpt-500``, with or without leading zeros.
      warn: Called with a line for every damaged checkpoint that is passed over.

    Raises:
      UserError: There is no such checkpoint (the message lists the existing ones), or it belongs to another run. The
        weights of another run may fit but mean nothing, because its subwords and direction may differ.
    """
    run_dir = pathlib.Path(run_dir)
    wanted = str(checkpoint_path or "latest")
    if wanted in _FOLDERS:
        found = latest(run_dir / _FOLDERS[wanted], warn)
    elif _STEP.fullmatch(wanted):
        found = _by_step(run_dir, int(wanted))
    else:
        found = _by_path(run_dir, pathlib.Path(wanted).expanduser(), warn)
        if found is not None and (owner := _other_run_of(found, run_dir)):
            raise UserError(f"{wanted} is a checkpoint of the run {owner}, not {run_dir}: give --output_dir={owner}.")
    if found is None:
        raise UserError(_not_found_message(run_dir, wanted))
    return found


def average_arrays(paths: Sequence[files.PathLike], group: str = "model") -> dict[str, np.ndarray]:
    """Averages the weights of several checkpoints, read one at a time and summed in float64.

    The averages have the dtype of the arrays. Arrays that are not floating point are taken from the last checkpoint.

    Raises:
      UserError: No checkpoint was given, or the checkpoints have different variables.
      DamagedCheckpointError: A checkpoint is damaged.
    """
    if not paths:
        raise UserError("There are no checkpoints to average.")
    sums: dict[str, np.ndarray] = {}
    arrays: dict[str, np.ndarray] = {}
    for number, path in enumerate(paths):
        previous, arrays = arrays, load_arrays(path, group)
        if number and {n: (a.shape, a.dtype) for n, a in arrays.items()} != {
            n: (a.shape, a.dtype) for n, a in previous.items()
        }:
            raise UserError(
                f"The checkpoints {paths[number - 1]} and {path} have different variables; average one run's."
            )
        for name, array in arrays.items():
            # NumPy does not count bfloat16 (an extension type of kind "V") as floating point.
            if np.issubdtype(array.dtype, np.floating) or array.dtype.name == "bfloat16":
                sums[name] = array.astype(np.float64) if number == 0 else sums[name] + array
    return {name: (sums.pop(name) / len(paths)).astype(a.dtype) if name in sums else a for name, a in arrays.items()}


def _write_bundle(prefix: pathlib.Path, tensors: Mapping[str, Any]) -> None:
    """Writes tensors as ``prefix.index`` and ``prefix.data-...``; a full disk raises the usual OSError."""
    import tensorflow as tf

    names = list(tensors)
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(prefix),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tensors[name] for name in names],
            )
    except (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError) as error:  # the latter: a limit of file size
        raise OSError(errno.ENOSPC, "No space left on device") from error


def _by_path(run_dir: pathlib.Path, wanted: pathlib.Path, warn: Warn | None) -> pathlib.Path | None:
    for path in (wanted, run_dir / wanted, run_dir / "checkpoints" / wanted):
        if (path / DESCRIPTION_NAME).is_file():
            return path
        if path.is_dir() and (found := latest(path, warn)):
            return found
        if (path.parent / DESCRIPTION_NAME).is_file() and path.name.partition(".")[0] in (*GROUPS, "checkpoint"):
            return path.parent
        step = checkpoint_step(path)
        if step is not None and (found := _by_step(path.parent, step)):
            return found
    return None


def _other_run_of(checkpoint: pathlib.Path, run_dir: pathlib.Path) -> pathlib.Path | None:
    """Returns the run that contains a checkpoint if it is not ``run_dir``; None for a checkpoint outside any run."""
    for resolved in (os.path.abspath, os.path.realpath):  # a run's folder of checkpoints may be a link
        if pathlib.Path(resolved(checkpoint)).is_relative_to(resolved(run_dir)):
            return None
    folders = pathlib.Path(os.path.realpath(checkpoint)).parents[:2]
    return next((folder for folder in folders if all((folder / name).is_file() for name in _RUN_FILES)), None)


def _by_step(folder: pathlib.Path, step: int) -> pathlib.Path | None:
    return next((path for path in list_checkpoints(folder) if checkpoint_step(path) == step), None)


def _not_found_message(run_dir: pathlib.Path, wanted: str) -> str:
    existing = {folder: list_checkpoints(run_dir / folder) for folder in _FOLDERS.values()}
    if not any(existing.values()):
        return (
            f"The run {run_dir} has no checkpoint yet. Train it first: t2t_ext-trainer --output_dir={run_dir} ..., "
            "or wait until the first one is written."
        )
    if pathlib.Path(wanted).name == "averaged" and not existing["averaged"]:
        return f"The run {run_dir} has no averaged checkpoint yet. Make one: t2t_ext-avg-all --output_dir={run_dir}."
    names = dict.fromkeys(path.name for paths in existing.values() for path in paths)  # RUN/best holds copies
    listed = "; ".join(f"{folder}: {', '.join(p.name for p in paths)}" for folder, paths in existing.items() if paths)
    close = "" if wanted in _FOLDERS else suggest(pathlib.Path(wanted).name, [*_FOLDERS, *names])
    return f"There is no checkpoint {wanted!r} of the run {run_dir}.{close} It has {listed}."
