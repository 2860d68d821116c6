"""The interface that every model offers to training, search and export.

Training calls ``features_and_losses`` (which calls ``training_features``), ``training_labels`` and ``softmax_weights``.
The search calls ``start`` and ``step``. ``call`` combines ``features`` and ``logits``; all other methods must agree
with its result.

A model with two target sides trains on, and scores, two targets of a sentence at once. Wherever [B, T] is written
below, its ids are [B, 2, T]: side 0 is left to right, side 1 right to left (reversed, with EOS still at the end). The
outputs have the same additional axis. The sides' lengths are independent.

A source may consist of feature vectors instead of ids (``source_feature_size``). Wherever ``inputs`` int32 [B, S] is
written below, it is then float32 [B, S, F], and a vector of only zeros is padding.

Legend: B sentences, S source positions, T target positions, D width, F size of a source's feature vectors, V target
vocabulary, R directions, K hypotheses of a direction.
"""

import abc
import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import tensorflow as tf

from t2t_ext import compat
from t2t_ext.config.hyperparameters import HParams
from t2t_ext.errors import UserError
from t2t_ext.models import families
from t2t_ext.models.keras_model import KerasModel, TrainingCall

# A decoding state: nested dicts and lists of tensors, opaque to the search.
State = Any

H = TypeVar("H", bound=HParams)


class Sides(NamedTuple):
    """The numbers of a model's directions and target sides, known before the model is built.

    Attributes:
      directions: R, the number of directions in which the model generates at once.
      target_sides: Number of target sequences in a training example.
    """

    directions: int
    target_sides: int


@dataclasses.dataclass(frozen=True)
class VariableRow:
    """One row of a model's description."""

    path: str
    part: str
    shape: tuple[int, ...]
    dtype: str
    parameters: int


