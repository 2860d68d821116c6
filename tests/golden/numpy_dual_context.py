"""The dual contextual module in NumPy (float64), written from Ampomah et al. (2021) and not from `t2t_ext.layers`.

Section 4.1, equation 6: r_hat_t = g([r_{t-a}; ...; r_{t+b}] W^r + b^r), where g is a gated linear unit and the window
has f positions; l_c = LayerNorm(r_hat + r). The encoder's window is centered; if f is even, it has one more position on
the right ("right") or on the left. The decoder's window ends at t. Positions outside the sentence count as zero.
Section 4.2, equation 7: h_l = FI(r, l_c), h_g = FI(r, r), multi-head attention without an output projection. Equation
8: z_hat = [h_l; h_g] W_z + b_z. Equation 9, z_f = LayerNorm(z_hat + r), is the frame of a sublayer of a post-norm
Transformer. The rest is the Transformer of `numpy_transformer`.

For readability the code processes one sentence, one position, one head and one tap at a time.
"""

import dataclasses

import numpy as np
from numpy_transformer import Norm, NumpyTransformer, layer_norm, sigmoid, softmax, weights_of


@dataclasses.dataclass
class Interaction:
    """The projections of an FI unit: W^q, W^k [D, H * d], W^v [D, H * d_v]; a bias that does not exist is None."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    q_bias: np.ndarray | None = None
    k_bias: np.ndarray | None = None
    v_bias: np.ndarray | None = None


@dataclasses.dataclass
class DualContext:
    """A module's weights; `before` is how many of the `taps` positions of a window are before t."""

    convolution: np.ndarray  # W^r [f * D, 2 * D]
    convolution_bias: np.ndarray
    norm: Norm
    local: Interaction
    globally: Interaction
    aggregation: np.ndarray  # W_z [2 * H * d_v, D]
    aggregation_bias: np.ndarray
    taps: int
    before: int


def positions_before(taps, *, decoder, even="right"):
    """Returns how many positions of a window are before t."""
    if decoder:
        return taps - 1
    if taps % 2:
        return (taps - 1) // 2
    return taps // 2 - 1 if even == "right" else taps // 2


def part_of(variables, hparams, *, decoder):
    """Returns a module's weights from its variables by name, which the layer has partly fused.

    Raises:
      ValueError: The module has variables that are not in the paper.
    """
    arrays = {name: np.asarray(value, np.float64) for name, value in variables.items()}
    keys = hparams.attention_key_channels or hparams.hidden_size
    values = hparams.attention_value_channels or hparams.hidden_size

    def cut(name, sizes):
        edges = np.cumsum(sizes)[:-1]
        bias = arrays.pop(f"{name}/bias", None)
        biases = [None] * len(sizes) if bias is None else np.split(bias, edges)
        return list(zip(np.split(arrays.pop(f"{name}/kernel"), edges, axis=1), biases, strict=True))

    (lq, lq_bias), (gq, gq_bias), (gk, gk_bias), (gv, gv_bias) = cut("q_qkv", [keys, keys, keys, values])
    (lk, lk_bias), (lv, lv_bias) = cut("local_kv", [keys, values])
    part = DualContext(
        convolution=arrays.pop("local/convolution/kernel"),
        convolution_bias=arrays.pop("local/convolution/bias"),
        norm=Norm(arrays.pop("local/norm/scale"), arrays.pop("local/norm/bias")),
        local=Interaction(lq, lk, lv, lq_bias, lk_bias, lv_bias),
        globally=Interaction(gq, gk, gv, gq_bias, gk_bias, gv_bias),
        aggregation=arrays.pop("aggregation/kernel"),
        aggregation_bias=arrays.pop("aggregation/bias"),
        taps=hparams.dc_kernel_size,
        before=positions_before(hparams.dc_kernel_size, decoder=decoder, even=hparams.dc_even_kernel),
    )
    if arrays:
        raise ValueError(f"The module has weights that are not in the paper: {sorted(arrays)}.")
    return part


