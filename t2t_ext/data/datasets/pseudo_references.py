"""Stores pseudo references: translations of every source of a problem by two trained models, beside its data.

``P_synchronous`` is the problem P with two more targets per pair: a translation by a model that generates left to right
(``l2r``) and one by a model that generates right to left (``r2l``; stored in text order). They form a *sidecar*: P's
own data stay unchanged, and these files are added to the data directory::

    P_synchronous.manifest.json                  digest of P's data, the models, the failures; written last
    P_synchronous-train-00000-of-00003.npz       l2r, l2r_lengths, r2l, r2l_lengths: ids with EOS, pairs in P's order
    P_synchronous-train.l2r.txt                  the same as text, one line per pair

A pair that a model failed on has length 0 and an empty line. Shard i has as many pairs as P's shard i.

Source: Zhou, Zhang and Zong, "Synchronous Bidirectional Neural Machine Translation" (2019), section 3.4.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Annotated, Any, Self, TypedDict

from t2t_ext.data.datasets.manifest import StoredManifest, manifest_path
from t2t_ext.errors import UserError
from t2t_ext.io.stored import Count, FileEntry

SUFFIX = "_synchronous"
DIRECTIONS = ("l2r", "r2l")
SPLITS = ("train", "dev")
# A model that fails on more than this share of pairs is too bad to learn from.
_LOUD_SHARE = 0.5


def command(problem: str, data_dir: str | os.PathLike) -> str:
    """Returns the command that makes the pseudo references of a problem, named without ``_synchronous``."""
    return f"t2t_ext-pseudo-references --problem={problem} --l2r=RUN --r2l=RUN --data_dir={data_dir}"


class MadeFrom(TypedDict):
    """The data that pseudo references belong to, identified by the SHA-256 of their manifest."""

    digest: str


class Texts(TypedDict):
    """The text file of each direction."""

    l2r: str
    r2l: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitPseudo:
    """The contents of one split of the sidecar.

    Attributes:
      pairs: Number of pairs, including those on which a model failed.
      shards: File names, in order.
      texts: File name by direction.
      failures: Direction -> reason -> number of pairs without a pseudo reference.
      statistics: Direction -> figures for people, such as mean lengths and BLEU against the references.
    """

    pairs: Count
    shards: list[str]
    texts: Annotated[dict[str, str], Texts]
    failures: dict[str, dict[str, Count]]
    statistics: dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoManifest(StoredManifest):
    """Describes a finished sidecar. It records no time or machine: the same models and data give the same bytes.

    Attributes:
      problem: The full name of the problem, such as ``P_rev_synchronous``.
      data: ``digest``: SHA-256 of the manifest of P's data.
      models: Direction -> one entry for each checkpoint: run, step, digest of the weights.
      settings: Other settings that the ids depend on: decode hparams, length limit of pseudo references and the like.
      splits: The contents of each split.
      files: Size in bytes and SHA-256 of every file, by name.
      versions: Versions of the software that made the sidecar.
    """

    latest_format = 1
    split_class = SplitPseudo
    again = "make the pseudo references again: t2t_ext-pseudo-references --overwrite."

    format_version: int = latest_format
    problem: str
    data: Annotated[dict[str, Any], MadeFrom]
    models: dict[str, list[dict[str, Any]]]
    settings: dict[str, Any]
    splits: dict[str, SplitPseudo]
    files: dict[str, FileEntry]
    versions: dict[str, str]

    def to_json(self) -> str:
        """Returns the manifest as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"


