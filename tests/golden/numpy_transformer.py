"""An independent Transformer in NumPy (float64), written from the papers and not from `t2t_ext.layers`.

It implements the equations of Vaswani et al. (2017), "Attention is all you need", with the
choices of tensor2tensor 1.15: no biases in the attention projections unless requested,
sinusoids as ``concat(sin, cos)`` whose increments run over ``n / 2 - 1``, embeddings
multiplied by ``sqrt(d)``, rows of PAD set to zero, decoder input shifted right by a zero
vector, layer norm with epsilon 1e-6 (pre-norm ``n``/``da`` with a final norm on each
stack, post-norm ``none``/``dan`` without one). Gated feed-forward layers follow Shazeer
(2020), "GLU variants improve Transformer".

For readability the code processes one sentence, one head and, in the attention, one
query position at a time. Only `weights_of` knows how the model names and fuses its
variables.
"""

import dataclasses
import math

import numpy as np

PAD = 0


@dataclasses.dataclass
class Norm:
    """Scale and bias of a layer norm, both [D]."""

    scale: np.ndarray
    bias: np.ndarray


@dataclasses.dataclass
class Attention:
    """Projections [D, H * Dh] (q, k), [D, H * Dv] (v) and [H * Dv, D] (o); a bias that does not exist is None."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    q_bias: np.ndarray | None = None
    k_bias: np.ndarray | None = None
    v_bias: np.ndarray | None = None
    o_bias: np.ndarray | None = None


@dataclasses.dataclass
class FeedForward:
    """Kernels inner [D, F] (bias [F]) and outer [F, D] (bias [D]); a gated layer has a gate shaped like inner."""

    inner: np.ndarray
    inner_bias: np.ndarray
    outer: np.ndarray
    outer_bias: np.ndarray
    gate: np.ndarray | None = None
    gate_bias: np.ndarray | None = None


@dataclasses.dataclass
class Sublayer:
    """An attention or feed-forward part with its norm (before the part with pre-norm, after it with post-norm)."""

    norm: Norm
    part: Attention | FeedForward


@dataclasses.dataclass
class Weights:
    """All trainable weights of the Transformer."""

    source_embedding: np.ndarray  # [V_source, D]
    target_embedding: np.ndarray  # [V_target, D]
    softmax: np.ndarray  # [V_target, D]
    encoder: list[list[Sublayer]]  # each layer: self-attention, feed-forward
    decoder: list[list[Sublayer]]  # each layer: self-attention, cross-attention, feed-forward
    encoder_norm: Norm | None = None
    decoder_norm: Norm | None = None
    target_space: np.ndarray | None = None  # [D], the row of the chosen target space


def weights_of(arrays, hparams):
    """Returns a model's `Weights` in float64, taken from its arrays by name (`named_variables`)."""
    arrays = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    unused = set(arrays)

    def take(name):
        unused.discard(name)
        return arrays[name]

    def norm(path):
        return Norm(take(f"{path}/scale"), take(f"{path}/bias"))

    def cut(path, sizes):
        """Splits a fused projection into its parts, each (kernel, bias or None)."""
        edges = np.cumsum(sizes)[:-1]
        kernels = np.split(take(f"{path}/kernel"), edges, axis=1)
        biases = np.split(take(f"{path}/bias"), edges) if f"{path}/bias" in arrays else [None] * len(sizes)
        return list(zip(kernels, biases, strict=True))

    keys = hparams.attention_key_channels or hparams.hidden_size
    values = hparams.attention_value_channels or hparams.hidden_size
    which_norm = "pre_norm" if hparams.layer_preprocess_sequence == "n" else "post_norm"

    def attention_of(path):
        if f"{path}/qkv/kernel" in arrays:
            (q, qb), (k, kb), (v, vb) = cut(f"{path}/qkv", [keys, keys, values])
        else:
            ((q, qb),) = cut(f"{path}/query", [keys])
            (k, kb), (v, vb) = cut(f"{path}/kv", [keys, values])
        ((o, ob),) = cut(f"{path}/output", [hparams.hidden_size])
        return Sublayer(norm(f"{path}_frame/{which_norm}"), Attention(q, k, v, o, qb, kb, vb, ob))

    def feed_forward_of(path):
        gated = hparams.ffn_activation in ("glu", "geglu", "swiglu")
        inner = cut(f"{path}/inner", [hparams.filter_size] * (2 if gated else 1))
        ((outer, outer_bias),) = cut(f"{path}/outer", [hparams.hidden_size])
        gate, gate_bias = inner[0] if gated else (None, None)
        part = FeedForward(*inner[-1], outer, outer_bias, gate, gate_bias)
        return Sublayer(norm(f"{path}_frame/{which_norm}"), part)

    def stack(side, count, sublayers):
        make = {"feed_forward": feed_forward_of}
        return [[make.get(sub, attention_of)(f"{side}/layer_{i}/{sub}") for sub in sublayers] for i in range(count)]

    def table(*names):
        return take(next(f"{n}/embeddings" for n in names if f"{n}/embeddings" in arrays))

    result = Weights(
        source_embedding=table("source_embedding", "embedding"),
        target_embedding=table("target_embedding", "embedding"),
        softmax=table("softmax", "target_embedding", "embedding"),
        encoder=stack("encoder", hparams.encoder_layers, ["self_attention", "feed_forward"]),
        decoder=stack("decoder", hparams.decoder_layers, ["self_attention", "source_attention", "feed_forward"]),
        encoder_norm=norm("encoder/final_norm") if which_norm == "pre_norm" else None,
        decoder_norm=norm("decoder/final_norm") if which_norm == "pre_norm" else None,
    )
    if hparams.use_target_space_embedding:
        result.target_space = take("target_space/embeddings")[hparams.target_space_id]
    if unused:
        raise ValueError(f"The model has weights that the NumPy Transformer knows nothing of: {sorted(unused)}.")
    return result


