"""The interface of all models to training, search and export.

Training calls ``training_features``, ``training_labels`` and ``softmax_weights``; the search calls ``start`` and
``step``; ``call`` is features and logits at once and defines what is right.

A model with two target sides is trained on, and scores, two targets of a sentence at once: wherever [B, T] is written
below, its ids are [B, 2, T], side 0 left to right, side 1 right to left (reversed before its EOS), and what
is computed has the same axis. The sides' lengths are independent.

A source may be feature vectors instead of ids (``source_feature_size``): wherever ``inputs`` int32 [B, S] is written
below, it is float32 [B, S, F] then, and a vector of zeros alone is padding.

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
from t2t_ext.models.keras_model import KerasModel

# A decoding state: nested dicts and lists of tensors, opaque to the search.
State = Any

H = TypeVar("H", bound=HParams)


class Sides(NamedTuple):
    """The numbers of a model's directions and target sides, known before it is built.

    Attributes:
      directions: R, in how many directions it generates at once.
      target_sides: How many target sequences a training example has.
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
    """A model that gives the next target token's distribution for a source and a target prefix.

    Ids are int32; every sentence ends with EOS (1) and is padded with PAD (0).

    Attributes:
      hparams_class: The family of hparams that the model needs.
      directions: R, the directions in which it generates at once; of a class, the fewest.
      target_sides: How many target sequences a training example has; of a class, the fewest.
      takes_source_features: Whether the source may be feature vectors.
      takes_encoder_preset: Whether a pretrained encoder may stand in its encoder's place.
      longest_source: The most source positions that the encoder reads, EOS included; 0: any number.
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
          hparams: Of the model's ``hparams_class``.
          source_vocab_size: Number of source ids.
          target_vocab_size: Number of target ids, V.
          joint_vocabulary: Whether source and target ids mean the same subwords, so that their
            embeddings may be shared. None: exactly when the sizes are equal.
          source_feature_size: F, where the source is feature vectors, whose ids then do not matter; 0: it is ids.
          encoder_config: Of ``encoder_preset``, what its encoder is made of; see ``PresetTokenizer``.
          name: Root of the variables' paths; the names that checkpoints use leave it out.
          dtype: A Keras dtype policy; None: ``hparams.precision``.

        Raises:
          UserError: If the hparams are another family's, the vocabulary sizes contradict ``joint_vocabulary``, or the
            model cannot read feature vectors.
        """
        super().__init__(name=name or "model", dtype=dtype or hparams.precision)
        needed = {name: getattr(self, name) for name in ("slot", "filled_with", "advice") if hasattr(self, name)}
        needed |= {"title": type(self).__name__, "hparams_class": self.hparams_class.__name__}
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
        """Returns in how many directions a model of these hparams generates, before there is one."""
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
        """Returns the decoder's output where a loss is taken, float of the shape of ``training_labels`` and [D].

        It is that of ``features`` by default, as are the arguments.
        """
        return self.features(inputs, targets, training=training)

    def training_labels(self, targets: tf.Tensor) -> tf.Tensor:
        """Returns what is to be predicted at the positions of ``training_features``: the targets, by default.

        It is int32 [B, T'] for int32 [B, T], PAD where no loss is taken.
        """
        return targets

    def label_weights(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Returns what the losses of labels int32 [B, T'] are multiplied by, float32 of their shape; None: 1."""
        return None

    @abc.abstractmethod
    def softmax_weights(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns kernel [V, D] and bias [V] or None (variable dtype): logits = features kernel^T + bias."""

    def call(self, inputs: Any, targets: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """Returns the logits float32 [B, T, V] of every target position.

        Arguments are those of ``features``; source and targets may also be one argument, a dict with the keys
        ``inputs`` and ``targets``, or a list.
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
        """Feeds one token of every hypothesis and returns the logits of the next.

        Keys and values of all steps of all hypotheses are kept side by side, in columns
        ``step * K + rank``; ``visible`` says which columns are a hypothesis's own past.

        Args:
          ids: int64 (or int32) [B, R, K], the tokens chosen last; ignored at the first step.
          visible: bool [B, R, K, (t + 1) * K] at step t = 0, 1, ..., including the step's own column.
          partner_visible: The same over the other direction's columns, or None.
          parents: int64 (or int32) [B, R, K], the rank at step t - 1 of each hypothesis's past.
          state: From ``start`` or the step before: scalars, and tensors with the sentences on axis 0, of which the
            search leaves out those that are done.

        Returns:
          logits float32 [B, R, K, V] and the new state.
        """

    def shortlisted(self, state: State, ids: tf.Tensor) -> State:
        """Returns the state before the first step with which ``step`` gives logits of candidates alone.

        Args:
          state: From ``start``.
          ids: int32 [B, C], the candidates of each sentence, ascending; ``search.shortlist.BEYOND`` behind the last.

        Returns:
          A state whose steps' logits are float32 [B, R, K, C], about -1e9 for BEYOND.

        Raises:
          UserError: The model does not compute parts of its softmax.
        """
        raise UserError(f"{type(self).__name__} does not decode with a shortlist: leave shortlist out.")

    def step_with_attention(
        self, ids: tf.Tensor, visible: tf.Tensor, partner_visible: tf.Tensor | None, parents: tf.Tensor, state: State
    ) -> tuple[tf.Tensor, tf.Tensor, State]:
        """As ``step``, and says how the source was attended to for it.

        Returns:
          logits float32 [B, R, K, V], attention float32 [B, R, K, S], a distribution over the source's positions, and
          the new state.

        Raises:
          UserError: The model has no such attention.
        """
        raise UserError(
            f"{type(self).__name__} does not show its cross-attention while it decodes, which "
            "coverage_penalty needs: leave coverage_penalty out."
        )

    def attention_weights(self, inputs: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the model's attention distributions by layer name, float [B, H, T, S] each, for pictures."""
        return {}

    # === Variables ===

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns the variables by names that depend on the model's structure alone."""
        named = {}
        for variable in self.variables:
            name = variable.path.split("/", 1)[1]
            if name in named:
                raise ValueError(f"Two variables are called {name!r}: give the layers that hold them different names.")
            named[name] = variable.value
        return named

    def rate_of(self, variable: Any) -> float:
        """Returns the multiple of the learning rate that a Keras variable learns with; 0: it is frozen."""
        return 1.0

    def rates(self) -> dict[str, float]:
        """Returns those multiples that are not 1, by the names of ``named_variables``."""
        found = {variable.path.split("/", 1)[1]: self.rate_of(variable) for variable in self.variables}
        return {name: rate for name, rate in found.items() if rate != 1.0}

    def pretrained(self) -> dict[str, np.ndarray]:
        """Returns the weights that a fresh run begins with, of a preset, by the names of ``named_variables``."""
        return {}

    def assign(self, arrays: Mapping[str, np.ndarray], strict: bool = True, origin: str | os.PathLike = "") -> None:
        """Sets variables from arrays of the same names, casting to the variables' dtypes.

        Args:
          arrays: By the names of ``named_variables``.
          strict: Whether names must agree exactly; otherwise the common ones are set.
          origin: The checkpoint of a run that they come from, for messages.

        Raises:
          UserError: If names (strict) or shapes do not agree; nothing is set then.
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
        """Returns a row for every variable, in the order of the model's parts."""
        owners = compat.owners_of_variables(self)
        return [
            VariableRow(
                path=variable.path.split("/", 1)[1],
                part=owners.get(id(variable), type(self).__name__),
                shape=tuple(variable.shape),
                dtype=variable.dtype,
                parameters=math.prod(variable.shape),
            )
            for variable in self.variables
        ]

    # === Config ===

    def get_config(self) -> dict[str, Any]:
        """Returns what ``from_config`` needs to make an equal model."""
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
        """Returns a model made from ``get_config``'s result, with fresh weights."""
        config = dict(config)
        config["hparams"] = cls.hparams_class.from_dict(config["hparams"])
        return cls(**config)


def build_model(
    model_class: type[Seq2Seq],
    hparams: HParams,
    source_encoder: Any,
    target_encoder: Any,
    *,
    source_feature_size: int = 0,
    dtype: str | None = None,
) -> Seq2Seq:
    """Returns a built model for two text encoders (with ``vocab_size`` and ``ids_sha256``, as SubwordEncoder).

    The vocabulary is joint where their ids mean the same. The other arguments are those of the model.
    """
    tokenized = getattr(hparams, "encoder_preset", "") and source_encoder.kind == "keras_hub"
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
