"""Where a version of an exported model goes; imports no TensorFlow."""

import os
import pathlib

from t2t_ext.errors import UserError


def check_destination(export_dir: str | os.PathLike, version: int, *, overwrite: bool = False) -> pathlib.Path:
    """Returns the directory of a version that is to be written.

    Raises:
      UserError: The version is not a positive integer, or it exists and may not be replaced.
    """
    if version < 1:
        raise UserError(f"version={version}: TF Serving wants a positive integer as a model version.")
    base = pathlib.Path(export_dir)
    if base.exists() and not base.is_dir():
        raise UserError(f"{base} is a file; give a directory to export to (--export_dir).")
    final = base / str(version)
    if final.exists() and not overwrite:
        raise UserError(
            f"{final} exists already. Give --overwrite to replace it, another --version, or another --export_dir."
        )
    return final
