"""Describes raw files for the manifest, and finds out whether they have changed since."""

import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.data.features.sources import FILES_OF_FEATURES
from t2t_ext.io import files, inputs
from t2t_ext.problem import Problem

_READ_OF_FOLDER = 64  # approximate number of files that are read in a large folder


def describe_inputs(problem: Problem, tmp_dir: str | os.PathLike) -> dict[str, list[dict[str, Any]]]:
    """Returns name, size in bytes and SHA-256 of the raw files of every split, in order.

    The digest of a folder of features covers the names and sizes of its files and the contents of some of them.
    """

    @functools.cache  # splits may share large files
    def described(path: pathlib.Path) -> dict[str, Any]:
        if path.is_dir():
            size, digest = _digest_of_folder(path)
            return {"name": path.name, "bytes": size, "sha256": digest, "folder": True}
        content = inputs.on_disk(path)
        return {"name": path.name, "bytes": content.stat().st_size, "sha256": files.sha256_of_file(content)}

    return {split: [described(path) for path in problem.source_files(split, tmp_dir)] for split in problem.splits}


def changed_inputs(
    split: str, paths: Sequence[pathlib.Path], made_from: Sequence[Mapping[str, Any]], since: float = -1.0
) -> list[str]:
    """Returns how the raw files of a split differ from those that its data were made from, one phrase per difference.

    Args:
      split: Its name, for the phrases.
      paths: The files, in order. If one of them no longer exists, nothing is compared.
      made_from: The manifest's descriptions of the files.
      since: Files of the same size that were last written before this time (seconds since 1970) count as unchanged.
    """
    if not any(each.get("folder") for each in made_from):  # older data do not describe folders
        paths = [path for path in paths if not os.path.isdir(path)]
    if not paths or not all(map(os.path.exists, paths)):
        return []
    if len(paths) != len(made_from):
        return [f"{split} was made from {len(made_from)} files, now {len(paths)} are given"]
    found = []
    for path, old in zip(paths, made_from, strict=True):
        if path.is_dir():
            changed = _digest_of_folder(path)[1] != old["sha256"]
        else:
            content = inputs.on_disk(path)  # of a pipe, what it delivered
            now = content.stat()
            same_size = now.st_size == old["bytes"]
            changed = not same_size or (now.st_mtime > since and files.sha256_of_file(content) != old["sha256"])
        if changed:
            found.append(f"{path} is not the {old['name']} that {split} was made from")
    return found


def _digest_of_folder(folder: pathlib.Path) -> tuple[int, str]:
    """Returns the total size in bytes of the feature files in a folder, and a digest that does not read them all."""
    there = sorted(path for path in folder.iterdir() if path.suffix in FILES_OF_FEATURES)
    sizes = [path.stat().st_size for path in there]
    digest = hashlib.sha256()
    for path, size in zip(there, sizes, strict=True):
        digest.update(f"{path.name}\0{size}\n".encode("utf-8", "surrogateescape"))
    for path in there[:: max(1, len(there) // _READ_OF_FOLDER)]:
        digest.update(files.sha256_of_file(path).encode())
    return sum(sizes), digest.hexdigest()
