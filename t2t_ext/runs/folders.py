"""Checks that a folder can become a run: it may hold data, other runs or something else. Imports no TensorFlow."""

import os
import pathlib
import re
from collections.abc import Sequence

from t2t_ext.data.datasets.manifest import problems_in
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import CONFIG_NAME, USER_CODE_NAME, RunDirectory

_MOST_NAMED = 3
_OF_CHECKPOINTS = ("checkpoints", "best", "averaged")
# A new run's folder may contain the remains of a run that was killed early, logs, and the user's notes and scripts.
_MAY_BE_THERE = re.compile(
    rf"\..*|checkpoints|best|averaged|train|eval|tensorboard|{USER_CODE_NAME}|vocab\.\w+\.model|logs?|lost\+found"
    r"|.*tfevents.*|.*\.(log|txt|out|err|json|jsonl|csv|md|sh|py|ya?ml|toml|cfg|ini|pid)(\.\d+)?"
)


def data_in(path: str | os.PathLike) -> str:
    """Returns a phrase that names the problems whose generated data a folder holds, or "" if it holds none."""
    problems = problems_in(path)
    return f"holds generated data ({_some(problems)})" if problems else ""


def check_new(output_dir: str, data_dir: str) -> None:
    """Checks that a folder that is not yet a run can become one.

    Args:
      output_dir: The folder, which may be missing.
      data_dir: The folder of the data, which may not exist yet; empty if not given.

    Raises:
      UserError: It is a file, it is the data folder, or it holds data, other runs, checkpoints of a run whose
        configuration is missing, or something else, among which a run would scatter its files.
    """
    folder = pathlib.Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output_dir={output_dir} is a file. Name a run directory (it is made where it is missing).")
    there = data_in(folder)
    if not there and data_dir and os.path.realpath(data_dir) == os.path.realpath(output_dir):
        there = "is the --data_dir"
    if there:
        raise UserError(
            f"--output_dir={output_dir} {there} and is no run. Name a folder of its own for the run, such as "
            f"--output_dir={folder / 'run'} (it is made where it is missing); the data are --data_dir."
        )
    if not folder.is_dir():
        return
    for name in _OF_CHECKPOINTS:
        if left := checkpoints.list_checkpoints(folder / name):
            raise UserError(
                f"--output_dir={output_dir} holds checkpoints ({_some([f'{name}/{path.name}' for path in left])}), but "
                f"not the {CONFIG_NAME} of their run. Restore it to resume the run, or name another folder for a new "
                f"run, such as --output_dir={folder / 'run'}."
            )
    runs, others = [], []
    data = pathlib.Path(os.path.realpath(data_dir)) if data_dir else None
    for entry in sorted(folder.iterdir()):
        place = pathlib.Path(os.path.realpath(entry))
        if data and (place == data or place in data.parents):
            continue
        if RunDirectory.exists(entry):
            runs.append(entry.name)
        elif not _MAY_BE_THERE.fullmatch(entry.name):
            others.append(entry.name)
    if runs or others:
        what = f"holds other runs ({_some(runs)})" if runs else f"is no run and not empty ({_some(others)})"
        again = f" To resume a run, name it: --output_dir={folder / runs[0]}." if runs else ""
        raise UserError(
            f"--output_dir={output_dir} {what}.{again} Name a folder of its own for a new run, such as "
            f"--output_dir={folder / 'run'} (it is made where it is missing)."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
