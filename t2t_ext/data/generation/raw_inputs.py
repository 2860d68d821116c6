"""The raw files of data: what a manifest says of them, and whether they have changed since."""

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext.io import files, inputs
from t2t_ext.problem import Problem


def describe_inputs(problem: Problem, tmp_dir: str | os.PathLike) -> dict[str, list[dict[str, Any]]]:
    """Returns name, size in bytes and SHA-256 of the raw files of every split, in order."""

    @functools.cache  # splits may share large files
    def described(path: pathlib.Path) -> dict[str, Any]:
        content = inputs.on_disk(path)
        return {"name": path.name, "bytes": content.stat().st_size, "sha256": files.sha256_of_file(content)}

    return {split: [described(path) for path in problem.source_files(split, tmp_dir)] for split in problem.splits}


def changed_inputs(
    split: str, paths: Sequence[pathlib.Path], made_from: Sequence[Mapping[str, Any]], since: float = -1.0
) -> list[str]:
    """Returns how the raw files of a split differ from those that its data were made from, one phrase a difference.

    Args:
      split: Its name, for the phrases.
      paths: The files, in order. Where one of them is not there any more, nothing is compared.
      made_from: What the manifest says of them.
      since: Files of the same size that were last written before it (seconds since 1970) are taken for the same.
    """
    if not paths or not all(map(os.path.isfile, paths)):
        return []
    if len(paths) != len(made_from):
        return [f"{split} was made from {len(made_from)} files, now {len(paths)} are given"]
    found = []
    for path, old in zip(paths, made_from, strict=True):
        now = path.stat()
        same_size = now.st_size == old["bytes"]
        if not same_size or (now.st_mtime > since and files.sha256_of_file(path) != old["sha256"]):
            found.append(f"{path} is not the {old['name']} that {split} was made from")
    return found