class Seq2Seq(KerasModel, abc.ABC, Generic[H]):
    """A model that predicts the distribution of the next target token from a source and a target prefix.

    Ids are int32; every sentence ends with EOS (1) and is padded with PAD (0).

    Attributes:
      hparams_class: The family of hparams that the model needs.
      directions: R, the number of directions in which the model generates at once; on the class, the minimum.
      target_sides: Number of target sequences in a training example; on the class, the minimum.
      takes_source_features: Whether the source may consist of feature vectors.
      takes_encoder_preset: Whether a pretrained encoder may replace the model's own encoder.
      longest_source: The largest number of source positions that the encoder reads, including EOS; 0: no limit.
    """

    hparams_class: type[HParams] = HParams
    directions: int = 1
    target_sides: int = 1
    takes_source_features: bool = False
    takes_encoder_preset: bool = False
    longest_source: int = 0

    def __init__(
        self,
        hparams: H,
        *,
        source_vocab_size: int,
        target_vocab_size: int,
        joint_vocabulary: bool | None = None,
        source_feature_size: int = 0,
        encoder_config: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
    ) -> None:
        """Initializes the model; ``build`` creates the variables.

        Args:
          hparams: An instance of the model's ``hparams_class``.
          source_vocab_size: Number of source ids.
          target_vocab_size: Number of target ids, V.
          joint_vocabulary: Whether source and target ids mean the same subwords, so that their
            embeddings may be shared. None: exactly when the sizes are equal.
          source_feature_size: F if the source consists of feature vectors (the source ids then have no effect); 0 if
            it consists of ids.
          encoder_config: The configuration of the encoder of ``encoder_preset``; see ``PresetTokenizer``.
          name: Root of the variables' paths; checkpoints leave it out of their names.
          dtype: A Keras dtype policy; None: ``hparams.precision``.

        Raises:
          UserError: The hparams belong to another family, the vocabulary sizes contradict ``joint_vocabulary``, the
            model cannot read feature vectors, or ``encoder_preset`` does not fit the model or the data.
        """
        super().__init__(name=name or "model", dtype=dtype or hparams.precision)
        needed = {name: getattr(self, name) for name in ("slot", "filled_with", "advice") if hasattr(self, name)}
        needed |= {"title": type(self).__name__, "hparams_class": self.hparams_class.__name__}
        needed |= {"target_sides": self.target_sides}
        if wrong := families.misfit(needed, hparams):
            raise UserError(wrong)
        if joint_vocabulary is None:
            joint_vocabulary = source_vocab_size == target_vocab_size
        if joint_vocabulary and source_vocab_size != target_vocab_size:
            raise UserError(
                f"A joint vocabulary has one size; got {source_vocab_size} source and {target_vocab_size} target ids."
            )
        if source_feature_size and not self.takes_source_features:
            raise UserError(
                f"{type(self).__name__} reads words, but the source of these data is feature vectors "
                f"({source_feature_size} numbers each). Choose a model whose encoder stands alone, such as transformer "
                "or cross_view_transformer."
            )
        preset = getattr(hparams, "encoder_preset", "")
        if preset and not (self.takes_encoder_preset and encoder_config):
            reason = (
                "but the source of these data is not tokenized by a preset. Make them with t2t_ext-datagen "
                f"--source_tokenizer={preset}"
                if self.takes_encoder_preset
                else f"but {type(self).__name__} has no encoder of its own in whose place it could stand"
            )
            raise UserError(f"encoder_preset={preset} is a pretrained encoder with its own tokenizer, {reason}.")
        self.encoder_config = dict(encoder_config) if preset and encoder_config else None
        self.hparams: H = hparams
        self.directions, self.target_sides = self.sides(hparams)
        self.source_feature_size = source_feature_size
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.joint_vocabulary = joint_vocabulary

    @classmethod
    def sides(cls, hparams: HParams) -> Sides:
        """Returns the numbers of directions and target sides of a model with these hparams, without making it."""
        return Sides(
            max(cls.directions, getattr(hparams, "directions", 1)),
            max(cls.target_sides, getattr(hparams, "target_sides", 1)),
        )

    # === Training ===

    @abc.abstractmethod
    def features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the decoder's output at every target position, before the softmax projection.

        Args:
          inputs: int32 [B, S].
          targets: int32 [B, T]; the model shifts them right itself.
          training: Whether dropout is applied.

        Returns:
          float [B, T, D] in the compute dtype; position t depends on targets before t only.
        """

    def training_features(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the decoder's output at the positions that have a loss.

        It is float, with the shape of ``training_labels`` followed by D. The arguments, and by default the result, are
        those of ``features``.
        """
        return self.features(inputs, targets, training=training)

    def features_and_losses(self, inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Returns ``training_features`` with dropout, and what the model's layers add to the mean loss.

        The latter are float32 []: what layers pass to ``add_loss``, activity regularizers, and the regularizers of
        trained weights. The arguments are those of ``features``.
        """
        whole = TrainingCall(self)
        try:
            features = whole(inputs, targets, training=True)
        except Exception as error:
            raise (whole.error or error) from None
        return features, [tf.cast(tf.reduce_sum(each), tf.float32) for each in whole.losses]

    def training_labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns the ids to be predicted at the positions of ``training_features``; by default, the targets.

        They are int32 [B, T'] for targets int32 [B, T]. Positions with PAD have no loss.
        """
        return targets

    def label_weights(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Returns the weight of each label's loss, float32 [B, T'] for labels int32 [B, T']; None: all are 1."""
        return None

    @abc.abstractmethod
    def softmax_weights(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the kernel [V, D] and the bias [V] or None (variable dtype): logits = features kernel^T + bias."""

    def call(self, inputs: Any, targets: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """Returns the logits float32 [B, T, V] of every target position.

        The arguments are those of ``features``. Source and targets may also be passed as one argument: a dict with the
        keys ``inputs`` and ``targets``, or a list.
        """
        return self.logits(self.features(*self.unpacked(inputs, targets), training=training))

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        """Projects features float [..., D] to logits float32 [..., V]."""
        kernel, bias = self.softmax_weights()
        rows = tf.reshape(features, [-1, features.shape[-1]])
        logits = tf.cast(tf.matmul(rows, tf.cast(kernel, rows.dtype), transpose_b=True), tf.float32)
        if bias is not None:
            logits += tf.cast(bias, tf.float32)
        return tf.reshape(logits, tf.concat([tf.shape(features)[:-1], [self.target_vocab_size]], axis=0))

    # === Decoding ===

    @abc.abstractmethod
    def start(self, inputs: tf.Tensor) -> State:
        """Encodes inputs int32 [B, S] and returns the decoding state before the first step."""

    @abc.abstractmethod
    def step(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, State]:
        """Feeds one token of every hypothesis and returns the logits of the next one.

        The cache keeps the keys and values of all steps of all hypotheses side by side, in columns
        ``step * K + rank``; ``visible`` says which columns are a hypothesis's own past.

        Args:
          ids: int64 (or int32) [B, R, K], the tokens chosen last; ignored at the first step.
          visible: bool [B, R, K, (t + 1) * K] at step t = 0, 1, ..., including the step's own column.
          partner_visible: The same for the columns of the other direction, or None.
          parents: int64 (or int32) [B, R, K], the rank that each hypothesis's past had at step t - 1.
          state: From ``start`` or the previous step: scalars, and tensors with the sentences on axis 0. The search
            removes finished sentences from these tensors.

        Returns:
          The logits float32 [B, R, K, V] and the new state.
        """

    def shortlisted(self, state: State, ids: tf.Tensor) -> State:
        """Returns a state before the first step for which ``step`` computes only the candidates' logits.

        Args:
          state: From ``start``.
          ids: int32 [B, C], the candidates of each sentence in ascending order, padded with
            ``search.shortlist.BEYOND``.

        Returns:
          A state with which ``step`` returns logits float32 [B, R, K, C], about -1e9 for BEYOND.

        Raises:
          UserError: The model cannot compute a part of its softmax.
        """
        raise UserError(f"{type(self).__name__} does not decode with a shortlist: leave shortlist out.")

    def step_with_attention(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, tf.Tensor, State]:
        """Does the same as ``step`` and also returns the attention to the source.

        Returns:
          The logits float32 [B, R, K, V]; the attention float32 [B, R, K, S], a distribution over the source
          positions; and the new state.

        Raises:
          UserError: The model cannot return its cross-attention.
        """
        raise UserError(
            f"{type(self).__name__} does not show its cross-attention while it decodes, which "
            "coverage_penalty needs: leave coverage_penalty out."
        )

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the attention distributions by layer name, float [B, H, T, S] each, for plots; by default, none."""
        return {}

    # === Variables ===

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables by names that depend only on the model's structure.

        Raises:
          ValueError: Two variables have the same name.
        """
        named = {}
        for variable in self.weights:  # unlike ``variables``, without the seeds of Keras's dropout
            name = _name_of(variable)
            if name in named:
                raise ValueError(f"Two variables are called {name!r}: give the layers that hold them different names.")
            named[name] = variable.value
        return named

    def rate_of(self, variable: Any) -> float:
        """Returns the factor on the learning rate for a Keras variable; 0: the variable is frozen."""
        return 1.0 if variable.trainable else 0.0

    def rates(self) -> dict[str, float]:
        """Returns the learning-rate factors that are not 1, by the names of ``named_variables``."""
        found = {_name_of(variable): self.rate_of(variable) for variable in self.weights}
        return {name: rate for name, rate in found.items() if rate != 1.0}

    def pretrained(self) -> dict[str, np.ndarray]:
        """Returns the pretrained weights that a new run starts with, by the names of ``named_variables``."""
        return {}

    def assign(self, arrays: Mapping[str, np.ndarray], strict: bool = True, origin: str | os.PathLike = "") -> None:
        """Sets variables from arrays of the same names, casting to the variables' dtypes.

        Args:
          arrays: The values, by the names of ``named_variables``.
          strict: Whether the names must agree exactly; otherwise only the common ones are set.
          origin: The run's checkpoint that the arrays come from, for messages.

        Raises:
          UserError: Names (if strict) or shapes do not agree. No variable is changed in this case.
        """
        variables = self.named_variables()
        problems = []
        if strict:
            problems += [f"{name} is missing" for name in sorted(variables.keys() - arrays.keys())]
            problems += [f"{name} is unknown to the model" for name in sorted(arrays.keys() - variables.keys())]
        common = [name for name in variables if name in arrays]
        problems += [
            f"{name} has shape {list(arrays[name].shape)}, the model's has {list(variables[name].shape)}"
            for name in common
            if tuple(arrays[name].shape) != tuple(variables[name].shape)
        ]
        if problems:
            shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
            if not origin:
                raise UserError(f"These weights do not fit the model: {shown}.")
            raise UserError(
                f"The weights in {origin} do not fit the model of its run: {shown}. They are of another run or version "
                "of t2t_ext, or the run's config.json or subword models are. Put back what belongs together, or choose "
                "another checkpoint."
            )
        for name in common:
            variables[name].assign(tf.cast(arrays[name], variables[name].dtype))

    def describe(self) -> list[VariableRow]:
        """Returns one row for each variable, in the order of the model's parts."""
        owners = compat.owners_of_variables(self)
        return [
            VariableRow(
                path=_name_of(variable),
                part=owners.get(id(variable), type(self).__name__),
                shape=tuple(variable.shape),
                dtype=variable.dtype,
                parameters=math.prod(variable.shape),
            )
            for variable in self.weights
        ]

    # === Config ===

    def get_config(self) -> dict[str, Any]:
        """Returns the settings from which ``from_config`` makes an equal model."""
        return {
            "hparams": self.hparams.to_dict(),
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "joint_vocabulary": self.joint_vocabulary,
            "source_feature_size": self.source_feature_size,
            **({"encoder_config": self.encoder_config} if self.encoder_config else {}),
            "name": self.name,
            "dtype": self.dtype_policy.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns a model made from the result of ``get_config``, with newly initialized weights."""
        config = dict(config)
        config["hparams"] = cls.hparams_class.from_dict(config["hparams"])
        with compat.layers_counted_anew():
            return cls(**config)


def _name_of(variable: Any) -> str:
    """Returns the name of a Keras variable within its model."""
    return variable.path.split("/", 1)[1]


def build_model(
    model_class: type[Seq2Seq],
    hparams: HParams,
    source_encoder: Any,
    target_encoder: Any,
    *,
    source_feature_size: int = 0,
    dtype: str | None = None,
) -> Seq2Seq:
    """Returns a built model for two text encoders that have ``vocab_size`` and ``ids_sha256``, like SubwordEncoder.

    The vocabulary is joint if both encoders assign the same ids. The other arguments are the model's.
    """
    tokenized = getattr(hparams, "encoder_preset", "") and source_encoder.kind == "keras_hub"
    with compat.layers_counted_anew():  # the names of variables must not depend on other models in the process
        model = model_class(
            hparams,
            source_vocab_size=source_encoder.vocab_size,
            target_vocab_size=target_encoder.vocab_size,
            joint_vocabulary=source_encoder.ids_sha256 == target_encoder.ids_sha256,
            source_feature_size=source_feature_size,
            encoder_config=source_encoder.subwords.encoder_config if tokenized else None,
            dtype=dtype,
        )
        model.build()
    return model
