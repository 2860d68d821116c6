"""Whether the data of an experiment are those of the raw files as these are now, and results those of the data."""

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
    """Yields, in words, which raw files of data hold other text than what the data were made from.

    Files that are not there any more are not compared; those that have their size and have not been written since are
    taken for the same.

    Args:
      stage: Of the kind ``data``; done.
      made: When, ISO 8601.
    """
    if manifest := _manifest(stage):
        since = datetime.datetime.fromisoformat(made).timestamp()
        problem = registry.problem(stage.flags["problem"], **_options(stage))
        for split in problem.splits:
            try:
                paths = problem.source_files(split, stage.flags["tmp_dir"])
            except UserError:  # they are not there any more
                continue
            yield from changed_inputs(split, paths, manifest.inputs.get(split, []), since)


def data_made_from(stage: Stage) -> dict[str, str]:
    """Returns the data that a stage takes, name -> digest of the raw files that they were made from."""
    found = {}
    for need in requirements(stage.needs):
        if need.kind == "data" and (manifest := _manifest(need)):
            found[need.name] = digest(manifest.inputs)
    return found


def made_from(stage: Stage) -> dict[str, str]:
    """Returns the data that a stage takes, as ``data_made_from``, and its own text: path -> size in bytes, SHA-256."""
    own = [path for path in own_text(stage) if path.is_file()]
    return data_made_from(stage) | {str(path): f"{path.stat().st_size} {files.sha256_of_file(path)}" for path in own}


def own_text(stage: Stage) -> list[pathlib.Path]:
    """Returns the files that a stage takes besides data: the text that is translated back."""
    return [pathlib.Path(path.strip()) for path in stage.flags.get("target_text", "").split(",") if path.strip()]


def own_text_changes(stage: Stage, made: str, then: Mapping[str, str]) -> Iterator[str]:
    """Yields, in words, which of a stage's own files hold other text now; as ``changes``."""
    since = datetime.datetime.fromisoformat(made).timestamp()
    for path in own_text(stage):
        size, _, sha256 = then.get(str(path), "").partition(" ")
        if sha256:
            described = [{"name": path.name, "bytes": int(size), "sha256": sha256}]
            yield from changed_inputs(f"'{stage.name}'", [path], described, since)


def manifest_of(stage: Stage) -> pathlib.Path:
    """Returns where the manifest of a stage's data is, or will be."""
    return manifest_path(stage.output, registry.problem(stage.flags["problem"], **_options(stage)).base_name)


def _manifest(stage: Stage) -> Manifest | None:
    """Returns the manifest of data; None where it is not there or damaged, which is said where the data are read."""
    try:
        return Manifest.load(manifest_of(stage))
    except (FileNotFoundError, UserError):
        return None


def _options(stage: Stage) -> Mapping[str, str]:
    return problem_options.parse(stage.flags.get("problem_options", ""))
