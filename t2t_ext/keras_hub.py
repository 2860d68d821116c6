"""Makes runs available as KerasHub tasks, in preset folders that ``t2t_ext-exporter --format=keras_hub`` writes.

    import keras_hub
    import t2t_ext.keras_hub  # KerasHub finds the classes below

    task = keras_hub.models.Seq2SeqLM.from_preset("PRESET")
    task.generate(["Ein Satz."])

``generate`` gives the same translations as the decoder, by the search and the decode hparams of the export. After
``task.compile(sampler="greedy")``, a KerasHub sampler generates instead, without a key/value cache.

Legend: B sentences, S source positions, T target positions, D width, V target vocabulary.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import keras_hub
import numpy as np
import tensorflow as tf

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID, SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.models.keras_model import require_float32_weights
from t2t_ext.models.seq2seq import Seq2Seq
from t2t_ext.translation.translator import Translator

if TYPE_CHECKING:
    Inputs = Mapping[str, tf.Tensor]

_SIDES = ("source", "target")
_REGISTER = keras.saving.register_keras_serializable("t2t_ext")


@_REGISTER
class T2tBackbone(keras_hub.models.Backbone):
    """A t2t_ext model whose decoder reads a start token (PAD) and the tokens so far.

    Attributes:
      seq2seq: The model.
    """

    def __init__(self, model: str, seq2seq: dict[str, Any], dtype: Any = None, **kwargs: Any) -> None:
        """Builds the model with the registered name ``model`` from its config; see ``Seq2Seq.get_config``."""
        config = {**seq2seq, "name": "seq2seq"}
        if dtype is not None:
            config["dtype"] = keras.dtype_policies.get(dtype).name
        made = registry.model(model).from_config(config)
        made.build()
        inputs = {
            f"{side}_{what}": keras.Input((None,), dtype="int32", name=f"{side}_{what}")
            for side in ("encoder", "decoder")
            for what in ("token_ids", "padding_mask")
        }
        features = _Shifted(made, name="shifted", dtype=made.dtype_policy)(inputs)
        super().__init__(inputs=inputs, outputs={"decoder_sequence_output": features}, dtype=dtype, **kwargs)
        self.seq2seq = made
        self.model_name = model

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which ``from_config`` makes an equal backbone."""
        return {**super().get_config(), "model": self.model_name, "seq2seq": self.seq2seq.get_config()}


