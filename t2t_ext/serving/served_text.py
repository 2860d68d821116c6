"""What happens to text outside an exported graph, and where an export's versions are. Imports no TensorFlow.

An export whose graph does not take text as people write it carries both text encoders: as files, for the command
t2t_ext-prepare, and inside the model, whose signature ``text_encoders`` hands them to clients.
"""

import base64
import binascii
import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Self

from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.serving import exported_files

SIGNATURE = "text_encoders"
SIDES = ("source", "target")
# Where an export has the encoders' files.
FILE_NAMES = {side: os.path.join("assets.extra", f"text_encoder.{side}.model") for side in SIDES}


@dataclasses.dataclass(frozen=True)
class ServedText:
    """The text encoders of an exported model."""

    source: SubwordEncoder
    target: SubwordEncoder

    def side(self, name: str) -> SubwordEncoder:
        """Returns the encoder of ``source`` or ``target``."""
        return self.source if name == "source" else self.target

    def to_graph(self, side: str, texts: Sequence[str]) -> list[str]:
        """Returns raw texts as the graph takes them."""
        encoder = self.side(side)
        return encoder.segment(encoder.prepare(texts))

    def phrases_to_graph(self, lines: Sequence[str]) -> list[str]:
        """Returns raw phrases of the target, separated by tabs in each line, as the graph takes constraints."""
        return self.target.segment_phrases(lines)

    def to_prepared(self, side: str, texts: Sequence[str]) -> list[str]:
        """Returns raw texts as their steps leave them, before words are segmented."""
        return self.side(side).prepare(texts)

    def from_graph(self, texts: Sequence[str], side: str = "target") -> list[str]:
        """Returns texts for people from what the graph gives, or from prepared ones."""
        encoder = self.side(side)
        return encoder.restore(encoder.join(texts))

    @classmethod
    def of_export(cls, export_dir: str | os.PathLike) -> Self | None:
        """Returns the encoders of an export, or None where its graph takes text as people write it.

        ``export_dir`` is a version's directory, or the one that holds the versions: then the highest counts.

        Raises:
          UserError: There is no export, or a file of it is damaged.
        """
        path = version_directory(export_dir)
        exported_files.check(path, FILE_NAMES.values())
        if not (path / FILE_NAMES["source"]).is_file():
            return None
        return cls(*(SubwordEncoder.from_file(path / FILE_NAMES[side]) for side in SIDES))

    def write(self, directory: pathlib.Path) -> None:
        """Writes the files of an export."""
        for side, name in FILE_NAMES.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(self.side(side).model_bytes)

    def wire(self) -> list[str]:
        """Returns what the signature gives for each side: the file in base64."""
        return [base64.b64encode(self.side(side).model_bytes).decode() for side in SIDES]

    @classmethod
    def from_wire(cls, values: Sequence[str], origin: str) -> Self:
        """Returns the encoders from what the signature gave.

        Raises:
          UserError: It gave something else.
        """
        try:
            encoders = [
                SubwordEncoder(base64.b64decode(value, validate=True), f"the {side} text encoder of {origin}")
                for side, value in zip(SIDES, values, strict=True)
            ]
        except (binascii.Error, ValueError, TypeError) as error:
            raise UserError(
                f"{origin} answers with something that is no text encoder ({error}); export it again."
            ) from error
        return cls(*encoders)


def version_directory(export_dir: str | os.PathLike) -> pathlib.Path:
    """Returns the directory of an export's version: the one given, or its highest version.

    Raises:
      UserError: There is no SavedModel.
    """
    path = pathlib.Path(export_dir)
    versions = [entry for entry in path.iterdir() if entry.name.isdigit()] if path.is_dir() else []
    if not (path / "saved_model.pb").is_file() and versions:
        path = max(versions, key=lambda entry: int(entry.name))
    if not (path / "saved_model.pb").is_file():
        raise UserError(
            f"--export_dir={export_dir} holds no exported model; give the directory that t2t_ext-exporter wrote to."
        )
    return path


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
            f"{final} exists already. Give --overwrite to replace it, another --export_version or another --export_dir."
        )
    return final
