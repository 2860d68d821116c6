"""Folders that a user may take for a run's: of generated data, of other runs, of anything else. No TensorFlow here."""

import os
import pathlib
import re
from collections.abc import Sequence

from t2t_ext.data.datasets.manifest import problems_in
from t2t_ext.errors import UserError
from t2t_ext.runs.run_directory import USER_CODE_NAME, RunDirectory

_MOST_NAMED = 3
# What may be in a new run's folder: what a run that was killed early has left, logs, and notes and scripts of the user.
_MAY_BE_THERE = re.compile(
    rf"\..*|checkpoints|best|averaged|train|eval|tensorboard|{USER_CODE_NAME}|vocab\.\w+\.model|logs?|lost\+found"
    r"|.*tfevents.*|.*\.(log|txt|out|err|json|jsonl|csv|md|sh|py|ya?ml|toml|cfg|ini|pid)(\.\d+)?"
)


def data_in(path: str | os.PathLike) -> str:
    """Returns that a folder holds generated data, and of which problems, or an empty string."""
    problems = problems_in(path)
    return f"holds generated data ({_some(problems)})" if problems else ""


def check_new(output_dir: str, data_dir: str) -> None:
    """Checks that a folder, which is no run, can become one.

    Args:
      output_dir: The folder, which may be missing.
      data_dir: Where the data are, or will be; empty where nobody said.

    Raises:
      UserError: It is a file, or holds data, other runs or something else; a run would scatter its files among them.
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
