"""Resolves the settings of data generation and compares them with the settings of existing data."""

import contextlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_ext import registry
from t2t_ext.config.generation import (
    DEFAULT_SEED,
    DEFAULT_SEGMENTATIONS,
    DEFAULT_VOCAB_SAMPLE_SIZE,
    GenerationSettings,
)
from t2t_ext.data.corpora import archives
from t2t_ext.data.datasets.manifest import Manifest
from t2t_ext.data.generation.cleaning import Cleaning
from t2t_ext.data.generation.preparation import NO_STEPS, PREPARATION, SENTENCEPIECE, SUBWORD_NMT, split_paths
from t2t_ext.data.generation.raw_inputs import changed_inputs
from t2t_ext.data.generation.vocabulary import Vocabulary
from t2t_ext.data.text.text_steps import parse_steps
from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.problem import DEV, TRAIN, Problem

# The settings that say how text is prepared and what subword models are trained on.
_OF_THE_MODELS = (*PREPARATION, "vocab_size", "joint_vocab", "vocab_sample_size", "seed")
# Values of these settings for data whose manifest is older than the settings.
_ALWAYS_BEFORE = {
    "source_steps": NO_STEPS,
    "target_steps": NO_STEPS,
    "subwords": SENTENCEPIECE,
    "num_merges": 0,
    "vocab_threshold": 0,
    "bpe_dropout": 0.0,
    "segmentations": 1,
    "cleaning": {},
}


def resolved(asked: GenerationSettings, problem: Problem) -> GenerationSettings:
    """Returns the settings; those that the user did not give have the problem's own values or defaults."""
    defaults = {
        "seed": DEFAULT_SEED,
        "num_shards": 0,
        "source_steps": ",".join(problem.source_steps) or NO_STEPS,
        "target_steps": ",".join(problem.target_steps) or NO_STEPS,
        "subwords": SUBWORD_NMT if asked.bpe_codes else problem.subwords,
        "num_merges": problem.num_merges,
        "vocab_threshold": problem.vocab_threshold,
        "vocab_size": problem.approx_vocab_size,
        "joint_vocab": problem.joint_vocab,
        "vocab_sample_size": DEFAULT_VOCAB_SAMPLE_SIZE,
        "bpe_dropout": 0.0,
        "segmentations": DEFAULT_SEGMENTATIONS if asked.bpe_dropout else 1,
        "max_tokens": 0,
        "max_length_ratio": problem.max_length_ratio,
    }
    for side in ("source", "target"):
        if getattr(asked, f"{side}_tokenizer"):
            defaults |= {f"{side}_steps": NO_STEPS, "joint_vocab": False}
    cleaning = cleaning_asked(asked.cleaning, problem.cleaning).given()
    return GenerationSettings(**{**defaults, **asked.given(), "cleaning": cleaning})


def as_reused(settings: GenerationSettings, vocabulary: Vocabulary) -> GenerationSettings:
    """Returns the settings with the text preparation of given text encoders in place of the problem's."""
    return settings.replace(
        source_steps=",".join(vocabulary.source.steps.names) or NO_STEPS,
        target_steps=",".join(vocabulary.target.steps.names) or NO_STEPS,
        subwords=vocabulary.source.kind,
        num_merges=0,
        vocab_threshold=0,
    )


def recorded(settings: GenerationSettings) -> dict[str, Any]:
    """Returns the user's settings as the manifest stores them: steps by full name, files by SHA-256 of their contents.

    Raises:
      UserError: A file cannot be read.
    """
    said = settings.given()
    for name in ("source_steps", "target_steps"):
        if name in said:
            said[name] = ",".join(parse_steps(said[name], f"--{name}")) or NO_STEPS
    for name in ("bpe_codes", "bpe_vocab"):
        if name in said:
            digests = []
            for path in split_paths(said[name]):
                try:
                    digests.append(f"sha256:{files.sha256_of_file(path)}")
                except OSError as error:
                    raise UserError(f"--{name}={path} cannot be read: {error.strerror or error}.") from error
            said[name] = " ".join(digests)
    return said


def cleaning_asked(asked: str | Mapping[str, Any] | None, default: Mapping[str, Any]) -> Cleaning:
    """Returns the cleaning given as the text of ``--cleaning`` or as settings; if None, the problem's own."""
    if isinstance(asked, str):
        return Cleaning.parse(asked, default)
    return Cleaning.from_settings(default if asked is None else asked)


def cleaning_of(problem: Problem, asked: str | Mapping[str, Any] | None) -> Cleaning:
    """Returns the filters for a problem's samples, from ``--cleaning`` (``asked``) or the problem's own.

    In both, source and target are the sides of NAME, also if NAME_rev has data of its own.
    """
    found = cleaning_asked(asked, problem.cleaning)
    return found.turned() if getattr(problem, "turned", False) else found


def models_differ(manifest: Manifest, settings: GenerationSettings) -> bool:
    """Returns whether the subword models of existing data were made with other settings than those that are given."""
    made_with = _made_with(manifest)
    return any(made_with.get(name) != value for name, value in recorded(settings).items() if name in _OF_THE_MODELS)