def layer_norm(x, norm, epsilon):
    """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis (Ba et al. 2016)."""
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    return centered / np.sqrt(variance + epsilon) * norm.scale + norm.bias


def softmax(x):
    """Returns exp(x) / sum(exp(x)) of a vector."""
    e = np.exp(x - x.max())
    return e / e.sum()


def sinusoids(length, depth, order):
    """Returns the position encodings [length, depth].

    The order "concat" is that of tensor2tensor: all sines, then all cosines; the wavelength grows from 2 pi to
    10000 * 2 pi in n / 2 - 1 equal steps of its logarithm. "interleaved" follows section 3.5 of the paper:
    PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d)).
    """
    waves = depth // 2
    table = np.zeros([length, depth])
    for position in range(length):
        for i in range(waves):
            if order == "concat":
                angle = position * math.exp(-i * math.log(10000.0) / max(waves - 1, 1))
                table[position, i], table[position, waves + i] = math.sin(angle), math.cos(angle)
            else:
                angle = position / 10000.0 ** (2 * i / depth)
                table[position, 2 * i], table[position, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


def sigmoid(x):
    """Returns 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def gelu(x):
    """Returns x * Phi(x) in the approximation of Hendrycks and Gimpel (2016) that tensor2tensor uses."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def feed_forward(x, part, activation):
    """Applies a feed-forward layer: Vaswani 2017 eq. 2, or Shazeer 2020 eqs. 4-6 if the activation is gated."""
    inner = x @ part.inner + part.inner_bias
    if activation in ("glu", "geglu", "swiglu"):
        act = {"glu": sigmoid, "geglu": gelu, "swiglu": lambda a: a * sigmoid(a)}[activation]
        hidden = act(x @ part.gate + part.gate_bias) * inner
    else:
        act = {"relu": lambda a: np.maximum(a, 0.0), "gelu": gelu, "swish": lambda a: a * sigmoid(a)}[activation]
        hidden = act(inner)
    return hidden @ part.outer + part.outer_bias


def attention(queries, memory, part, *, num_heads, scale, allowed):
    """Applies multi-head attention (Vaswani 2017 eq. 1), position by position.

    Args:
      queries: [T, D].
      memory: [S, D].
      part: the projections, an `Attention`.
      num_heads: H.
      scale: the factor of the products of queries and keys.
      allowed: function (query position, memory position) -> bool.

    Returns:
      The output [T, D] and the attention weights [H, T, S].
    """

    def project(x, kernel, bias):
        y = x @ kernel
        return y if bias is None else y + bias

    q = project(queries, part.q, part.q_bias).reshape(len(queries), num_heads, -1)
    k = project(memory, part.k, part.k_bias).reshape(len(memory), num_heads, -1)
    v = project(memory, part.v, part.v_bias).reshape(len(memory), num_heads, -1)
    context = np.zeros([len(queries), num_heads, v.shape[-1]])
    weights = np.zeros([num_heads, len(queries), len(memory)])
    for head in range(num_heads):
        for t in range(len(queries)):
            seen = [s for s in range(len(memory)) if allowed(t, s)]
            p = softmax(np.array([q[t, head] @ k[s, head] * scale for s in seen]))
            weights[head, t, seen] = p
            context[t, head] = sum(p_s * v[s, head] for p_s, s in zip(p, seen, strict=True))
    return project(context.reshape(len(queries), -1), part.o, part.o_bias), weights


class NumpyTransformer:
    """An encoder-decoder Transformer with given weights and hyperparameters.

    Args:
      weights: `Weights` (float64).
      hparams: anything with the attributes of `TransformerHParams`.
    """

    def __init__(self, weights, hparams):
        self.w = weights
        self.hp = hparams
        self.pre_norm = hparams.layer_preprocess_sequence == "n"
        depth = (hparams.attention_key_channels or hparams.hidden_size) // hparams.num_heads
        self.scale = depth**-0.5 if hparams.attention_scale == "head" else hparams.hidden_size**-0.5

    def _around(self, sublayer, x, function):
        """Returns x + f(norm(x)) (pre-norm) or norm(x + f(x)) (post-norm), without dropout as in inference."""
        if self.pre_norm:
            return x + function(layer_norm(x, sublayer.norm, self.hp.norm_epsilon))
        return layer_norm(x + function(x), sublayer.norm, self.hp.norm_epsilon)

    def _embed(self, ids, table):
        rows = np.stack([table[i] if i != PAD else np.zeros(table.shape[1]) for i in ids])
        return rows * math.sqrt(self.hp.hidden_size) if self.hp.multiply_embedding_mode == "sqrt_depth" else rows

    def _positions(self, x):
        if self.hp.pos == "none":
            return x
        return x + sinusoids(len(x), x.shape[-1], self.hp.pos_encoding)

    def _attend(self, queries, memory, part, allowed):
        return attention(queries, memory, part, num_heads=self.hp.num_heads, scale=self.scale, allowed=allowed)

    def encode(self, source):
        """Returns the encoder states [S, D] of a sentence's ids."""
        x = self._embed(source, self.w.source_embedding)
        if self.w.target_space is not None:
            x = x + self.w.target_space
        x = self._positions(x)

        def real(_, s):
            return source[s] != PAD

        for self_attention, ffn in self.w.encoder:
            x = self._around(self_attention, x, lambda y, p=self_attention.part: self._attend(y, y, p, real)[0])
            x = self._around(ffn, x, lambda y, p=ffn.part: feed_forward(y, p, self.hp.ffn_activation))
        return layer_norm(x, self.w.encoder_norm, self.hp.norm_epsilon) if self.w.encoder_norm else x

    def decode(self, states, source, target):
        """Returns a target's logits [T, V] given the encoder states, and each layer's cross-attention [H, T, S]."""
        embedded = self._embed(target, self.w.target_embedding)
        x = np.concatenate([np.zeros_like(embedded[:1]), embedded[:-1]])
        x = self._positions(x)
        maps = []

        def past(t, s):
            return s <= t

        def real(_, s):
            return source[s] != PAD

        for self_attention, cross, ffn in self.w.decoder:
            x = self._around(self_attention, x, lambda y, p=self_attention.part: self._attend(y, y, p, past)[0])

            def look(y, p=cross.part):
                out, weights = self._attend(y, states, p, real)
                maps.append(weights)
                return out

            x = self._around(cross, x, look)
            x = self._around(ffn, x, lambda y, p=ffn.part: feed_forward(y, p, self.hp.ffn_activation))
        if self.w.decoder_norm:
            x = layer_norm(x, self.w.decoder_norm, self.hp.norm_epsilon)
        return x @ self.w.softmax.T, maps

    def __call__(self, inputs, targets):
        """Returns logits [B, T, V] and cross-attention [layers][B, H, T, S] of a batch of ids padded with PAD."""
        results = [self.decode(self.encode(s), s, t) for s, t in zip(inputs, targets, strict=True)]
        maps = [np.stack(layer) for layer in zip(*(m for _, m in results), strict=True)]
        return np.stack([logits for logits, _ in results]), maps
