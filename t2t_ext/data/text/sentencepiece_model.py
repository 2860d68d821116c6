"""Trains and applies SentencePiece models with byte fallback, which are lossless and can run inside the graph.

Kudo and Richardson 2018, https://aclanthology.org/D18-2012.
"""

import functools
import hashlib
import io
import math
import operator
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import sentencepiece

from t2t_ext.data.text.special_ids import CONTROL_SYMBOLS, EOS_ID, FIRST_TEXT_ID, PAD_ID, UNK_ID
from t2t_ext.errors import UserError

# Training lines with more bytes are truncated; otherwise one runaway line could cost more than the rest of the sample.
MAX_TRAINING_BYTES = 16384
# Sampling time grows with the square of the word length and reaches seconds here. Longer "words" are not real words.
MOST_DRAWN_CHARACTERS = 5000
_SPACE = "\u2581"  # SentencePiece's symbol for a space
_WORD = re.compile(f"{_SPACE}[^{_SPACE}]*|[^{_SPACE}]+")
sentencepiece.set_min_log_level(1)  # warnings
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class SentencePieceModel:
    """One trained SentencePiece model."""

    kind = "sentencepiece"

    def __init__(self, model: bytes, origin: str) -> None:
        """Reads the content of a ``.model`` file; ``origin`` says where it came from, for messages.

        Raises:
          UserError: The content is not a SentencePiece model, or the model has other ids for PAD, EOS or UNK.
        """
        self.model = model
        try:
            if not model:  # accepted by SentencePiece until the first use
                raise RuntimeError("empty")
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
        except (RuntimeError, UnicodeDecodeError) as error:  # UnicodeDecodeError: a subword is not UTF-8
            raise UserError(
                f"{origin} is not a SentencePiece model; give a .model file as t2t_ext-datagen or spm_train write it."
            ) from error
        found = (self._processor.pad_id(), self._processor.eos_id(), self._processor.unk_id())
        if found != (PAD_ID, EOS_ID, UNK_ID):
            raise UserError(
                f"{origin} has pad, eos and unk at ids {found}, but {(PAD_ID, EOS_ID, UNK_ID)} are needed; train it "
                f"with --pad_id={PAD_ID} --eos_id={EOS_ID} --unk_id={UNK_ID} --bos_id=-1."
            )
        self._silent = frozenset(i for i in range(self.size) if self._processor.is_control(i))

    @property
    def size(self) -> int:
        """The number of ids, including special ids."""
        return self._processor.get_piece_size()

    @property
    def ids_sha256(self) -> str:
        """The digest of the meaning of the ids."""
        return hashlib.sha256(self.model).hexdigest()

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids of control symbols, without PAD and EOS."""
        return tuple(sorted(self._silent - {PAD_ID, EOS_ID}))

    def encode(self, texts: Sequence[str], add_eos: bool) -> list[list[int]]:
        """Returns the ids of each text; works in the calling thread only."""
        return self._processor.encode(list(texts), out_type=int, num_threads=1, add_eos=add_eos)

    def sample(self, texts: Sequence[str], dropout: float, seed: int, add_eos: bool) -> list[list[int]]:
        """Returns the ids of texts when each merge is skipped with probability ``dropout``; the seed decides which.

        A text with a word of more than ``MOST_DRAWN_CHARACTERS`` is segmented as usual. SentencePiece's own
        sampling is not used, because its results differ between processes even with a fixed seed.

        Raises:
          UserError: The model is a unigram model, which has no merges.
        """
        draw, end = random.Random(seed).random, [EOS_ID] if add_eos else []
        return [[*self._sampled(text, dropout, draw), *end] for text in texts]

    def _sampled(self, text: str, dropout: float, draw: Callable[[], float]) -> Iterator[int]:
        """Yields the ids of a text; ``draw`` returns random numbers from 0 to 1."""
        ids, ranks, tags = self._merges
        normalized = self._processor.normalize(text)  # with a symbol for each space
        if any(len(word) > MOST_DRAWN_CHARACTERS for word in normalized.split(_SPACE)):
            yield from self.encode([text], add_eos=False)[0]
            return
        for number, part in enumerate(tags.split(normalized)):
            if number % 2:
                yield ids[part]
                continue
            for word in _WORD.findall(part):
                symbols = list(word)
                while True:
                    pairs = enumerate(map(operator.add, symbols, symbols[1:]))
                    possible = [(ranks[merged], i) for i, merged in pairs if merged in ranks and draw() >= dropout]
                    if not possible:
                        break
                    _, i = min(possible)
                    symbols[i : i + 2] = ["".join(symbols[i : i + 2])]
                for symbol in symbols:
                    if symbol in ids:
                        yield ids[symbol]
                    else:  # spelled in bytes if the model has them
                        spelled = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in symbol.encode()]
                        yield from [UNK_ID] if UNK_ID in spelled else spelled

    @functools.cached_property
    def _merges(self) -> tuple[dict[str, int], dict[str, float], re.Pattern[str]]:
        """The id of each subword, its rank as the result of a merge, and a pattern that matches tags."""
        model = self._processor
        texts = [i for i in range(self.size) if not (model.is_control(i) or model.is_unknown(i) or model.is_byte(i))]
        ids = {model.id_to_piece(i): i for i in texts}
        ranks = {piece: -model.get_score(i) for piece, i in ids.items()}
        if any(rank % 1 for rank in ranks.values()):
            raise UserError(
                "--bpe_dropout leaves out merges, but the SentencePiece model is a unigram model without any."
            )
        # Tags have the score 0.0. The learned subwords follow them, with scores from -0.0 downwards.
        tags = [piece for piece, i in ids.items() if math.copysign(1.0, model.get_score(i)) > 0]
        for tag in tags:
            del ranks[tag]
        found = "|".join(map(re.escape, sorted(tags, key=len, reverse=True))) or r"(?!)"
        return ids, ranks, re.compile(f"({found})")

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; control symbols are ignored."""
        return self._processor.decode([index for index in ids if index not in self._silent])

    def segment(self, text: str) -> str:
        """Returns the text unchanged, because the graph segments it."""
        return text

    def join(self, written: str) -> str:
        """Returns the text unchanged, because the graph joins the subwords."""
        return written

    def piece(self, index: int) -> str:
        """Returns the written form of an id, with ``▁`` for a space."""
        return self._processor.id_to_piece(index)

    def text(self, index: int) -> bytes:
        """Returns the UTF-8 text that an id stands for inside a line."""
        piece = self.piece(index)
        byte = _BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()

    def starts_word(self, index: int) -> bool:
        """Returns whether the id may follow a complete word."""
        return index == EOS_ID or self.piece(index).startswith(_SPACE)