class _Shifted(keras.layers.Layer):
    """Computes a model's features at every position of the decoder's input, which begins with a start token."""

    def __init__(self, seq2seq: Seq2Seq, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seq2seq = seq2seq
        self.built = True

    def call(self, inputs: "Inputs", training: bool = False) -> tf.Tensor:
        """Returns features float [B, T, D] for ids int32 [B, S] and [B, T] and the masks of their real positions."""
        source, read = (
            tf.cast(inputs[f"{side}_token_ids"], tf.int32) * tf.cast(inputs[f"{side}_padding_mask"], tf.int32)
            for side in ("encoder", "decoder")
        )
        # Position t depends only on the targets before t, so the target at the last position is not read.
        targets = tf.pad(read[:, 1:], [[0, 0], [0, 1]], constant_values=PAD_ID)
        return self.seq2seq.features(source, targets, training=training)

    def compute_output_spec(self, inputs: Any, training: bool = False) -> keras.KerasTensor:
        """Returns the shape and dtype of ``call``'s result."""
        ids = inputs["decoder_token_ids"]
        return keras.KerasTensor((*ids.shape, _width(self.seq2seq)), dtype=self.compute_dtype)


def _width(seq2seq: Seq2Seq) -> int:
    """Returns D, the width of a model's features."""
    return seq2seq.softmax_weights()[0].shape[-1]


@_REGISTER
class T2tTokenizer(keras_hub.tokenizers.Tokenizer):
    """The text encoders of a run, which convert raw text to ids and back, with all steps that prepare it.

    ``tokenize`` and ``detokenize`` use the target's encoder, unless ``side="source"``.
    """

    backbone_cls = T2tBackbone

    def __init__(
        self, source: SubwordEncoder | None = None, target: SubwordEncoder | None = None, **kwargs: Any
    ) -> None:
        """Takes the encoders of both sides; those of a preset are loaded with its assets."""
        kwargs.setdefault("dtype", "int32")
        super().__init__(**kwargs)
        self.file_assets = [f"{side}.model" for side in _SIDES]
        self.encoders: dict[str, SubwordEncoder] = {}
        if source is not None and target is not None:
            self.encoders.update({"source": source, "target": target})
        self.start_token_id = self.pad_token_id = PAD_ID
        self.end_token_id = EOS_ID

    @property
    def special_token_ids(self) -> list[int]:
        """The ids that stand for no text: PAD and EOS."""
        return [PAD_ID, EOS_ID]

    def vocabulary_size(self) -> int:
        """Returns the number of target ids."""
        return self.encoders["target"].vocab_size

    def get_vocabulary(self) -> list[str]:
        """Returns the written form of every target id."""
        return self.encoders["target"].pieces(range(self.vocabulary_size()))

    def id_to_token(self, id: int) -> str:
        """Returns the written form of a target id."""
        return self.encoders["target"].pieces([id])[0]

    def token_to_id(self, token: str) -> int:
        """Returns the target id of a written form."""
        return self.get_vocabulary().index(token)

    def tokenize(self, inputs: Any, side: str = "target") -> Any:
        """Returns the ids of texts [B] without EOS, ragged int32 [B, None]; for a single text, int32 [None]."""
        texts = tf.convert_to_tensor(inputs, tf.string)
        encoder = self.encoders[side]

        def encoded(texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            prepared = encoder.prepare([text.decode(errors="replace") for text in texts])
            # A text without a visible character counts as empty, as in the decoder.
            visible = [text.strip() != "" for text in encoder.segment(prepared)]
            rows = [ids if seen else [] for ids, seen in zip(encoder.encode_batch(prepared), visible, strict=True)]
            return np.array([index for row in rows for index in row], np.int32), np.array([*map(len, rows)], np.int64)

        flat, lengths = tf.numpy_function(encoded, [tf.reshape(texts, [-1])], (tf.int32, tf.int64))
        if texts.shape.rank == 0:
            return tf.ensure_shape(flat, [None])
        return tf.RaggedTensor.from_row_lengths(tf.ensure_shape(flat, [None]), tf.ensure_shape(lengths, [None]))

    def detokenize(self, inputs: Any, side: str = "target") -> Any:
        """Returns the texts [B] of ids, ragged or padded [B, None]; a single text for ids [None]."""
        encoder = self.encoders[side]
        ids = inputs if isinstance(inputs, tf.RaggedTensor) else tf.convert_to_tensor(inputs)
        single = ids.shape.rank == 1
        padded = ids[tf.newaxis] if single else ids.to_tensor(PAD_ID) if isinstance(ids, tf.RaggedTensor) else ids

        def decoded(rows: np.ndarray) -> np.ndarray:
            return np.array(encoder.restore([encoder.decode(row) for row in rows]), object)

        texts = tf.ensure_shape(tf.numpy_function(decoded, [padded], tf.string), [None])
        return texts[0] if single else texts

    def save_assets(self, dir_path: str) -> None:
        """Writes both encoders."""
        for side, encoder in self.encoders.items():
            encoder.save(pathlib.Path(dir_path, f"{side}.model"))

    def load_assets(self, dir_path: str) -> None:
        """Reads both encoders."""
        for side in _SIDES:
            self.encoders[side] = SubwordEncoder.from_file(pathlib.Path(dir_path, f"{side}.model"))


@_REGISTER
class T2tSeq2SeqLMPreprocessor(keras_hub.models.Seq2SeqLMPreprocessor):
    """Converts texts to padded ids; the source has only an end token, the target a start and an end token."""

    backbone_cls = T2tBackbone
    tokenizer_cls = T2tTokenizer

    def get_config(self) -> dict[str, Any]:
        """Returns the config for an equal preprocessor; KerasHub's own leaves out the sequence lengths."""
        lengths = {
            f"{side}_sequence_length": getattr(self, f"{side}_sequence_length") for side in ("encoder", "decoder")
        }
        return {**super().get_config(), **lengths}

    def build(self, input_shape: Any) -> None:
        """Creates the packers of both sides, the source's without a start token."""
        super().build(input_shape)
        self.encoder_packer.start_value = None

    def call(
        self,
        x: Mapping[str, Any],
        y: Any = None,
        sample_weight: Any = None,
        *,
        encoder_sequence_length: int | None = None,
        decoder_sequence_length: int | None = None,
        sequence_length: int | None = None,
    ) -> Any:
        """Returns (x, y, sample_weight) for texts ``encoder_text`` and ``decoder_text``; see KerasHub's class."""
        length = decoder_sequence_length or sequence_length or self.decoder_sequence_length
        source = self._packed("encoder", x["encoder_text"], encoder_sequence_length or self.encoder_sequence_length)
        ids, mask = self._packed("decoder", x["decoder_text"], length + 1).values()
        read = {"decoder_token_ids": ids[..., :-1], "decoder_padding_mask": mask[..., :-1]}
        return keras.utils.pack_x_y_sample_weight({**source, **read}, ids[..., 1:], mask[..., 1:])

    def generate_preprocess(
        self,
        x: Any,
        *,
        encoder_sequence_length: int | None = None,
        decoder_sequence_length: int | None = None,
        sequence_length: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Returns the ids of texts to translate, or of ``encoder_text`` and target prefixes ``decoder_text``."""
        if not self.built:
            self.build(None)
        texts = tf.convert_to_tensor(x["encoder_text"] if isinstance(x, Mapping) else x, tf.string)
        prompts = x["decoder_text"] if isinstance(x, Mapping) else tf.fill(tf.shape(texts), "")
        length = decoder_sequence_length or sequence_length or self.decoder_sequence_length
        return {
            **self._packed("encoder", texts, encoder_sequence_length or self.encoder_sequence_length),
            **self._packed("decoder", prompts, length, add_end_value=False),
        }

    def _packed(self, side: str, texts: Any, length: int, **options: Any) -> dict[str, tf.Tensor]:
        packer = self.encoder_packer if side == "encoder" else self.decoder_packer
        rows = self.tokenizer.tokenize(texts, side="source" if side == "encoder" else "target")
        ids, mask = packer(rows, sequence_length=length, **options)
        if isinstance(rows, tf.RaggedTensor) and ids.shape.rank == 1:  # KerasHub 0.32 packs no texts as [0]
            ids, mask = (tf.reshape(each, [0, length]) for each in (ids, mask))
        return {f"{side}_token_ids": ids, f"{side}_padding_mask": mask}


@_REGISTER
class T2tSeq2SeqLM(keras_hub.models.Seq2SeqLM):
    """A run as a KerasHub task: ``generate``, ``fit``, ``evaluate``, ``save_to_preset``.

    Attributes:
      decode_hparams: How ``generate`` searches, unless ``compile`` is given a sampler.
    """

    backbone_cls = T2tBackbone
    preprocessor_cls = T2tSeq2SeqLMPreprocessor
    generate_function: Callable[..., dict[str, tf.Tensor]] | None

    def __init__(
        self,
        backbone: T2tBackbone,
        preprocessor: T2tSeq2SeqLMPreprocessor | None = None,
        decode_hparams: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Builds the task; ``decode_hparams`` are given by name, and without them the defaults apply."""
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.decode_hparams = DecodeHParams.from_dict(decode_hparams) if decode_hparams else DecodeHParams()
        features = backbone(backbone.input)["decoder_sequence_output"]
        super().__init__(inputs=backbone.input, outputs=_Logits(backbone.seq2seq, name="logits")(features), **kwargs)

    def build(self, input_shape: Any = None) -> None:
        """Does nothing: the backbone has all variables."""

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which ``from_config`` makes an equal task."""
        return {**super().get_config(), "decode_hparams": self.decode_hparams.to_dict()}

    def compile(self, *args: Any, sampler: Any = None, **kwargs: Any) -> None:
        """Configures training and generation; without a sampler, ``generate`` searches as the decoder does."""
        super().compile(*args, sampler=sampler or "greedy", **kwargs)
        self._searches = sampler is None

    def make_train_function(self, force: bool = False) -> Any:
        """Returns the function of a training step; raises a UserError if the weights have a low precision."""
        require_float32_weights(self.backbone.seq2seq.dtype_policy)
        return super().make_train_function(force)

    def make_generate_function(self) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns the function that finds the ids of translations for a preprocessed batch."""
        if not self._searches:
            return super().make_generate_function()
        if self.generate_function is None:
            if self.preprocessor is None:
                raise UserError(
                    "The search needs the preprocessor's text encoders: compile with a sampler, such as greedy."
                )
            encoders = self.preprocessor.tokenizer.encoders
            source, target = (encoders[side] for side in _SIDES)
            search = self.decode_hparams.replace(precision="")  # from_preset(dtype=...) decides
            translator = Translator(self.backbone.seq2seq, source, target, search)
            self.generate_function = lambda inputs, stop_token_ids=None: _searched(translator, inputs)
        return self.generate_function

    def generate_step(self, inputs: "Inputs", stop_token_ids: Sequence[int] | None = None) -> dict[str, tf.Tensor]:
        """Generates with a KerasHub sampler; see KerasHub's ``CausalLM``."""
        prompt, mask = inputs["decoder_token_ids"], inputs["decoder_padding_mask"]
        source = {name: inputs[name] for name in ("encoder_token_ids", "encoder_padding_mask")}
        batch = tf.shape(prompt)[0]

        def following(prompt: tf.Tensor, cache: Any, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Any]:
            times = tf.shape(prompt)[0] // batch  # the hypotheses in a sentence's beam are adjacent
            repeated = {name: tf.repeat(part, times, axis=0) for name, part in source.items()}
            read = {"decoder_token_ids": prompt, "decoder_padding_mask": tf.ones_like(prompt)}
            features = self.backbone({**repeated, **read})["decoder_sequence_output"][:, index - 1]
            return self.backbone.seq2seq.logits(features), features, cache

        ids = self.sampler(
            next=following,
            prompt=prompt,
            cache=tf.zeros([batch, 1]),
            index=tf.reduce_min(tf.reduce_sum(tf.cast(mask, tf.int32), axis=-1)),
            mask=mask,
            stop_token_ids=stop_token_ids,
            hidden_states=tf.zeros([batch, tf.shape(prompt)[1], _width(self.backbone.seq2seq)]),
            model=self,
        )
        ended = tf.reduce_any([tf.equal(ids, each) for each in stop_token_ids or [-1]], axis=0) & ~tf.cast(
            mask, tf.bool
        )
        before = tf.cumsum(tf.cast(ended, tf.int32), axis=-1, exclusive=True)
        return {"decoder_token_ids": ids, "decoder_padding_mask": tf.equal(before, 0)}


class _Logits(keras.layers.Layer):
    """Projects a model's features to logits with the model's own weights."""

    def __init__(self, seq2seq: Seq2Seq, **kwargs: Any) -> None:
        super().__init__(dtype=seq2seq.dtype_policy, **kwargs)
        self._project = seq2seq.logits
        self._size = seq2seq.target_vocab_size
        self.built = True

    def call(self, features: tf.Tensor) -> tf.Tensor:
        """Returns logits float32 [B, T, V] for features float [B, T, D]."""
        return self._project(features)

    def compute_output_spec(self, features: Any) -> keras.KerasTensor:
        """Returns the shape and dtype of ``call``'s result."""
        return keras.KerasTensor((*features.shape[:-1], self._size), dtype="float32")


def _searched(translator: Translator, inputs: "Inputs") -> dict[str, tf.Tensor]:
    """Returns the ids of the best translations of a preprocessed batch, each after a start token."""
    if np.any(np.asarray(inputs["decoder_padding_mask"])[:, 1:]):
        raise UserError(
            "The search takes no beginnings (decoder_text): compile with a sampler, such as greedy, or give "
            "Translator.translate prefixes."
        )
    ids, mask = (np.asarray(inputs[f"encoder_{what}"]) for what in ("token_ids", "padding_mask"))
    rows = [row[:length].tolist() for row, length in zip(ids, mask.sum(axis=1), strict=True)]
    limit = translator.source_limit  # the preprocessor may be set to a greater length
    rows = [[*row[:limit], EOS_ID] if len(row) > limit + 1 else row for row in rows]
    most = inputs["decoder_token_ids"].shape[1] - 1
    found = [[PAD_ID, *best.ids[:most]] for best, *_ in translator.translate_ids(rows)]
    rows_found = tf.ragged.constant(found, tf.int32, ragged_rank=1)
    return {
        "decoder_token_ids": rows_found.to_tensor(PAD_ID),
        "decoder_padding_mask": tf.sequence_mask(rows_found.row_lengths()),
    }


def _longest_translation(hparams: DecodeHParams, source_length: int) -> int:
    """Returns the maximum number of tokens, including EOS, that the search gives for a source of ``source_length``."""
    if hparams.length_limit == "extra":
        return source_length + 1 + hparams.extra_length
    return int(hparams.max_length_ratio * source_length) + hparams.max_length_offset


def task_of(translator: Translator, model: str) -> T2tSeq2SeqLM:
    """Returns the KerasHub task of a translator; ``model`` is the registered name of its model.

    Raises:
      UserError: The model is of a kind that KerasHub's tasks cannot represent.
    """
    made = translator.model
    reasons = {
        "several models": not isinstance(made, Seq2Seq),
        "a source of feature vectors": bool(made.source_feature_size),
        "two directions or targets": made.directions > 1 or made.target_sides > 1,
        "a direction from right to left": translator.target_direction == "r2l",
    }
    for reason in [reason for reason, is_so in reasons.items() if is_so]:
        raise UserError(
            f"KerasHub's Seq2SeqLM reads a text and generates one left to right, and this has {reason}: leave "
            "--format=keras_hub out for a SavedModel, which can be anything."
        )
    assert isinstance(made, Seq2Seq)
    backbone = T2tBackbone(model, made.get_config())
    backbone.seq2seq.assign({name: variable.numpy() for name, variable in made.named_variables().items()})
    hparams = translator.decode_hparams
    preprocessor = T2tSeq2SeqLMPreprocessor(
        T2tTokenizer(translator.source_encoder, translator.target_encoder),
        encoder_sequence_length=translator.source_limit + 1,
        decoder_sequence_length=_longest_translation(hparams, translator.source_limit) + 1,  # plus the start token
    )
    return T2tSeq2SeqLM(backbone, preprocessor, hparams.to_dict())


def write_preset(translator: Translator, model: str, folder: str | os.PathLike) -> None:
    """Writes the preset folder of a translator completely or not at all, replacing an existing one.

    Raises:
      UserError: As in ``task_of``.
    """
    task = task_of(translator, model)
    folder = pathlib.Path(folder).absolute()  # it may be the working directory, which is replaced
    with files.atomic_directory(folder) as place:
        task.save_to_preset(str(place))
    files.remove_leftovers(folder.parent)  # of exports that were killed
