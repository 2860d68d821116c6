"""Text to subword ids and back: SentencePiece BPE with byte fallback, lossless and TensorFlow-free.

Nothing is normalised: every character that a line can hold comes back, blanks at either
end and unusual line separators included, because characters outside the vocabulary are
spelt as UTF-8 bytes. The one exception is U+2581, SentencePiece's own sign for a blank,
which comes back as a blank. The ids 0 to 10 mean the same in every model trained here.

Sources: Sennrich et al. 2016 (BPE), https://aclanthology.org/P16-1162; Kudo and
Richardson 2018 (SentencePiece), https://aclanthology.org/D18-2012.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterable, Sequence

import sentencepiece

from t2t_ext.errors import UserError
from t2t_ext.persistence import files

PAD_ID = 0
EOS_ID = 1
UNK_ID = 2
L2R_ID = 3
R2L_ID = 4
CONTROL_SYMBOLS = ("<l2r>", "<r2l>", *(f"<reserved_{i}>" for i in range(6)))
FIRST_TEXT_ID = 3 + len(CONTROL_SYMBOLS)

# Longer training lines (in bytes) are cut, or one runaway line would cost more than the rest of the sample.
MAX_TRAINING_BYTES = 16384


class SubwordEncoder:
    """One trained subword model: encodes text to ids and decodes ids to text.

    Encoding never yields ``PAD_ID``, ``EOS_ID`` or a control symbol; whoever writes
    sentences appends ``EOS_ID``.
    """

    def __init__(self, model_bytes: bytes, origin: str = "the given bytes") -> None:
        """Reads a serialized SentencePiece model.

        Args:
          model_bytes: The content of a SentencePiece ``.model`` file.
          origin: Where the bytes came from, for error messages.

        Raises:
          UserError: Not a SentencePiece model, or one whose PAD or EOS have other ids than ours.
        """
        self.model_bytes = model_bytes
        try:
            if not model_bytes:  # accepted by SentencePiece until the first use
                raise RuntimeError("empty")
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
        except RuntimeError as error:
            raise UserError(
                f"{origin} is not a SentencePiece model; give a .model file as t2t_ext-datagen or spm_train write it."
            ) from error
        found = (self._processor.pad_id(), self._processor.eos_id(), self._processor.unk_id())
        if found != (PAD_ID, EOS_ID, UNK_ID):
            raise UserError(
                f"{origin} has pad, eos and unk at ids {found}, but {(PAD_ID, EOS_ID, UNK_ID)} are needed; train it "
                f"with --pad_id={PAD_ID} --eos_id={EOS_ID} --unk_id={UNK_ID} --bos_id=-1."
            )
        self._silent = frozenset(i for i in range(self.vocab_size) if self._processor.is_control(i))

    @classmethod
    def from_bytes(cls, model_bytes: bytes) -> "SubwordEncoder":
        """Returns the encoder of a serialized model."""
        return cls(model_bytes)

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> "SubwordEncoder":
        """Returns the encoder of a ``.model`` file.

        Raises:
          UserError: There is no such file, or it is not a usable model.
        """
        try:
            with open(path, "rb") as file:
                return cls(file.read(), origin=str(path))
        except OSError as error:
            raise UserError(f"The subword model {path} cannot be read: {error.strerror or error}.") from error

    @property
    def vocab_size(self) -> int:
        """The number of ids, special ones included."""
        return self._processor.get_piece_size()

    @property
    def control_ids(self) -> tuple[int, ...]:
        """Ids of the control symbols (direction tags, reserved ones), which stand for no text; PAD and EOS left out."""
        return tuple(sorted(self._silent - {PAD_ID, EOS_ID}))

    @property
    def sha256(self) -> str:
        """The hexadecimal SHA-256 of the model: two encoders with the same one are the same."""
        return hashlib.sha256(self.model_bytes).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without EOS."""
        return self._processor.encode(text, out_type=int)

    def encode_batch(self, texts: Sequence[str], add_eos: bool = False) -> list[list[int]]:
        """Returns the ids of every text, on the calling thread alone.

        Args:
          texts: Any strings.
          add_eos: Whether every list ends with ``EOS_ID``.
        """
        return self._processor.encode(list(texts), out_type=int, num_threads=1, add_eos=add_eos)

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids up to the first EOS; PAD and control symbols say nothing.

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
            if index not in self._silent:
                spoken.append(index)
        return self._processor.decode(spoken)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the written form of every id, ``▁`` for a blank, for tables and pictures."""
        return [self._processor.id_to_piece(int(index)) for index in ids]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the model to a file, which appears whole or not at all."""
        files.write_bytes_atomically(path, self.model_bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordEncoder) and self.model_bytes == other.model_bytes

    def __hash__(self) -> int:
        return hash(self.model_bytes)

    def __reduce__(self):  # noqa: ANN204 -- pickle's protocol, for worker processes
        return SubwordEncoder, (self.model_bytes,)


def train_subword_encoder(
    texts: Iterable[str], vocab_size: int, *, character_coverage: float = 0.9999
) -> SubwordEncoder:
    """Trains a BPE model; the same texts in the same order always give the same bytes.

    Args:
      texts: The training sentences; every one is used.
      vocab_size: The number of ids, bytes and special ids included. A corpus with too few
        different words gives a smaller model: compare ``vocab_size`` of the result.
      character_coverage: The share of the running characters that get an id of their own;
        rarer ones are spelt in bytes, so that a few odd characters do not eat the vocabulary.

    Returns:
      The encoder.

    Raises:
      UserError: There is no text at all, or the vocabulary size cannot hold the characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(_cut(text) for text in texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=True,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            # So a line's first word has the id that it has elsewhere; decoding takes exactly that one blank away.
            add_dummy_prefix=True,
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            bos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            max_sentence_length=MAX_TRAINING_BYTES + 4,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(error, vocab_size) from error
    return SubwordEncoder(model.getvalue())


def _cut(text: str) -> str:
    """Returns at most ``MAX_TRAINING_BYTES`` bytes of a text, ending between two characters."""
    if len(text) * 4 <= MAX_TRAINING_BYTES:
        return text
    return text.encode()[:MAX_TRAINING_BYTES].decode(errors="ignore")


def _explained(error: RuntimeError, vocab_size: int) -> Exception:
    """Turns SentencePiece's complaints that a user can answer into UserErrors."""
    if "sentences_.empty()" in str(error):
        return UserError("The training text has no characters to learn subwords from; check the train files.")
    small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if small:
        return UserError(
            f"vocab_size={vocab_size} is too small: 256 bytes, {FIRST_TEXT_ID} special ids and the corpus's characters "
            f"need {small.group(1)} ids. Give a vocab_size of at least {small.group(1)}."
        )
    return error
