"""Reads and writes the file of a text encoder that is more than a SentencePiece model.

The file is a zip archive without compression, so that equal content always gives equal bytes. It contains:

  text.json             names of the steps, language, what cannot be undone, versions of libraries
  learnt/truecase       what a step has learned (here the truecaser)

and the subword model, which is one of these:

  sentencepiece.model   SentencePiece
  codes.bpe             subword-nmt: its codes,
  vocabulary.txt          the subwords with their counts in the order of their ids,
  allowed.txt             and the subwords that this side may use, if not all
  preset/...            the files of a KerasHub preset's tokenizer
"""

import io
import json
import zipfile
import zlib
from typing import Any, NotRequired, TypedDict

from t2t_ext.data.text.preset_tokenizer import PresetTokenizer
from t2t_ext.data.text.sentencepiece_model import SentencePieceModel
from t2t_ext.data.text.subword_nmt_model import SubwordNmtModel
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.io import stored

FORMAT_VERSION = 1
Subwords = SentencePieceModel | SubwordNmtModel | PresetTokenizer

_RECORD, _SENTENCEPIECE = "text.json", "sentencepiece.model"
_CODES, _VOCABULARY, _ALLOWED = "codes.bpe", "vocabulary.txt", "allowed.txt"
_LEARNT, _PRESET = "learnt/", "preset/"
# A text encoder has a few megabytes; a file that claims to be larger than this limit is something else.
_MOST_BYTES = 1 << 30
# The exceptions that reading a damaged or unrelated file may raise.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, AttributeError, EOFError, ImportError,
    RuntimeError,
)  # fmt: skip


class _StepRecord(TypedDict):
    name: str


class _Record(TypedDict):
    """The keys of ``text.json`` that are read."""

    language: str
    steps: list[_StepRecord]
    tags: NotRequired[list[str]]
    packages: dict[str, str]
    subwords: str


def write(steps: TextSteps, subwords: Subwords) -> bytes:
    """Returns the content of the file: an archive, or the SentencePiece model itself if there are no steps.

    Raises:
      ValueError: A step has not learned yet.
    """
    if steps.unlearned:
        raise ValueError(f"{', '.join(steps.unlearned)} must learn from training text first.")
    if not steps and isinstance(subwords, SentencePieceModel):
        return subwords.model
    record = {"format_version": FORMAT_VERSION, **describe(steps, subwords)}
    members = {_RECORD: (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()}
    members.update({_LEARNT + name: content for name, content in sorted(steps.learned.items())})
    if isinstance(subwords, SentencePieceModel):
        members[_SENTENCEPIECE] = subwords.model
    elif isinstance(subwords, PresetTokenizer):
        members.update({_PRESET + name: content for name, content in subwords.files.items()})
    else:
        members[_CODES] = subwords.codes.encode()
        members[_VOCABULARY] = "".join(f"{piece} {count}\n" for piece, count in subwords.counts.items()).encode()
        if subwords.allowed is not None:
            members[_ALLOWED] = "".join(f"{piece}\n" for piece in sorted(subwords.allowed)).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            archive.writestr(entry, content)
    return buffer.getvalue()


def describe(steps: TextSteps, subwords: Subwords) -> dict[str, Any]:
    """Returns a JSON-compatible description of what is done to text, for this file, the manifest and exports."""
    return {**steps.record(), "subwords": subwords.kind, "vocabulary": subwords.size}


def read(content: bytes, origin: str) -> tuple[TextSteps, Subwords]:
    """Returns the steps and the subword model that a file contains; ``origin`` names the file in messages.

    Raises:
      UserError: The file is damaged, or a newer version wrote it.
    """
    if not content.startswith(b"PK\x03\x04"):
        return TextSteps(), SentencePieceModel(content, origin)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _MOST_BYTES:
                raise ValueError("its parts claim to be larger than any text encoder")
            members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        record = stored.parse(members[_RECORD], stored.Versioned)
        if record["format_version"] > FORMAT_VERSION:
            raise UserError(
                f"{origin} has format version {record['format_version']}; this t2t_ext reads up to {FORMAT_VERSION}. "
                "Install the newer t2t_ext that wrote it."
            )
        stored.check(record, _Record)
        learned = {name.removeprefix(_LEARNT): data for name, data in members.items() if name.startswith(_LEARNT)}
        steps = TextSteps.from_record(record, learned)
        if steps.unlearned:
            raise KeyError(_LEARNT + steps.unlearned[0])
        if record["subwords"] == SentencePieceModel.kind:
            return steps, SentencePieceModel(members[_SENTENCEPIECE], origin)
        if record["subwords"] == PresetTokenizer.kind:
            found = {name.removeprefix(_PRESET): data for name, data in members.items() if name.startswith(_PRESET)}
            return steps, PresetTokenizer(found)
        allowed = members[_ALLOWED].decode().split("\n")[:-1] if _ALLOWED in members else None
        counts = [line.rpartition(" ") for line in members[_VOCABULARY].decode().split("\n")[:-1]]
        model = SubwordNmtModel(
            members[_CODES].decode(),
            {piece: int(count) for piece, _, count in counts},
            allowed,
            steps.tags,
            f"{_CODES} in {origin}",
        )
        return steps, model
    except _DAMAGED as error:
        raise UserError(
            f"{origin} is neither a SentencePiece model nor a text encoder of t2t_ext-datagen ({error}); copy it from "
            "a backup, or generate the data again."
        ) from error
