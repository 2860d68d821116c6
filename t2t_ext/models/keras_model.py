"""The Keras side of every model: calls with one argument, ``fit`` without separate labels, saving and loading.

    model = registry.model("transformer")(hparams, source_vocab_size=8000, target_vocab_size=8000)
    model.compile(optimizer="adam")
    model.fit({"inputs": sources, "targets": targets}, epochs=2)
    model.save("model.keras")

The targets are both the decoder's input and the labels: the model itself shifts them right to make its input.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from t2t_ext.errors import UserError
from t2t_ext.layers.label_smoothing import SmoothedCrossEntropy, weights_of


def require_float32_weights(policy: keras.DTypePolicy) -> None:
    """Raises a UserError if a model's weights have a precision that is too low for training.

    A bfloat16 number has 8 binary digits, so an update of less than about 1/500 of a weight leaves the weight
    unchanged. No update of Adam changes it, since Adam's 0.999 is rounded to 1. float16 has 11 digits, but small
    gradients are also rounded to 0.

    Raises:
      UserError: The variables' dtype is bfloat16 or float16.
    """
    dtype = policy.variable_dtype
    if dtype not in ("bfloat16", "float16"):
        return
    raise UserError(
        f"The weights are {dtype}, as for translating: most updates of a training would be rounded away. Take "
        f'Translator.load(RUN, for_training=True).model, or make the model or preset with dtype="mixed_{dtype}" or '
        '"float32".'
    )


class KerasModel(keras.Model):
    """A Keras model that is called with ``(inputs, targets)``, a dict with these keys, or a list of both.

    Subclasses in t2t_ext are registered with Keras by their class names, in the package ``t2t_ext``. Subclasses in
    other packages are registered under the name of their module, so that no class replaces another of the same name.

    Attributes:
      source_feature_size: F if the source consists of feature vectors; 0 if it consists of ids.
      target_sides: Number of target sequences in a training example.
    """

    source_feature_size: int = 0
    target_sides: int = 1

    def __init__(self, **kwargs: Any) -> None:
        # Keras would cast ids that are given as float to the compute dtype, in which large ids are not exact; layers
        # cast what they compute with.
        super().__init__(**{"autocast": False} | kwargs)
        # By itself, Keras would turn XLA on, which compiles a graph for each shape, and batches of text have many.
        self.supports_jit = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] == "t2t_ext":
            keras.saving.register_keras_serializable("t2t_ext")(cls)
        else:
            keras.saving.register_keras_serializable(cls.__module__, cls.__qualname__)(cls)

    def unpacked(self, inputs: Any, targets: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the source and the target of a call, with ids as int32, whatever their dtype.

        Raises:
          UserError: There is no target, or the single argument has another form.
        """
        given = inputs
        if targets is None and isinstance(given, Mapping):
            if set(given) == {"inputs", "targets"}:
                inputs, targets = given["inputs"], given["targets"]
        elif targets is None and isinstance(given, (list, tuple)) and len(given) == 2:
            inputs, targets = given
        if targets is None:
            found = f"keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
            raise UserError(
                f"{type(self).__name__} gives the logits of the targets' tokens and takes both sides' ids: "
                'model({"inputs": x, "targets": y}), model([x, y]) or model(x, y); got '
                f'{found}. fit, evaluate and predict take {{"inputs": x, "targets": y}} and no labels. To translate '
                "without targets, use t2t_ext.Translator(model, source_encoder, target_encoder)."
            )
        source, target = self._dense("source", inputs), self._dense("target", targets)
        # Before it trains on several replicas, Keras calls the model with ids as float.
        return source if self.source_feature_size else tf.cast(source, tf.int32), tf.cast(target, tf.int32)

    def _dense(self, side: str, given: Any) -> tf.Tensor:
        """Returns one side of a call as a tensor, after checking its rank.

        Raises:
          UserError: It is ragged, or has too many or too few axes.
        """
        if isinstance(given, tf.RaggedTensor):
            raise UserError(f"The {side} is a RaggedTensor, which has no padding: give its to_tensor().")
        found = tf.convert_to_tensor(given)
        if side == "target" and self.target_sides > 1:
            return found  # checked where it is read
        has_axis = side == "source" and self.source_feature_size > 0
        if found.shape.rank not in (None, 3 if has_axis else 2):
            raise UserError(
                f"{type(self).__name__} takes a {side} of the shape [sentences, positions"
                f"{', numbers' if has_axis else ''}], and this one is {found.shape.as_list()}."
            )
        return found

    # === fit, evaluate ===

    def compile(self, *args: Any, jit_compile: bool | str = False, **kwargs: Any) -> None:
        """Configures training; see ``keras.Model``. XLA is off unless ``jit_compile`` is True; ``auto`` is False."""
        self.supports_jit = jit_compile is True  # otherwise, Keras refuses it
        super().compile(*args, jit_compile=self.supports_jit, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a model that is being loaded, and creates its optimizer's variables."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force: bool = False) -> Any:
        """Returns the function that performs a training step; see ``keras.Model``.

        Raises:
          UserError: The weights have a low precision; see ``require_float32_weights``.
        """
        require_float32_weights(self.dtype_policy)
        return super().make_train_function(force)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Returns the loss of a batch; without ``y``, the batch's targets are the labels.

        If ``compile`` was given no loss, this is the label-smoothed cross-entropy per token without padding, with the
        hparams' ``label_smoothing``. What layers add (``add_loss``, regularizers) is added, as with any loss of Keras.
        ``sample_weight`` is multiplied by the model's own ``label_weights``.
        """
        y = self.unpacked(x)[1] if y is None else y
        own = self.label_weights(y)
        if own is not None:
            sample_weight = own if sample_weight is None else own * weights_of(sample_weight, own.shape.rank)
        if self.loss is None:
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            added = [tf.reduce_sum(tf.cast(each, tf.float32)) / replicas for each in self.losses]
            return sum(added, SmoothedCrossEntropy(self.hparams.label_smoothing)(y, y_pred, sample_weight))
        return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Returns the metrics' values; without ``y``, the batch's targets are the labels."""
        y = self.unpacked(x)[1] if y is None else y
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def label_weights(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Returns the weights of the labels' losses; None: all are 1."""
        return None

    # === save, load_model ===

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns the argument of ``build_from_config``, None for a model without variables.

        It needs no shapes, since ``get_config`` determines them.
        """
        return {"input_shape": None} if self.built else None

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Creates the variables of a model that is being loaded."""
        self.build()


class TrainingCall(keras.layers.Layer):
    """A model's ``training_features`` as the call of one layer: all of the call's losses are in ``losses``.

    Outside of such a call, a layer that is called twice forgets the losses of its first call.

    Attributes:
      error: What the model raised; Keras raises a copy of it with another message.
    """

    def __init__(self, model: Any) -> None:
        """Initializes the call; neither inputs nor variables are cast."""
        super().__init__(name="training_call", dtype="float32", autocast=False)
        self._model = model
        self.built = True
        self.error: Exception | None = None

    def call(self, inputs: tf.Tensor, targets: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the decoder's output at the positions that have a loss."""
        try:
            return self._model.training_features(inputs, targets, training=training)
        except Exception as error:
            self.error = error
            raise