def train(
    texts: Iterable[str], vocab_size: int, *, character_coverage: float = 0.9999, tags: Sequence[str] = ()
) -> bytes:
    """Trains a BPE model and returns its bytes; the same texts in the same order always give the same bytes.

    Args:
      texts: The training sentences, all of which are used.
      vocab_size: The number of ids, including bytes and special ids. A corpus with too few different words gives a
        smaller model.
      character_coverage: The share of all character occurrences whose characters get their own ids. Rarer characters
        are spelled in bytes, so that a few odd ones do not fill the vocabulary.
      tags: Words that each get their own id and are never segmented.

    Raises:
      UserError: There is no text at all, or the vocabulary is too small for the characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            # Decoding with errors="ignore" drops a character that the truncation cut apart.
            sentence_iterator=(text.encode()[:MAX_TRAINING_BYTES].decode(errors="ignore") for text in texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            byte_fallback=True,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            # The first word of a line thus has the same id as elsewhere; decoding removes exactly this one space.
            add_dummy_prefix=True,
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            bos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(tags),
            max_sentence_length=MAX_TRAINING_BYTES + 4,
            minloglevel=2,
        )
    except RuntimeError as error:
        if "sentences_.empty()" in str(error):
            raise UserError(
                "The training text has no characters to learn subwords from; check the train files."
            ) from error
        small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if not small and vocab_size < FIRST_TEXT_ID:  # SentencePiece fails before it counts the ids that it needs
            raise UserError(
                f"vocab_size={vocab_size} is too small: 256 bytes and {FIRST_TEXT_ID} special ids alone need more. "
                "Some thousands are usual."
            ) from error
        if not small:
            raise
        raise UserError(
            f"vocab_size={vocab_size} is too small: 256 bytes, {FIRST_TEXT_ID} special ids and the corpus's characters "
            f"need {small.group(1)} ids. Give a vocab_size of at least {small.group(1)}."
        ) from error
    return model.getvalue()
