"""Checks whether an experiment's data still match the raw files, and its results the data."""

import datetime
import pathlib
from collections.abc import Iterator, Mapping

from t2t_ext import registry
from t2t_ext.config import problem_options
from t2t_ext.data.datasets.manifest import Manifest, manifest_path
from t2t_ext.data.generation.raw_inputs import changed_inputs
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import digest
from t2t_ext.experiments.plan import Stage, requirements
from t2t_ext.io import files


def changes(stage: Stage, made: str) -> Iterator[str]:
    """Yields descriptions of the raw files whose text has changed since the data were made from them.

    Missing files are not compared. A file of the same size that has not been written since counts as unchanged.

    Args:
      stage: A stage of the kind ``data`` that is done.
      made: The time at which it was done, in ISO 8601.
    """
    if manifest := _manifest(stage):
        since = datetime.datetime.fromisoformat(made).timestamp()
        problem = registry.problem(stage.flags["problem"], **_options(stage))
        for split in problem.splits:
            try:
                paths = problem.source_files(split, stage.flags["tmp_dir"])
            except UserError:  # the files no longer exist
                continue
            yield from changed_inputs(split, paths, manifest.inputs.get(split, []), since)


def data_made_from(stage: Stage) -> dict[str, str]:
    """Returns the data that a stage uses: name -> digest of the raw files that they were made from."""
    found = {}
    for need in requirements(stage.needs):
        if need.kind == "data" and (manifest := _manifest(need)):
            found[need.name] = digest(manifest.inputs)
    return found


def made_from(stage: Stage) -> dict[str, str]:
    """Returns a stage's data, as ``data_made_from`` does, and its own text: path -> "SIZE SHA256", size in bytes."""
    own = [path for path in own_text(stage) if path.is_file()]
    return data_made_from(stage) | {str(path): f"{path.stat().st_size} {files.sha256_of_file(path)}" for path in own}


def own_text(stage: Stage) -> list[pathlib.Path]:
    """Returns the files that a stage uses besides the data: the text for back-translation."""
    paths = (path.strip() for path in stage.flags.get("target_text", "").split(","))
    return [pathlib.Path(path).expanduser() for path in paths if path]


def own_text_changes(stage: Stage, made: str, then: Mapping[str, str]) -> Iterator[str]:
    """Yields descriptions of a stage's own files whose text has changed; compares files as ``changes`` does."""
    since = datetime.datetime.fromisoformat(made).timestamp()
    for path in own_text(stage):
        size, _, sha256 = then.get(str(path), "").partition(" ")
        if sha256:
            described = [{"name": path.name, "bytes": int(size), "sha256": sha256}]
            yield from changed_inputs(f"'{stage.name}'", [path], described, since)


def manifest_of(stage: Stage) -> pathlib.Path:
    """Returns the path of the manifest of a stage's data, whether or not it exists yet."""
    return manifest_path(stage.output, registry.problem(stage.flags["problem"], **_options(stage)).base_name)


def _manifest(stage: Stage) -> Manifest | None:
    """Returns the manifest of data; None if it is missing or damaged, which is reported when the data are read."""
    try:
        return Manifest.load(manifest_of(stage))
    except (FileNotFoundError, UserError):
        return None


def _options(stage: Stage) -> Mapping[str, str]:
    return problem_options.parse(stage.flags.get("problem_options", ""))
