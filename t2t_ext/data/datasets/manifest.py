"""The manifest of generated data: what is there, what it was made from, and what was dropped."""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Self

from t2t_ext.errors import UserError
from t2t_ext.io import files

FORMAT_VERSION = 1


def manifest_path(data_dir: str | os.PathLike, base_name: str) -> pathlib.Path:
    """Returns where the manifest of a problem lies."""
    return pathlib.Path(data_dir, f"{base_name}.manifest.json")


def shard_name(base_name: str, split: str, index: int, count: int) -> str:
    """Returns a shard's file name, T2T's pattern with our suffix."""
    return f"{base_name}-{split}-{index:05d}-of-{count:05d}.npz"


def text_name(base_name: str, split: str, feature: str, reference: int = 0) -> str:
    """Returns the file name of a dev or test set's text; ``reference`` counts further references from 1."""
    return f"{base_name}-{split}.{feature}{f'.{reference}' if reference else ''}.txt"


def vocab_name(base_name: str, vocab_size: int, side: str = "") -> str:
    """Returns a subword model's file name; ``side`` is empty where source and target share it."""
    return f"vocab.{base_name}.{vocab_size}{f'.{side}' if side else ''}.model"


def is_data_file(name: str, base_name: str) -> bool:
    """Returns whether a file name is one that generating this problem writes."""
    base = re.escape(base_name)
    patterns = (
        rf"{base}-\w+-\d{{5}}-of-\d{{5}}\.npz",
        rf"{base}-\w+\.\w+(\.\d+)?\.txt",
        rf"{base}-\w+\.\w+-(\d{{5}}|lengths)\.npy",
        rf"vocab\.{base}\.\d+(\.\w+)?\.model",
    )
    return re.fullmatch("|".join(patterns), name) is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """What one split holds.

    Attributes:
      read: Number of samples before any was dropped.
      samples: Number of samples that were written.
      drops: Number of dropped samples by reason.
      notes: Number of lines changed without loss, by what was done.
      first: Where each reason or note occurred first.
      tokens: Number of stored items (EOS included) by feature; of float vectors, those that are kept.
      longest: Most items of one sample by feature.
      shards: File names, in order.
      texts: File names by text feature: the text, then further references; of sequences of float vectors, what they are
        called. Only of dev and test sets.
      corpora: Weight, tag, pairs read and their occurrences by corpus, where there are several.
      floats: Of features of float vectors, the files and what they hold; see
        ``t2t_ext.data.features.float_files``. Left out of the file where there are none.
    """

    read: int
    samples: int
    drops: dict[str, int] = dataclasses.field(default_factory=dict)
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    first: dict[str, str] = dataclasses.field(default_factory=dict)
    tokens: dict[str, int]
    longest: dict[str, int]
    shards: list[str]
    texts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    corpora: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    floats: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """Describes a finished set of data files. It says nothing of time or machine: same data, same bytes.

    Attributes:
      problem: The base problem's name.
      problem_options: The problem's options that were given.
      source_language: The base problem's source language, or empty.
      target_language: The base problem's target language, or empty.
      settings: Every setting of the generation, resolved.
      inputs: Name, size in bytes and SHA-256 of every raw file that was read, by split.
      vocab: Files (``source`` and ``target``, the same name where joint), sizes, and how the models were trained.
      splits: What each split holds.
      files: Size in bytes and SHA-256 of every file of the set, by name.
      versions: Versions of the software that made it.
    """

    format_version: int = FORMAT_VERSION
    problem: str
    problem_options: dict[str, Any]
    source_language: str
    target_language: str
    settings: dict[str, Any]
    inputs: dict[str, list[dict[str, Any]]]
    vocab: dict[str, Any]
    splits: dict[str, SplitSummary]
    files: dict[str, dict[str, Any]]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Returns the manifest as JSON text."""
        content = dataclasses.asdict(self)
        for split in content["splits"].values():
            if not split["floats"]:  # the manifest of a text, and so its digest, is what it was before there were any
                del split["floats"]
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Reads a manifest.

        Raises:
          UserError: The file is damaged, or a later version of t2t_ext wrote it.
          FileNotFoundError: There is none.
        """
        again = "generate the data again: t2t_ext-datagen --overwrite."
        return read_manifest(cls, path, FORMAT_VERSION, SplitSummary, again)

    def damaged_files(self, data_dir: str | os.PathLike, *, checksums: bool) -> list[str]:
        """Returns the names of files that are missing or not as they were written.

        Args:
          data_dir: Where the files lie.
          checksums: Whether to compare SHA-256 as well; existence and sizes are always compared.
        """
        return damaged_files(self.files, data_dir, checksums=checksums)


def damaged_files(
    described: Mapping[str, Mapping[str, Any]], data_dir: str | os.PathLike, *, checksums: bool
) -> list[str]:
    """Returns the names of files that are missing or not as a manifest describes them; see ``Manifest``."""
    damaged = []
    for name, expected in described.items():
        path = pathlib.Path(data_dir, name)
        intact = path.is_file() and path.stat().st_size == expected["bytes"]
        if intact and checksums:
            intact = files.sha256_of_file(path) == expected["sha256"]
        if not intact:
            damaged.append(name)
    return damaged


def describe_file(path: str | os.PathLike) -> dict[str, Any]:
    """Returns a file's size in bytes and SHA-256 as a manifest lists them."""
    return {"bytes": os.path.getsize(path), "sha256": files.sha256_of_file(path)}


def read_manifest(kind: type, path: str | os.PathLike, latest: int, split_class: type, again: str) -> Any:
    """Reads a manifest of some kind.

    Args:
      kind: The dataclass that it becomes.
      path: Of the JSON file.
      latest: The latest ``format_version`` that is understood.
      split_class: What the entries of ``splits`` become.
      again: How to make the files again, for messages.

    Raises:
      UserError: The file is damaged, or a later version of t2t_ext wrote it.
      FileNotFoundError: There is none.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        version = content["format_version"]
        if version > latest:
            raise UserError(
                f"{path} has format {version}, but this t2t_ext reads formats up to {latest}; "
                f"update t2t_ext, or {again}"
            )
        content["splits"] = {name: split_class(**split) for name, split in content["splits"].items()}
        return kind(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); {again}") from error
