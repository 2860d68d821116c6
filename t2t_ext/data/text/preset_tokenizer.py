"""Uses the tokenizer of a KerasHub preset (BERT, RoBERTa, XLM-R, ...) as the subword model of the source side.

The ids are those of the tokenizer plus ``FIRST_TEXT_ID``, so that the special ids mean the same as in every vocabulary.
The preset's own start, end and padding ids never occur in text; ``PresetEncoder`` adds them again for its backbone.

The text encoder's file contains the files of the tokenizer and the description of the backbone. The preset and network
access are therefore needed only once. TensorFlow is loaded when the first text is tokenized.
"""

import functools
import hashlib
import json
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Self

from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID, SPECIAL_PIECES
from t2t_ext.errors import UserError, require_package

BACKBONE_FILE = "config.json"
_SUBWORD_OF_WORD = "##"  # WordPiece's prefix of a subword inside a word
_SPACES = ("\u2581", "\u0120")  # how SentencePiece and byte-level BPE write a space


class PresetTokenizer:
    """The subword model of one KerasHub tokenizer.

    Attributes:
      files: The contents of the tokenizer's files and of the backbone's description, by file name in the preset.
    """

    kind = "keras_hub"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """Stores the files; nothing is loaded yet."""
        self.files = dict(sorted(files.items()))

    @classmethod
    def from_preset(cls, preset: str) -> Self:
        """Reads the tokenizer of a preset, which is a directory or a KerasHub name whose files are downloaded.

        Raises:
          UserError: KerasHub is not installed, or it cannot read the preset.
        """
        keras_hub = _keras_hub(f"--source_tokenizer={preset}")
        import keras

        try:
            tokenizer = keras_hub.tokenizers.Tokenizer.from_preset(preset)
            backbone = keras_hub.models.Backbone.from_preset(preset, load_weights=False)
        except Exception as error:  # failed downloads, bad files, missing classes
            reason = " ".join(str(error).split())[:400]
            raise UserError(f"KerasHub could not read the preset {preset}: {reason}") from error
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_to_preset(folder)
            paths = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
            files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        description = keras.saving.serialize_keras_object(backbone)
        for key in ("build_config", "compile_config"):
            description.pop(key, None)
        return cls({**files, BACKBONE_FILE: json.dumps(description, sort_keys=True).encode()})

    @functools.cached_property
    def tokenizer(self) -> Any:
        """KerasHub's tokenizer object, loaded at the first use."""
        keras_hub = _keras_hub("This text encoder")
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return keras_hub.tokenizers.Tokenizer.from_preset(folder)

    @property
    def encoder_config(self) -> dict[str, Any]:
        """The configuration of ``PresetEncoder``: the backbone's description and its ids for start, end and PAD."""
        found = self.tokenizer

        def special(*names: str) -> int | None:
            ids = (getattr(found, f"{name}_token_id", None) for name in names)
            return next((int(index) for index in ids if index is not None), None)

        return {
            "backbone": json.loads(self.files[BACKBONE_FILE]),
            "start": special("start", "cls"),
            "end": special("end", "sep"),
            "pad": special("pad") or 0,
        }

    @functools.cached_property
    def size(self) -> int:
        """The number of ids, including special ids."""
        return int(self.tokenizer.vocabulary_size()) + FIRST_TEXT_ID

    @property
    def ids_sha256(self) -> str:
        """The digest of the meaning of the ids."""
        digest = hashlib.sha256()
        for name, content in self.files.items():
            if name != BACKBONE_FILE:
                digest.update(f"{name}\n{len(content)}\n".encode() + content)
        return digest.hexdigest()

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids that stand for no text, without PAD, EOS and UNK."""
        own = (FIRST_TEXT_ID + int(index) for index in self.tokenizer.special_token_ids)
        return tuple(sorted({*range(EOS_ID + 2, FIRST_TEXT_ID), *own}))

    @functools.cached_property
    def _graphs(self) -> tuple[Any, Any]:
        """Two functions: strings [N] to ragged ids, and back. Outside a graph, some tokenizers would return lists."""
        import tensorflow as tf

        ids = tf.RaggedTensorSpec([None, None], tf.int32)
        return (
            tf.function(self.tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False),
            tf.function(self.tokenizer.detokenize, input_signature=[ids], autograph=False),
        )

    def encode(self, texts: Sequence[str], add_eos: bool) -> list[list[int]]:
        """Returns the ids of each text; ``add_eos`` appends ``EOS_ID``."""
        import tensorflow as tf

        if not texts:
            return []
        rows = self._graphs[0](tf.constant(list(texts), tf.string)).to_list()
        end = [EOS_ID] if add_eos else []
        return [[*(FIRST_TEXT_ID + index for index in row), *end] for row in rows]

    def sample(self, texts: Sequence[str], dropout: float, seed: int, add_eos: bool) -> list[list[int]]:
        """Raises a UserError, because the tokenizer has only one segmentation of a text."""
        raise UserError("--bpe_dropout segments training text in several ways, and a preset's tokenizer has one.")

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, ignoring special ids."""
        import tensorflow as tf

        own = [index - FIRST_TEXT_ID for index in ids if index >= FIRST_TEXT_ID]
        return self._graphs[1](tf.ragged.constant([own], tf.int32)).numpy()[0].decode() if own else ""

    def segment(self, text: str) -> str:
        """Returns the text unchanged, because the graph segments it."""
        return text

    def join(self, written: str) -> str:
        """Returns the text unchanged."""
        return written

    def piece(self, index: int) -> str:
        """Returns the written form of an id."""
        return SPECIAL_PIECES[index] if index < FIRST_TEXT_ID else self._pieces[index - FIRST_TEXT_ID]

    @functools.cached_property
    def _pieces(self) -> list[str]:
        found = self.tokenizer
        try:
            return [found.id_to_token(index) for index in range(found.vocabulary_size())]
        except AttributeError:  # XLMRobertaTokenizer of KerasHub 0.26 asks for names that it does not set
            import tensorflow as tf

            every = tf.RaggedTensor.from_tensor(tf.range(found.vocabulary_size(), dtype=tf.int32)[:, tf.newaxis])
            return [text.decode() or f"<{index}>" for index, text in enumerate(self._graphs[1](every).numpy())]

    def text(self, index: int) -> bytes:
        """Returns the UTF-8 text that an id stands for inside a line (WordPiece: without spaces)."""
        if index < FIRST_TEXT_ID:
            return b""
        piece = self.piece(index)
        if any(sign in piece for sign in _SPACES):
            return functools.reduce(lambda text, sign: text.replace(sign, " "), _SPACES, piece).encode()
        return piece.removeprefix(_SUBWORD_OF_WORD).encode()

    def starts_word(self, index: int) -> bool:
        """Returns whether the id may follow a complete word."""
        return index >= FIRST_TEXT_ID and not self.piece(index).startswith(_SUBWORD_OF_WORD)


def own_ids(ids: Any, pad: int, end: int | None) -> Any:
    """Converts ids int32 [...] to those of the preset's tokenizer, including its own PAD and end ids."""
    import tensorflow as tf

    special = tf.where(tf.equal(ids, EOS_ID), pad if end is None else end, pad)
    return tf.where(ids >= FIRST_TEXT_ID, ids - FIRST_TEXT_ID, special)


def _keras_hub(need: str) -> Any:
    require_package("keras_hub", "keras-hub", need)
    import keras_hub

    return keras_hub