def local_context(r, part, exists, epsilon):
    """Returns l_c [T, D] of r [T, D] (equation 6); `exists` tells which positions of the sequence are not padding."""
    length, width = r.shape
    rows = np.zeros_like(r)
    for t in range(length):
        window = []
        for s in range(t - part.before, t - part.before + part.taps):
            window.append(r[s] if 0 <= s < length and exists(s) else np.zeros(width))
        y = np.concatenate(window) @ part.convolution + part.convolution_bias
        rows[t] = y[:width] * sigmoid(y[width:])
    return layer_norm(rows + r, part.norm, epsilon)


def feature_interaction(a, b, part, heads, scale, allowed):
    """Returns FI(A, B) [T, H * d_v] (equation 7) and its weights [H, T, S]."""

    def projected(x, kernel, bias):
        return (x @ kernel + (0.0 if bias is None else bias)).reshape(len(x), heads, -1)

    q, k = projected(a, part.q, part.q_bias), projected(b, part.k, part.k_bias)
    v = projected(b, part.v, part.v_bias)
    found, weights = np.zeros([len(a), heads, v.shape[2]]), np.zeros([heads, len(a), len(b)])
    for head in range(heads):
        for t in range(len(a)):
            seen = [s for s in range(len(b)) if allowed(t, s)]
            weights[head, t, seen] = softmax(np.array([q[t, head] @ k[s, head] * scale for s in seen]))
            found[t, head] = weights[head, t] @ v[:, head]
    return found.reshape(len(a), -1), weights


def module(r, part, *, heads, scale, epsilon, allowed, exists=lambda s: True):
    """Returns z_hat [T, D] of r [T, D] (equation 8), and both attentions' weights [2 H, T, T], the local ones first."""
    l_c = local_context(r, part, exists, epsilon)
    h_l, local_weights = feature_interaction(r, l_c, part.local, heads, scale, allowed)
    h_g, global_weights = feature_interaction(r, r, part.globally, heads, scale, allowed)
    z = np.concatenate([h_l, h_g], axis=1) @ part.aggregation + part.aggregation_bias
    return z, np.concatenate([local_weights, global_weights])


class NumpyDualContext(NumpyTransformer):
    """An encoder-decoder with dual contextual modules in the layers for which the arrays have them.

    Args:
      arrays: a model's arrays by name.
      hparams: anything with the attributes of `TransformerHParams`.
    """

    def __init__(self, arrays, hparams):
        modules, rest = {}, {}
        for name, value in arrays.items():
            if "/dual_context/" in name:
                path, _, variable = name.partition("/dual_context/")
                modules.setdefault(path, {})[variable] = value
            else:
                rest[name.replace("/dual_context_frame/", "/self_attention_frame/")] = value
        width = hparams.hidden_size
        keys = hparams.attention_key_channels or width
        values = hparams.attention_value_channels or width
        for path in modules:  # `weights_of` expects self-attention here; these are not used
            rest[f"{path}/self_attention/qkv/kernel"] = np.zeros([width, 2 * keys + values])
            rest[f"{path}/self_attention/output/kernel"] = np.zeros([values, width])
        super().__init__(weights_of(rest, hparams), hparams)
        self.layers = sorted(modules)
        for path, variables in modules.items():
            stack, _, layer = path.partition("/layer_")
            part = part_of(variables, hparams, decoder=stack == "decoder")
            getattr(self.w, stack)[int(layer)][0].part = part

    def _attend(self, queries, memory, part, allowed):
        if not isinstance(part, DualContext):
            return super()._attend(queries, memory, part, allowed)
        last = len(queries) - 1
        return module(
            queries,
            part,
            heads=self.hp.num_heads,
            scale=self.scale,
            epsilon=self.hp.norm_epsilon,
            allowed=allowed,
            exists=lambda s: allowed(last, s),
        )
