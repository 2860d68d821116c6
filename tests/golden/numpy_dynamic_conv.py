"""Lightweight and dynamic convolutions in NumPy (float64), written from Wu et al. (2019) and not from `t2t_ext.layers`.

Section 3: LightConv_{i,c} = sum over j of softmax(W)_{h,j} X_{i + j - left, c}, where channel c belongs to head
h = ceil(c H / d). In the encoder left = ceil((k + 1) / 2) - 1: both sides have equally many taps; if k is even, the
left side has one more, or the right side with `conv_even_kernel` "right". In the decoder left = k - 1 (only the past).
Section 4: in DynamicConv, W_{h,j} at position i is the sum over c of W^Q_{h,j,c} X_{i,c}. Positions outside the
sentence count as zero. Section 3.1: X is a gated linear unit of a projection of the module's input, and a projection
follows. The rest is the Transformer of `numpy_transformer`.

For readability the code processes one sentence, one position, one head and one tap at a time.
"""

import dataclasses
import math

import numpy as np
from numpy_transformer import NumpyTransformer, sigmoid, softmax, weights_of


@dataclasses.dataclass
class Convolution:
    """A module's weights; `kernels` is [D, H * k] (dynamic) or [H, k]; the first tap is `left` positions back."""

    inner: np.ndarray  # [D, 2 D], or [D, D] without a gate
    kernels: np.ndarray
    outer: np.ndarray  # [D, D]
    inner_bias: np.ndarray | None
    outer_bias: np.ndarray | None
    taps: int
    left: int
    dynamic: bool


def convolve(x, weights, left, exists=lambda t, s: True):
    """Returns y[t, c] = sum over j of weights[t, h(c), j] x[t + j - left, c] over the positions that exist.

    Args:
      x: [T, D].
      weights: [T, H, k].
      left: how many positions the first tap is back.
      exists: function (position, position of the tap) -> bool, called only for positions 0 to T - 1.

    Returns:
      [T, D].
    """
    length, width = x.shape
    heads, taps = weights.shape[1:]
    y = np.zeros_like(x)
    for t in range(length):
        for c in range(width):
            head = c * heads // width
            for j in range(taps):
                s = t + j - left
                if 0 <= s < length and exists(t, s):
                    y[t, c] += weights[t, head, j] * x[s, c]
    return y


def module(x, part, heads, normalized, exists):
    """Applies the whole LightConv or DynamicConv module to the positions [T, D] of a sentence."""
    y = x @ part.inner + (0.0 if part.inner_bias is None else part.inner_bias)
    width = x.shape[1]
    if y.shape[1] == 2 * width:
        y = y[:, :width] * sigmoid(y[:, width:])
    weights = np.zeros([len(y), heads, part.taps])
    for t in range(len(y)):
        own = (y[t] @ part.kernels).reshape(heads, part.taps) if part.dynamic else part.kernels
        for head in range(heads):
            weights[t, head] = softmax(own[head]) if normalized else own[head]
    y = convolve(y, weights, part.left, exists) @ part.outer
    return y if part.outer_bias is None else y + part.outer_bias


class NumpyDynamicConv(NumpyTransformer):
    """An encoder-decoder with convolutions instead of self-attention in one or both stacks.

    Args:
      arrays: a model's arrays by name.
      hparams: anything with the attributes of `DynamicConvHParams`.
      encoder_kernels: k of each encoder layer; empty if the encoder has self-attention.
      decoder_kernels: k of each decoder layer; empty if the decoder has self-attention.
    """

    def __init__(self, arrays, hparams, encoder_kernels, decoder_kernels):
        arrays = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
        kernels = {"encoder": encoder_kernels, "decoder": decoder_kernels}
        modules, rest = {}, {}
        for name, value in arrays.items():
            if "/convolution/" in name:
                path, _, variable = name.partition("/convolution/")
                modules.setdefault(path, {})[variable] = value
            else:
                rest[name.replace("/convolution_frame/", "/self_attention_frame/")] = value
        width = hparams.hidden_size
        for path in modules:  # `weights_of` expects self-attention here; these are not used
            rest[f"{path}/self_attention/qkv/kernel"] = np.zeros([width, 3 * width])
            rest[f"{path}/self_attention/output/kernel"] = np.zeros([width, width])
        super().__init__(weights_of(rest, hparams), hparams)
        self.heads = hparams.conv_heads or hparams.num_heads
        for path, variables in modules.items():
            stack, _, layer = path.partition("/layer_")
            taps = kernels[stack][int(layer)]
            dynamic = hparams.conv_type == "dynamic"
            before = (taps - 1) // 2 if hparams.conv_even_kernel == "right" else math.ceil((taps + 1) / 2) - 1
            getattr(self.w, stack)[int(layer)][0].part = Convolution(
                inner=variables.pop("input/kernel"),
                kernels=variables.pop("taps/kernel" if dynamic else "taps"),
                outer=variables.pop("output/kernel"),
                inner_bias=variables.pop("input/bias", None),
                outer_bias=variables.pop("output/bias", None),
                taps=taps,
                left=taps - 1 if stack == "decoder" else before,
                dynamic=dynamic,
            )
            if variables:
                raise ValueError(f"{path} has weights that are not in the paper: {sorted(variables)}.")

    def _attend(self, queries, memory, part, allowed):
        if not isinstance(part, Convolution):
            return super()._attend(queries, memory, part, allowed)
        return module(queries, part, self.heads, self.hp.weight_softmax, allowed), None
