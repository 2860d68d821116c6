"""Converts text to subword ids and back, with text steps and a subword model, without importing TensorFlow.

A text has three forms::

    raw         Das ist's!                 the text in files, as people read it
    prepared    das ist &apos;s !          the text after the steps (the raw text if there are no steps)
    segmented   das i@@ st &apos;s !       what the graph reads and writes: subwords if the graph cannot
                                           segment (subword-nmt), otherwise the prepared text (SentencePiece)

``prepare`` turns raw into prepared text, and ``restore`` reverses it. ``segment`` turns prepared into segmented text,
and ``join`` reverses it. ``encode_batch`` and ``decode`` convert between prepared text and ids. With SentencePiece and
no steps, all three forms are the same. Every character of a line then survives, including leading and trailing spaces
and unusual line separators, because characters outside the vocabulary are spelled as UTF-8 bytes. The only exception is
U+2581, SentencePiece's symbol for a space, which becomes a space. The ids 0 to 10 have the same meaning in every model.

Sources: Sennrich et al. 2016 (BPE), https://aclanthology.org/P16-1162; Kudo and
Richardson 2018 (SentencePiece), https://aclanthology.org/D18-2012.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
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
    """The text encoder of one side: text steps and a subword model.

    The ids of a text never include ``PAD_ID``, ``EOS_ID`` or a control
    symbol. ``EOS_ID`` is appended only with ``add_eos``, or by the caller.

    Attributes:
      model_bytes: The content of the encoder's file.
      steps: The text steps, which prepare and restore text.
      subwords: The subword model, which segments prepared text.
    """

    def __init__(self, model_bytes: bytes, origin: str = "the given bytes") -> None:
        """Reads the content of a file: a SentencePiece model, or an archive of ``t2t_ext.data.text.text_container``.

        Args:
          model_bytes: The content of the file.
          origin: Where the content came from, for error messages.

        Raises:
          UserError: The content is neither of the two, or the SentencePiece model has other ids for PAD, EOS or UNK.
        """
        self.model_bytes = model_bytes
        self.steps, self.subwords = text_container.read(model_bytes, origin)

    @classmethod
    def make(cls, steps: TextSteps, subwords: text_container.Subwords) -> "SubwordEncoder":
        """Returns the encoder that consists of these steps, which must have learned already, and a subword model.

        Raises:
          ValueError: A step has not learned yet.
        """
        return cls(text_container.write(steps, subwords))

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> "SubwordEncoder":
        """Returns the encoder that a file contains.

        Raises:
          UserError: The file does not exist, or it is not a usable model.
        """
        try:
            with open(inputs.on_disk(path), "rb") as file:
                return cls(file.read(), origin=str(path))
        except OSError as error:
            raise UserError(f"The subword model {path} cannot be read: {error.strerror or error}.") from error

    @property
    def vocab_size(self) -> int:
        """The number of ids, including special ids."""
        return self.subwords.size

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids of control symbols (direction tags, reserved ones), which stand for no text; without PAD and EOS."""
        return self.subwords.control_ids

    @property
    def sha256(self) -> str:
        """The hexadecimal SHA-256 of the file; encoders with the same value are identical."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    @property
    def ids_sha256(self) -> str:
        """The digest of the meaning of the ids; encoders with the same value can share embeddings."""
        return self.subwords.ids_sha256

    @property
    def kind(self) -> str:
        """The kind of subword model: ``sentencepiece``, ``subword_nmt`` or ``keras_hub``."""
        return self.subwords.kind

    @property
    def segmented_by_graph(self) -> bool:
        """Whether the graph segments prepared text itself; if not, it reads and writes subwords."""
        return not isinstance(self.subwords, SubwordNmtModel)

    @property
    def takes_raw_text(self) -> bool:
        """Whether the raw, prepared and segmented forms of a text are the same."""
        return self.segmented_by_graph and not self.steps

    def record(self) -> dict[str, Any]:
        """Returns a JSON-compatible description of what is done to text and of what cannot be undone."""
        return text_container.describe(self.steps, self.subwords)

    # === From raw to prepared text and back ===

    def prepare(self, texts: Sequence[str]) -> list[str]:
        """Applies the steps to raw texts and returns prepared texts, as ``encode_batch`` expects them."""
        return self.steps.prepare(texts)

    def prepare_beginnings(self, texts: Sequence[str]) -> list[str]:
        """Returns beginnings of texts, such as prefixes of translations, as they appear in a prepared text.

        Whitespace at the end, which says that the last word is complete, is kept.
        """
        return _keeping_whitespace(texts, self.steps.prepare_beginnings)

    def prepare_phrases(self, phrases: Sequence[str]) -> list[str]:
        """Returns parts of sentences as they appear inside a prepared text; the truecaser does not change them."""
        return self.steps.prepare(phrases, sentences=False)

    def restore(self, prepared: Sequence[str]) -> list[str]:
        """Turns prepared texts, as ``decode`` returns them, into text for people."""
        return self.steps.restore(prepared)

    # === From prepared text to what the graph reads, and back ===

    def segment(self, prepared: Sequence[str]) -> list[str]:
        """Returns the segmented form of prepared texts, as the graph reads it."""
        return list(prepared) if self.segmented_by_graph else [self.subwords.segment(text) for text in prepared]

    def segment_beginnings(self, prepared: Sequence[str]) -> list[str]:
        """Returns the segmented form of prepared beginnings of texts; whitespace at the end is kept."""
        return _keeping_whitespace(prepared, self.segment)

    def segment_phrases(self, lines: Sequence[str]) -> list[str]:
        """Returns lines of raw phrases, separated by tabs, in the segmented form that the graph reads."""
        if self.takes_raw_text:
            return list(lines)
        return ["\t".join(self.segment(self.prepare_phrases(line.split("\t")))) for line in lines]

    def join(self, segmented: Sequence[str]) -> list[str]:
        """Returns prepared texts from the segmented form that the graph writes."""
        return list(segmented) if self.segmented_by_graph else [self.subwords.join(text) for text in segmented]

    # === From prepared text to ids and back ===

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a prepared text, without EOS."""
        return self.subwords.encode([text], add_eos=False)[0]

    def encode_batch(self, texts: Sequence[str], add_eos: bool = False) -> list[list[int]]:
        """Returns the ids of each prepared text; works in the calling thread only.

        Args:
          texts: Any strings, prepared.
          add_eos: Whether every list ends with ``EOS_ID``.
        """
        return self.subwords.encode(texts, add_eos)

    def sample_batch(self, texts: Sequence[str], dropout: float, seed: int, add_eos: bool = False) -> list[list[int]]:
        """Returns ids as ``encode_batch`` does, but from segmentations sampled with BPE-dropout.

        Each time that two subwords can be merged, the merge is skipped with probability ``dropout`` (Provilkov et al.
        2020, https://aclanthology.org/2020.acl-main.170).

        Args:
          texts: Any strings, prepared.
          dropout: The probability, greater than 0 and less than 1.
          seed: The seed, less than 2^31; the same seed always gives the same ids.
          add_eos: Whether every list ends with ``EOS_ID``.

        Raises:
          UserError: The subword model has only one segmentation (a unigram model, a preset's tokenizer).
        """
        return self.subwords.sample(texts, dropout, seed, add_eos)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the prepared text of ids up to the first EOS; PAD and control symbols are ignored.

        Raises:
          ValueError: An id is outside the vocabulary.
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
        """Returns the written forms of ids, for tables and figures; ``▁`` is a space, ``@@`` means no space follows."""
        return [self.subwords.piece(int(index)) for index in ids]

    def piece_texts(self) -> list[bytes]:
        """Returns the UTF-8 text of each id inside a line, including spaces between words; [vocab_size]."""
        return [self.subwords.text(index) for index in range(self.vocab_size)]

    def word_starts(self) -> list[bool]:
        """Returns for each id whether it may follow a complete word; [vocab_size]."""
        return [self.subwords.starts_word(index) for index in range(self.vocab_size)]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the encoder to a file atomically."""
        files.write_bytes_atomically(path, self.model_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordEncoder) and self.model_bytes == other.model_bytes

    def __hash__(self) -> int:
        return hash(self.model_bytes)

    def __reduce__(self):  # noqa: ANN204 -- pickle's protocol, for worker processes
        return SubwordEncoder, (self.model_bytes,)


def _keeping_whitespace(texts: Sequence[str], function: Callable[[list[str]], list[str]]) -> list[str]:
    """Applies a function to texts without their trailing whitespace, which is then appended again."""
    bodies = [text.rstrip() for text in texts]
    rows = zip(function(bodies), texts, bodies, strict=True)
    return [made + text[len(body) :] for made, text, body in rows]
