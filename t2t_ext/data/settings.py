"""The settings of data generation, and how those of a second call compare with existing data."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from t2t_ext.data.features import Feature
from t2t_ext.data.manifest import Manifest
from t2t_ext.data.readers import ReadReport
from t2t_ext.data.vocabulary import Vocabulary
from t2t_ext.errors import UserError
from t2t_ext.persistence import files

DEFAULT_SEED = 429459  # tensor2tensor's
DEFAULT_VOCAB_SAMPLE_SIZE = 500_000


class GeneratesSamples(Protocol):
    """As much of a problem as generating its data needs; ``t2t_ext.problem.Problem`` explains the members."""

    base_name: str
    was_reversed: bool
    splits: Sequence[str]
    approx_vocab_size: int
    joint_vocab: bool
    max_length_ratio: float
    path_options: Sequence[str]
    reading: ReadReport

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def options(self) -> Mapping[str, Any]: ...  # noqa: D102
    def base(self) -> Self: ...  # noqa: D102
    def features(self) -> dict[str, Feature]: ...  # noqa: D102
    def prepare(self, tmp_dir: str | os.PathLike) -> None: ...  # noqa: D102
    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]: ...  # noqa: D102
    def count(self, split: str, tmp_dir: str | os.PathLike) -> int | None: ...  # noqa: D102
    def checked_samples(self, split: str, tmp_dir: str | os.PathLike) -> Any: ...  # noqa: D102


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """What the written bytes depend on besides the raw data; None where the user said nothing.

    Attributes:
      seed: Of the shuffling and of the sample that the subword model is trained on.
      num_shards: Shards of the train split; 0 for one per 200,000 samples.
      vocab_size: Subwords of a trained model, special ids included.
      joint_vocab: Whether source and target share one model.
      vocab_sample_size: At most so many pairs, chosen uniformly, train the subword model.
      max_tokens: Training texts of more subwords are dropped; 0 for no limit.
      max_length_ratio: Training pairs whose longer side has more than this many times the subwords of the shorter are
        dropped; 0 for no limit.
    """

    seed: int | None = None
    num_shards: int | None = None
    vocab_size: int | None = None
    joint_vocab: bool | None = None
    vocab_sample_size: int | None = None
    max_tokens: int | None = None
    max_length_ratio: float | None = None

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
          UserError: A value is out of range.
        """
        at_least = {"seed": 0, "num_shards": 0, "vocab_size": 1, "vocab_sample_size": 1, "max_tokens": 0}
        for name, least in {**at_least, "max_length_ratio": 0}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                flag = "random_seed" if name == "seed" else name
                raise UserError(f"--{flag}={value}: at least {least} is needed.")

    def resolved(self, problem: GeneratesSamples) -> Self:
        """Returns the settings with defaults and the problem's own values where the user said nothing."""
        defaults = {
            "seed": DEFAULT_SEED,
            "num_shards": 0,
            "vocab_size": problem.approx_vocab_size,
            "joint_vocab": problem.joint_vocab,
            "vocab_sample_size": DEFAULT_VOCAB_SAMPLE_SIZE,
            "max_tokens": 0,
            "max_length_ratio": problem.max_length_ratio,
        }
        return type(self)(**{**defaults, **self.given()})

    def given(self) -> dict[str, Any]:
        """Returns what the user said."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


def describe_inputs(problem: GeneratesSamples, tmp_dir: str | os.PathLike) -> dict[str, list[dict[str, Any]]]:
    """Returns name, size in bytes and SHA-256 of the raw files of every split, in order."""
    return {
        split: [
            {"name": path.name, "bytes": path.stat().st_size, "sha256": files.sha256_of_file(path)}
            for path in problem.source_files(split, tmp_dir)
        ]
        for split in problem.splits
    }


def differences(
    manifest: Manifest,
    problem: GeneratesSamples,
    tmp_dir: str | os.PathLike,
    settings: GenerationSettings,
    reused: Vocabulary | None,
) -> list[str]:
    """Returns how existing data differ from what is asked for now, one phrase a difference.

    What the user does not say is not compared, nor are raw files that are not there any more.
    """
    found = []
    for name, value in settings.given().items():
        if manifest.settings[name] != value:
            found.append(f"{name} was {manifest.settings[name]}, now {value}")
    for name, value in problem.options.items():
        before = manifest.problem_options.get(name)
        if name not in problem.path_options and before != value:
            found.append(f"{name} was {before!r}, now {value!r}")
    if reused:
        for side, encoder in (("source", reused.source), ("target", reused.target)):
            if manifest.vocab[side]["sha256"] != encoder.sha256:
                found.append(f"another {side} subword model was used")
    return found + _changed_inputs(manifest, problem, tmp_dir)


def _changed_inputs(manifest: Manifest, problem: GeneratesSamples, tmp_dir: str | os.PathLike) -> list[str]:
    changed = []
    for split in problem.splits:
        paths = problem.source_files(split, tmp_dir)
        before = manifest.inputs.get(split, [])
        if not paths or not all(map(os.path.isfile, paths)):
            continue
        if len(paths) != len(before):
            changed.append(f"{split} was made from {len(before)} files, now {len(paths)} are given")
            continue
        for path, old in zip(paths, before, strict=True):
            if path.stat().st_size != old["bytes"] or files.sha256_of_file(path) != old["sha256"]:
                changed.append(f"{path} is not the {old['name']} that {split} was made from")
    return changed