def differences(
    manifest: Manifest,
    problem: Problem,
    tmp_dir: str | os.PathLike,
    settings: GenerationSettings,
    reused: Vocabulary | None,
    *,
    was_reversed: bool = False,
) -> list[str]:
    """Returns how existing data differ from what is asked for now, one phrase per difference.

    Settings that the user does not give are not compared, nor are raw files that no longer exist, except those of other
    names than the data's. All arguments are in the base problem's direction; if the user gave ``NAME_rev``
    (``was_reversed``), phrases name the sides of that.
    """
    found = []
    asked, made_with = recorded(settings), _made_with(manifest)
    if settings.cleaning is not None:
        asked["cleaning"] = cleaning_asked(settings.cleaning, problem.cleaning).given()
    for name, value in asked.items():
        before: Any = made_with.get(name)
        if before != value:
            shown = [
                ",".join(f"{key}={each}" for key, each in setting.items()) or "none"
                if isinstance(setting, Mapping)
                else setting
                for setting in (before, value)
            ]
            found.append(f"{_turned(name) if was_reversed else name} was {shown[0]}, now {shown[1]}")
    found += differing_options(problem, manifest.problem_options)
    if reused:
        for side, encoder in (("source", reused.source), ("target", reused.target)):
            if manifest.vocab[side]["sha256"] != encoder.sha256:
                found.append(f"another {_turned(side) if was_reversed else side} subword model was used")
    for split in problem.splits:
        paths = problem.source_files(split, tmp_dir)
        if unknown := _misspelt(problem, paths, manifest):
            found += [f"there is no {path}" for path in unknown]
            continue
        is_there = bool(paths) and all(map(os.path.exists, paths))
        if split == DEV and is_there and (change := _other_kind_of_dev_set(problem, tmp_dir, manifest)):
            found.append(change)
        else:
            found += changed_inputs(split, paths, manifest.inputs.get(split, []))
    return found


def _misspelt(problem: Problem, paths: Sequence[pathlib.Path], manifest: Manifest) -> list[pathlib.Path]:
    """Returns the files that do not exist, are named by options, and are none of those that the data were made from.

    A problem looks up other files itself. If these are gone, it may give them other names (without ``.gz``).
    """
    known = {each["name"] for described in manifest.inputs.values() for each in described}
    options = [problem.options.get(name) for name in problem.path_options]
    parts = [part.strip() for option in options if isinstance(option, str) for part in option.split(",")]
    named = {os.path.basename(archives.split_address(part)[0]) for part in parts}
    return [path for path in paths if path.name in named - known and not path.exists()]


def _turned(name: str) -> str:
    """Returns the name of a side, or of a setting of a side, with source and target exchanged."""
    for side, other in (("source", "target"), ("target", "source")):
        if name.startswith(side):
            return name.replace(side, other, 1)
    return name


def _made_with(manifest: Manifest) -> dict[str, Any]:
    """Returns the settings that data were made with."""
    settings = {**_ALWAYS_BEFORE, **manifest.settings}
    if settings.get("bpe_codes"):
        settings["subwords"] = SUBWORD_NMT  # older data recorded the problem's kind
    if settings["subwords"] == SUBWORD_NMT and "asked_size" in manifest.vocab["training"]:
        settings["vocab_size"] = manifest.vocab["training"]["asked_size"]  # 0: no limit, whatever the problem's size is
    return settings


def _other_kind_of_dev_set(problem: Problem, tmp_dir: str | os.PathLike, manifest: Manifest) -> str:
    """Returns a phrase if dev was held out of the training text and now has its own files, or vice versa."""
    same_files = problem.source_files(DEV, tmp_dir) == problem.source_files(TRAIN, tmp_dir)
    before, of_train = ([each["sha256"] for each in manifest.inputs.get(split, [])] for split in (DEV, TRAIN))
    # Equal files alone prove nothing: train and dev may be members of one archive.
    now, then = (not options.get("dev_source") for options in (problem.options, manifest.problem_options))
    now, then = now and same_files, then and before == of_train
    if now == then or not before:
        return ""
    if not now:
        return "dev was held out of the training text, now --dev_source is given"
    names = " and ".join(each["name"] for each in manifest.inputs[DEV])
    return f"dev was made from {names}, now --dev_source is not given, which would hold dev out of the training text"


def differing_options(problem: Any, made_with: Mapping[str, Any]) -> list[str]:
    """Returns which options of a problem differ from those that its data were made with, one phrase each.

    An option that was not given then had its default: the attribute of that name in a problem without options.
    Options that are not given now are not compared. For options with paths of raw files, the contents of the files
    count, not the paths. But different members of an archive are a difference, since the archive itself is the same.
    """
    found = []
    for name, now in problem.options.items():
        before = made_with.get(name)
        if name not in made_with:
            with contextlib.suppress(UserError, TypeError):  # not registered, or cannot be made without options
                default = getattr(registry.problem(problem.name), name, None)
                before = default if isinstance(default, type(now)) else None
        if other_members(before, now) if name in problem.path_options else before != now:
            found.append(f"{name} was {'not given' if before is None else repr(before)}, now {now!r}")
    return found


def other_members(before: Any, now: Any) -> bool:
    """Returns whether two lists of paths name members of archives, but not the same members in the same order."""
    members = [
        [archives.split_address(path.strip())[1] for path in paths.split(",")] if isinstance(paths, str) else []
        for paths in (before, now)
    ]
    return all(map(any, members)) and members[0] != members[1]
