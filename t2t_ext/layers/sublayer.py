"""The frame around every sublayer: normalization, dropout and the residual sum.

T2T describes it with two strings of steps, before and after the sublayer: ``n`` normalizes, ``d`` applies dropout,
``a`` adds the input. Pre-norm is ("n", "da"); post-norm, as printed by Vaswani et al. (2017), is ("none", "dan").
"""

import tensorflow as tf

from t2t_ext.config.hyperparameters import TransformerHParams
from t2t_ext.layers.base import Layer, LayerNormalization
from t2t_ext.layers.dropout import dropout


def final_normalization(hparams: TransformerHParams, **kwargs: object) -> LayerNormalization | None:
    """Returns the normalization after the last layer of a stack; None for post-norm stacks, which need none."""
    if "n" not in _steps(hparams.layer_preprocess_sequence):
        return None
    return LayerNormalization(hparams.norm_epsilon, **kwargs)


def _steps(sequence: str) -> str:
    return "" if sequence == "none" else sequence


class Frame(Layer):
    """Applies a sublayer's pre- and postprocessing.

    ``y = frame.postprocess(x, sublayer(frame.preprocess(x)))``
    """

    def __init__(self, hparams: TransformerHParams, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.pre, self.post = _steps(hparams.layer_preprocess_sequence), _steps(hparams.layer_postprocess_sequence)
        self.rate = hparams.layer_prepostprocess_dropout
        self.width = hparams.hidden_size
        args = {"epsilon": hparams.norm_epsilon, "dtype": self.dtype_policy}
        self.pre_norm = LayerNormalization(name="pre_norm", **args) if "n" in self.pre else None
        self.post_norm = LayerNormalization(name="post_norm", **args) if "n" in self.post else None

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of the normalizations."""
        for norm in (self.pre_norm, self.post_norm):
            if norm is not None:
                norm.build((None, self.width))

    def preprocess(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the sublayer's input, float [..., D], for the residual stream float [..., D]."""
        return x if self.pre_norm is None else self.pre_norm(x)

    def postprocess(self, x: tf.Tensor, y: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Applies dropout, residual sum and normalization to a sublayer's output y, with residual stream x.

        Both, and the result, are float [..., D].
        """
        for step in self.post:
            if step == "d":
                y = dropout(y, self.rate, training)
            elif step == "a":
                y = x + y
            elif step == "n" and self.post_norm is not None:
                y = self.post_norm(y)
        return y
