"""Text preparation outside an exported graph, and the directories of an export's versions. Imports no TensorFlow.

An export whose graph does not take raw text contains both text encoders: as files, for the command t2t_ext-prepare,
and inside the model, whose signature ``text_encoders`` provides them to clients.
"""

import base64
import binascii
import dataclasses
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Self

from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.serving import exported_files

SIGNATURE = "text_encoders"
_VERSION = re.compile("[0-9]+")
SIDES = ("source", "target")
# Paths of the encoders' files in an export.
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
        """Returns raw texts in the form that the graph takes: prepared and segmented."""
        encoder = self.side(side)
        return encoder.segment(encoder.prepare(texts))

    def phrases_to_graph(self, lines: Sequence[str]) -> list[str]:
        """Returns lines of raw target phrases, separated by tabs, in the form in which the graph takes constraints."""
        return self.target.segment_phrases(lines)

    def prefixes_to_graph(self, prefixes: Sequence[str]) -> list[str]:
        """Returns raw beginnings of translations in the form in which the graph takes prefixes, as the decoder does.

        Whitespace at the end of a prefix says that its last word is complete.
        """
        return self.target.segment_beginnings(self.target.prepare_beginnings(prefixes))

    def to_prepared(self, side: str, texts: Sequence[str]) -> list[str]:
        """Returns raw texts after the preparation steps, before words are segmented into subwords."""
        return self.side(side).prepare(texts)

    def from_graph(self, texts: Sequence[str], side: str = "target") -> list[str]:
        """Returns readable texts from the graph's outputs or from prepared texts."""
        encoder = self.side(side)
        return encoder.restore(encoder.join(texts))

    @classmethod
    def of_export(cls, export_dir: str | os.PathLike) -> Self | None:
        """Returns the encoders of an export, or None if its graph takes raw text.

        ``export_dir`` is a version's directory, or the directory of all versions, of which the highest is used.

        Raises:
          UserError: There is no export, or one of its files is damaged.
        """
        path = version_directory(export_dir)
        exported_files.check(path, FILE_NAMES.values())
        if not (path / FILE_NAMES["source"]).is_file():
            return None
        return cls(*(SubwordEncoder.from_file(path / FILE_NAMES[side]) for side in SIDES))

    def write(self, directory: pathlib.Path) -> None:
        """Writes the encoders' files into an export."""
        for side, name in FILE_NAMES.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(self.side(side).model_bytes)

    def wire(self) -> list[str]:
        """Returns the signature's answer for each side, the encoder's file in base64."""
        return [base64.b64encode(self.side(side).model_bytes).decode() for side in SIDES]

    @classmethod
    def from_wire(cls, values: Sequence[str], origin: str) -> Self:
        """Returns the encoders from the signature's answer; ``origin`` names the model in error messages.

        Raises:
          UserError: The answer does not hold text encoders.
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
    """Returns the directory of an export's version: the given one, or the highest version below it.

    Raises:
      UserError: There is no SavedModel.
    """
    path = pathlib.Path(export_dir)
    if not _holds_model(path) and path.is_dir():
        numbered = [entry for entry in path.iterdir() if _VERSION.fullmatch(entry.name) and _holds_model(entry)]
        path = max(numbered, key=lambda entry: int(entry.name), default=path)
    if not _holds_model(path):
        raise UserError(
            f"--export_dir={export_dir} holds no exported model; give the directory that t2t_ext-exporter wrote to."
        )
    return path


def _holds_model(path: pathlib.Path) -> bool:
    return (path / "saved_model.pb").is_file()


def check_destination(export_dir: str | os.PathLike, version: int, *, overwrite: bool = False) -> pathlib.Path:
    """Returns the directory to which a version is to be written.

    Raises:
      UserError: The version is not a positive integer, ``export_dir`` is a file, or the version exists and may not be
        replaced or holds something else.
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
    if final.is_file() or (final.is_dir() and any(final.iterdir()) and not _holds_model(final)):
        raise UserError(
            f"{final} holds something else than an exported model: give another --export_version or --export_dir."
        )
    return final
