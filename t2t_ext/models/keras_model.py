"""What a Keras user expects of a model of source and target ids: one argument, ``fit`` without labels, saved files.

    model = registry.model("transformer")(hparams, source_vocab_size=8000, target_vocab_size=8000)
    model.compile(optimizer="adam")
    model.fit({"inputs": sources, "targets": targets}, epochs=2)
    model.save("model.keras")

The targets are read and predicted: the model shifts them right itself, so that they are the labels, too.
"""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from t2t_ext.errors import UserError
from t2t_ext.layers.label_smoothing import SmoothedCrossEntropy, weights_of


def require_float32_weights(policy: keras.DTypePolicy) -> None:
    """Raises a UserError where a model's weights have a low precision, in which training is lost.

    A bfloat16 number has 8 binary digits: an update of less than about 1/500 of a weight leaves it as it was, and so do
    all of Adam's, whose 0.999 is 1 there. Of float16, with 11 digits, small gradients are 0 besides.
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
    """A Keras model that is called with ``(inputs, targets)``, a dict of these names, or a list of both.

    Subclasses are registered with Keras by their class names, in the package ``t2t_ext``; those of other packages under
    the name of their module, so that none takes the place of another of its name.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A graph compiled by XLA is one for each shape, and batches of text have many; jit_compile=True asks for it.
        self.supports_jit = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] == "t2t_ext":
            keras.saving.register_keras_serializable("t2t_ext")(cls)
        else:
            keras.saving.register_keras_serializable(cls.__module__, cls.__qualname__)(cls)

    def unpacked(self, inputs: Any, targets: Any = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns source and target of a call, ids as int32.

        Raises:
          UserError: The target is missing, or there is something else.
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
                f"{found}. To translate without targets, use t2t_ext.Translator(model, source_encoder, target_encoder)."
            )
        source, target = tf.convert_to_tensor(inputs), tf.convert_to_tensor(targets)
        return source if source.dtype.is_floating else tf.cast(source, tf.int32), tf.cast(target, tf.int32)

    # === fit, evaluate ===

    def make_train_function(self, force: bool = False) -> Any:
        """Returns what makes a training step; see ``keras.Model``.

        Raises:
          UserError: As of ``require_float32_weights``.
        """
        require_float32_weights(self.dtype_policy)
        return super().make_train_function(force)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Returns the loss of a batch; the labels are its targets where there are no others.

        Where ``compile`` was given no loss, it is label-smoothed cross-entropy per token that is not padding, with the
        hparams' ``label_smoothing``. ``sample_weight`` multiplies the model's own ``label_weights``.
        """
        y = self.unpacked(x)[1] if y is None else y
        own = self.label_weights(y)
        if own is not None:
            sample_weight = own if sample_weight is None else own * weights_of(sample_weight, own.shape.rank)
        if self.loss is None:
            return SmoothedCrossEntropy(self.hparams.label_smoothing)(y, y_pred, sample_weight)
        return super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Returns the metrics' values; the labels are the batch's targets where there are no others."""
        y = self.unpacked(x)[1] if y is None else y
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def label_weights(self, labels: tf.Tensor) -> tf.Tensor | None:
        """Returns what the losses of labels are multiplied by; None: 1."""
        return None

    # === save, load_model ===

    def get_build_config(self) -> dict[str, Any]:
        """Returns what ``build_from_config`` takes: no shapes, the variables' follow from ``get_config``."""
        return {"input_shape": None}

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Creates the variables of a model that is being loaded."""
        self.build()