@dataclasses.dataclass(frozen=True, eq=False)
class PseudoReferences:
    """A sidecar on disk.

    Attributes:
      data_dir: The directory of its files.
      manifest: Describes the files.
      repair: The command that makes the files again.
    """

    data_dir: pathlib.Path
    manifest: PseudoManifest
    repair: str

    @classmethod
    def open(cls, problem: str, data_dir: str | os.PathLike, data_digest: str) -> Self:
        """Opens the pseudo references of a problem and checks that they belong to its current data.

        Args:
          problem: The problem's name without ``_synchronous``.
          data_dir: The directory of the files.
          data_digest: The digest that the problem's data have now.

        Raises:
          UserError: There are none, they belong to other data, or files are missing; the message says what to run.
        """
        data_dir, again = pathlib.Path(data_dir), command(problem, data_dir)
        path = manifest_path(data_dir, problem + SUFFIX)
        try:
            manifest = PseudoManifest.load(path)
        except FileNotFoundError:
            raise UserError(
                f"There are no pseudo references of {problem} in {data_dir} (no {path.name}). Train a model on "
                f"{problem} that generates left to right and one with target_direction=r2l, then run: {again}"
            ) from None
        made_from = manifest.data["digest"]
        if made_from != data_digest:
            raise UserError(
                f"The data of {problem} in {data_dir} have changed since its pseudo references were made: the manifest "
                f"had the SHA-256 {made_from[:16]}... then and has {data_digest[:16]}... now. Run: {again} --overwrite"
            )
        damaged = manifest.damaged_files(data_dir)
        if damaged:
            raise UserError(
                f"Files of the pseudo references of {problem} in {data_dir} are missing or have another size: "
                f"{', '.join(damaged)}. Run: {again} --overwrite"
            )
        return cls(data_dir, manifest, f"{again} --overwrite")

    @property
    def splits(self) -> list[str]:
        """The splits that have pseudo references."""
        return list(self.manifest.splits)

    def shard_paths(self, split: str) -> list[pathlib.Path]:
        """Returns the shards of a split in order."""
        return [self.data_dir / name for name in self.manifest.splits[split].shards]

    def texts(self, split: str) -> tuple[list[str], list[str]]:
        """Returns the lines of a split from the L2R model and from the R2L model; failed ones are empty."""
        left, right = (
            (self.data_dir / self.manifest.splits[split].texts[direction]).read_bytes().decode().split("\n")[:-1]
            for direction in DIRECTIONS
        )
        return left, right

    def digest(self) -> str:
        """Returns the SHA-256 of the manifest, which contains the digests of all files and of P's data."""
        return hashlib.sha256(manifest_path(self.data_dir, self.manifest.problem).read_bytes()).hexdigest()


def check_made(manifest: PseudoManifest) -> None:
    """Checks that each direction's model made at least one pseudo reference of the training data.

    Raises:
      UserError: A model made none, so its output cannot be trained on.
    """
    train = manifest.splits.get("train")
    if train is None or not train.pairs:
        return
    for direction in DIRECTIONS:
        if _failed(train, direction) == train.pairs:
            raise UserError(
                f"The {_model(manifest, direction)} failed on all {train.pairs:,} training pairs "
                f"({_main_reason(train, direction)}), so {manifest.problem} cannot be trained on and is not written. "
                f"Train that model longer, or give another run or checkpoint as --{direction}; then run the same "
                "command again with --overwrite."
            )


def warnings(manifest: PseudoManifest) -> list[str]:
    """Returns a warning for each direction and split in which more than half of the pseudo references failed."""
    lines = []
    for name, split in manifest.splits.items():
        for direction in DIRECTIONS:
            failed = _failed(split, direction)
            if failed > _LOUD_SHARE * split.pairs:
                lines.append(
                    f"warning: the {_model(manifest, direction)} failed on {failed:,} of {split.pairs:,} {name} pairs "
                    f"({_main_reason(split, direction)}), which training leaves out. Train that model longer, then run "
                    "the same command again with --overwrite."
                )
    return lines


def _failed(split: SplitPseudo, direction: str) -> int:
    return sum(split.failures[direction].values())


def _main_reason(split: SplitPseudo, direction: str) -> str:
    reasons = split.failures[direction]
    reason = max(reasons, key=lambda each: reasons[each])
    return reason if len(reasons) == 1 else f"most of them: {reason}"


def _model(manifest: PseudoManifest, direction: str) -> str:
    """Returns the name of a direction's model for messages, with its runs and their steps."""
    runs = " and ".join(f"{each['run']}, step {each['step']}" for each in manifest.models[direction] if "step" in each)
    return f"{direction} model ({runs})" if runs else f"{direction} model"


def table(manifest: PseudoManifest) -> list[str]:
    """Returns lines about the pseudo references for people: a table, then what failed and why."""
    rows = [("split", "direction", "pairs", "made", "BLEU", "tokens", "reference", "identical")]
    failures = []
    for name, split in manifest.splits.items():
        for direction in DIRECTIONS:
            found = split.statistics[direction]
            lengths = f"{found['mean_length']:.1f}", f"{found['mean_gold_length']:.1f}"
            identical = f"{100 * found['identical_to_gold'] / max(found['made'], 1):.1f}%"
            numbers = f"{split.pairs:,}", f"{found['made']:,}", f"{found['bleu']:.2f}", *lengths, identical
            rows.append((name, direction, *numbers))
            for reason, count in split.failures[direction].items():
                failures.append(f"{name}, {direction}: {count:,} without a pseudo reference: {reason}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    train = next(iter(manifest.splits.values())).statistics[DIRECTIONS[0]]
    note = f"BLEU against the references ({train['bleu_signature']}) on up to {train['bleu_pairs']:,} pairs a split."
    return [*lines, *failures, note]
