"""Text to subword ids and back: steps that prepare the text, and subwords; TensorFlow-free.

Between people and the model a text has three forms::

    raw         Das ist's!                 what files hold and people read
    prepared    das ist &apos;s !          after the steps (the same text where there are none)
    segmented   das i@@ st &apos;s !       what the graph reads and writes: subwords where the graph cannot
                                           segment (subword-nmt), else the prepared text (SentencePiece)

``prepare`` and ``restore`` lead from the first form to the second and back, ``segment`` and ``join`` from the second to
the third, ``encode_batch`` and ``decode`` between the second and ids. Without steps and with SentencePiece all three
forms are the same, and every character that a line can hold comes back, spaces at either end and unusual line
separators included, because characters outside the vocabulary are spelled as UTF-8 bytes. The one exception is U+2581,
SentencePiece's own sign for a space, which comes back as a space. The ids 0 to 10 mean the same in every model trained
here.

Sources: Sennrich et al. 2016 (BPE), https://aclanthology.org/P16-1162; Kudo and
Richardson 2018 (SentencePiece), https://aclanthology.org/D18-2012.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from t2t_ext.data.text import text_container
from t2t_ext.data.text.special_ids import (
    CONTROL_SYMBOLS,
    EOS_ID,
    FIRST_TEXT_ID,
    L2R_ID,
    PAD_ID,
    R2L_ID,
    SPECIAL_PIECES,
    UNK_ID,
)
from t2t_ext.data.text.subword_nmt_model import SubwordNmtModel
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs

__all__ = [
    "CONTROL_SYMBOLS",
    "EOS_ID",
    "FIRST_TEXT_ID",
    "L2R_ID",
    "PAD_ID",
    "R2L_ID",
    "SPECIAL_PIECES",
    "UNK_ID",
    "SubwordEncoder",
]


class SubwordEncoder:
    """The text encoder of one side: steps and a subword model.

    Encoding never yields ``PAD_ID``, ``EOS_ID`` or a control symbol; the
    caller appends ``EOS_ID`` to sentences.

    Attributes:
      model_bytes: The content of its file.
      steps: What prepares and restores text.
      subwords: The subword model, which segments it.
    """

    def __init__(self, model_bytes: bytes, origin: str = "the given bytes") -> None:
        """Reads a file's content: a SentencePiece model, or the archive of ``t2t_ext.data.text.text_container``.

        Args:
          model_bytes: The content.
          origin: Where it came from, for error messages.

        Raises:
          UserError: Neither of them, or a SentencePiece model whose PAD or EOS have other ids than ours.
        """
        self.model_bytes = model_bytes
        self.steps, self.subwords = text_container.read(model_bytes, origin)

    @classmethod
    def make(cls, steps: TextSteps, subwords: text_container.Subwords) -> "SubwordEncoder":
        """Returns the encoder of steps that have been trained and a subword model."""
        return cls(text_container.write(steps, subwords))

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> "SubwordEncoder":
        """Returns the encoder of a file.

        Raises:
          UserError: There is no such file, or it is not a usable model.
        """
        try:
            with open(inputs.on_disk(path), "rb") as file:
                return cls(file.read(), origin=str(path))
        except OSError as error:
            raise UserError(f"The subword model {path} cannot be read: {error.strerror or error}.") from error

    @property
    def vocab_size(self) -> int:
        """The number of ids, special ones included."""
        return self.subwords.size

    @property
    def control_ids(self) -> tuple[int, ...]:
        """Ids of the control symbols (direction tags, reserved ones), which stand for no text; PAD and EOS left out."""
        return self.subwords.control_ids

    @property
    def sha256(self) -> str:
        """The hexadecimal SHA-256 of the file: two encoders with the same one are the same."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    @property
    def ids_sha256(self) -> str:
        """The digest of what the ids mean: encoders with the same one share embeddings, whatever their steps are."""
        return self.subwords.ids_sha256

    @property
    def kind(self) -> str:
        """The kind of subword model: ``sentencepiece``, ``subword_nmt`` or ``keras_hub``."""
        return self.subwords.kind

    @property
    def segmented_by_graph(self) -> bool:
        """Whether the graph segments prepared text by itself; if not, it reads and writes subwords."""
        return not isinstance(self.subwords, SubwordNmtModel)

    @property
    def takes_raw_text(self) -> bool:
        """Whether raw, prepared and segmented text are the same."""
        return self.segmented_by_graph and not self.steps

    def record(self) -> dict[str, Any]:
        """Returns what is done to text and what of it cannot be undone, ready for JSON."""
        return text_container.describe(self.steps, self.subwords)

    # === From raw to prepared text and back ===

    def prepare(self, texts: Sequence[str]) -> list[str]:
        """Returns texts as the model reads them, in the form that ``encode_batch`` takes."""
        return self.steps.prepare(texts)

    def prepare_beginnings(self, texts: Sequence[str]) -> list[str]:
        """Returns beginnings of texts, such as prefixes of translations, as they stand in a prepared text."""
        return self.steps.prepare_beginnings(texts)

    def prepare_phrases(self, phrases: Sequence[str]) -> list[str]:
        """Returns parts of sentences as they stand inside a prepared text: their case is not a sentence's."""
        return self.steps.prepare(phrases, sentences=False)

    def restore(self, prepared: Sequence[str]) -> list[str]:
        """Returns texts for people, from what ``decode`` gives."""
        return self.steps.restore(prepared)

    # === From prepared text to what the graph reads, and back ===

    def segment(self, prepared: Sequence[str]) -> list[str]:
        """Returns prepared texts as the graph reads them."""
        return list(prepared) if self.segmented_by_graph else [self.subwords.segment(text) for text in prepared]

    def segment_phrases(self, lines: Sequence[str]) -> list[str]:
        """Returns raw phrases of sentences, separated by tabs in each line, as the graph reads them."""
        if self.takes_raw_text:
            return list(lines)
        return ["\t".join(self.segment(self.prepare_phrases(line.split("\t")))) for line in lines]

    def join(self, segmented: Sequence[str]) -> list[str]:
        """Returns prepared texts, from what the graph writes."""
        return list(segmented) if self.segmented_by_graph else [self.subwords.join(text) for text in segmented]

    # === From prepared text to ids and back ===

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a prepared text, without EOS."""
        return self.subwords.encode([text], add_eos=False)[0]

    def encode_batch(self, texts: Sequence[str], add_eos: bool = False) -> list[list[int]]:
        """Returns the ids of every prepared text, on the calling thread alone.

        Args:
          texts: Any strings.
          add_eos: Whether every list ends with ``EOS_ID``.
        """
        return self.subwords.encode(texts, add_eos)

    def sample_batch(self, texts: Sequence[str], dropout: float, seed: int, add_eos: bool = False) -> list[list[int]]:
        """Returns ids as ``encode_batch`` does, of segmentations drawn by BPE-dropout.

        Every merge of two subwords is left out with probability ``dropout``, each time that it is possible (Provilkov
        et al. 2020, https://aclanthology.org/2020.acl-main.170).

        Args:
          texts: Any strings, prepared.
          dropout: The probability, more than 0 and less than 1.
          seed: The same one always gives the same ids; below 2^31.
          add_eos: Whether every list ends with ``EOS_ID``.
        """
        return self.subwords.sample(texts, dropout, seed, add_eos)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the prepared text of ids up to the first EOS; PAD and control symbols say nothing.

        Raises:
          ValueError: An id outside the vocabulary.
        """
        spoken = []
        for number in ids:
            index = int(number)
            if index == EOS_ID:
                break
            if not 0 <= index < self.vocab_size:
                raise ValueError(f"Id {index} is outside the vocabulary of {self.vocab_size} subwords.")
            if index != PAD_ID:
                spoken.append(index)
        return self.subwords.decode(spoken)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the written form of every id, for tables and pictures: ``▁`` for a space, or ``@@`` for none."""
        return [self.subwords.piece(int(index)) for index in ids]

    def piece_texts(self) -> list[bytes]:
        """Returns the UTF-8 text of every id inside a line, spaces between words included; [vocab_size]."""
        return [self.subwords.text(index) for index in range(self.vocab_size)]

    def word_starts(self) -> list[bool]:
        """Returns of every id whether it may follow a complete word; [vocab_size]."""
        return [self.subwords.starts_word(index) for index in range(self.vocab_size)]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the file, which appears whole or not at all."""
        files.write_bytes_atomically(path, self.model_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordEncoder) and self.model_bytes == other.model_bytes

    def __hash__(self) -> int:
        return hash(self.model_bytes)

    def __reduce__(self):  # noqa: ANN204 -- pickle's protocol, for worker processes
        return SubwordEncoder, (self.model_bytes,)
