"""Layer-wise coordination in NumPy (float64), written from He et al. (NeurIPS 2018) and not from `t2t_ext`.

Section 3: source and target are concatenated and go through N layers. In layer i, a source token attends to all source
tokens of layer i - 1. A target token attends to all source tokens and to the target tokens up to itself of layer i - 1,
by mixed attention (equation 3) with the mask

    M(i, j) = 0 if j < n or j <= i + n, else -infinity          (i: target position, j: position in [source; target])

Target positions start again from 0, and each side has a learned vector that is added to its embeddings. Source
embedding, target embedding and softmax share one matrix.

Where the paper leaves something open, `docs/decisions/0016` applies: scaling by a head's width, the norms of
tensor2tensor, and a zero vector or a learned vector as the first target input. For the ablations: without sharing,
target layer i reads the output of source layer i (section 3) or, with `lwc_source` "input", its input (section 1).
Without mixed attention, self-attention is followed by cross-attention, with one norm and one set of projections. With
`lwc_source` "last", which is not in the paper, every target layer reads the last source layer's output, also with
shared weights.

Layers may have dual contextual modules (Ampomah et al. 2021, equations 6 to 8) as in `docs/decisions/0026`. Every
attention of a layer then becomes two, one to local contexts and one to the states themselves, and W_z joins their
outputs. A side's local context comes only from that side: a centered window in the source, the past in the target.

For readability the code processes one sentence, one head and one query position at a time, and really concatenates
the sequences.

`NumpyContextGate` is a Transformer with the reconstructed context gate: z = sigmoid([a; c] W + b) and
x + (1 - z) a + z c, where a is the output of self-attention and c that of cross-attention.
"""

import dataclasses

import numpy as np
from numpy_transformer import (
    PAD,
    Attention,
    FeedForward,
    Norm,
    NumpyTransformer,
    feed_forward,
    layer_norm,
    sigmoid,
    sinusoids,
    softmax,
)


@dataclasses.dataclass
class DualContext:
    """A dual contextual module: equation 6 with W^r as [f, D, 2 D], and two attentions without output projections."""

    taps: np.ndarray
    taps_bias: np.ndarray
    norm: Norm
    to_local: Attention
    to_states: Attention
    aggregation: np.ndarray
    aggregation_bias: np.ndarray


@dataclasses.dataclass
class LayerWeights:
    """One layer: attention and feed-forward, each with its norm."""

    attention: Attention | DualContext
    attention_norm: Norm
    feed_forward: FeedForward
    feed_forward_norm: Norm


@dataclasses.dataclass
class Weights:
    """All trainable weights of the model; with shared weights, `source` and `target` are the same layers."""

    embedding: np.ndarray  # [V, D]
    source: list[LayerWeights]
    target: list[LayerWeights]
    side: np.ndarray | None  # [2, D]: source, target
    sos: np.ndarray | None  # [D]
    final_norm: Norm | None


def weights_of(arrays, hparams):
    """Returns a model's `Weights` in float64 from its arrays by name; nothing else here knows the model's names."""
    arrays = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    unused = set(arrays)
    sizes = [hparams.attention_key_channels or hparams.hidden_size] * 2
    sizes.append(hparams.attention_value_channels or hparams.hidden_size)
    which = "pre_norm" if hparams.layer_preprocess_sequence == "n" else "post_norm"

    def take(name):
        unused.discard(name)
        return arrays.get(name)

    def norm(path):
        return Norm(take(f"{path}/scale"), take(f"{path}/bias"))

    def dual_context(path):
        """Returns the module at a path; one matrix has both attentions' queries and the second's keys and values."""

        def fused(name, widths):
            kernel, bias = (take(f"{path}/{name}/{part}") for part in ("kernel", "bias"))
            edges = np.cumsum(widths)[:-1]
            biases = [None] * len(widths) if bias is None else np.split(bias, edges)
            return list(zip(np.split(kernel, edges, axis=1), biases, strict=True))

        key, _, value = sizes
        local_query, query, keys, values = fused("q_qkv", [key, key, key, value])
        local_keys, local_values = fused("local_kv", [key, value])
        taps = take(f"{path}/local/convolution/kernel").reshape([-1, hparams.hidden_size, 2 * hparams.hidden_size])

        def attention(q, k, v):
            return Attention(q[0], k[0], v[0], None, q[1], k[1], v[1], None)

        return DualContext(
            taps,
            take(f"{path}/local/convolution/bias"),
            norm(f"{path}/local/norm"),
            attention(local_query, local_keys, local_values),
            attention(query, keys, values),
            take(f"{path}/aggregation/kernel"),
            take(f"{path}/aggregation/bias"),
        )

    def layer(path, attention):
        inner, inner_bias, outer, outer_bias = (
            take(f"{path}/feed_forward/{part}") for part in ("inner/kernel", "inner/bias", "outer/kernel", "outer/bias")
        )
        gate = gate_bias = None
        if inner.shape[1] == 2 * outer.shape[0]:
            (gate, inner), (gate_bias, inner_bias) = np.split(inner, 2, axis=1), np.split(inner_bias, 2)
        own_stack = attention == "self_attention"
        if f"{path}/dual_context/q_qkv/kernel" in arrays:
            part, frame = dual_context(f"{path}/dual_context"), "dual_context" if own_stack else "attention"
        else:
            part, frame = self_attention(path, attention), attention
        return LayerWeights(
            part,
            norm(f"{path}/{frame}_frame/{which}"),
            FeedForward(inner, inner_bias, outer, outer_bias, gate, gate_bias),
            norm(f"{path}/feed_forward_frame/{which}"),
        )

    def self_attention(path, attention):
        edges = np.cumsum(sizes)[:-1]
        kernels = np.split(take(f"{path}/{attention}/qkv/kernel"), edges, axis=1)
        bias = take(f"{path}/{attention}/qkv/bias")
        biases = [None] * 3 if bias is None else np.split(bias, edges)
        output = [take(f"{path}/{attention}/output/{part}") for part in ("kernel", "bias")]
        return Attention(*kernels, output[0], *biases, output[1])

    count = range(hparams.num_hidden_layers)
    if hparams.lwc_share_weights:
        source = target = [layer(f"layer_{i}", "attention") for i in count]
    else:
        read = count[:-1] if hparams.lwc_source == "input" else count
        source = [layer(f"encoder/layer_{i}", "self_attention") for i in read]
        target = [layer(f"decoder/layer_{i}", "attention") for i in count]
    sos = take("sos/embeddings")
    result = Weights(
        embedding=take("embedding/embeddings"),
        source=source,
        target=target,
        side=take("side_embedding/embeddings"),
        sos=None if sos is None else sos[0],
        final_norm=norm("final_norm") if which == "pre_norm" else None,
    )
    if unused:
        raise ValueError(f"The model has weights that the NumPy model knows nothing of: {sorted(unused)}.")
    return result


class NumpyLayerCoordination:
    """A model with layer-wise coordination, given weights and hyperparameters.

    Args:
      weights: `Weights` (float64).
      hparams: anything with the attributes of `LayerCoordinationHParams`.
    """

    def __init__(self, weights, hparams):
        self.w = weights
        self.hp = hparams
        self.pre_norm = hparams.layer_preprocess_sequence == "n"
        depth = (hparams.attention_key_channels or hparams.hidden_size) // hparams.num_heads
        self.scale = depth**-0.5 if hparams.attention_scale == "head" else hparams.hidden_size**-0.5
        self.maps = {}

    def _attend(self, queries, seen, part, allowed, name):
        """Returns the attention output [m, D]: softmax(Q K^T scale + M) V and the output projection.

        Args:
          queries: [m, D].
          seen: for each side that is attended to, its states [n, D] and which are real (None for the target).
          part: the weights of the attention.
          allowed: function (query, position in the concatenated sides) -> whether M is 0.
          name: the name under which the distributions are kept.
        """
        states = np.concatenate([rows for rows, _ in seen])
        if isinstance(part, Attention):
            return _project(self._find(queries, states, part, allowed, name), part.o, part.o_bias)
        local = np.concatenate([self._local_context(rows, real, part) for rows, real in seen])
        found = [
            self._find(queries, local, part.to_local, allowed, f"{name}/local_context"),
            self._find(queries, states, part.to_states, allowed, f"{name}/global_context"),
        ]
        return np.concatenate(found, axis=1) @ part.aggregation + part.aggregation_bias

    def _find(self, queries, memory, part, allowed, name):
        """Returns the concatenated outputs of the heads, [m, H d]."""
        heads = self.hp.num_heads
        q = _project(queries, part.q, part.q_bias).reshape(len(queries), heads, -1)
        k = _project(memory, part.k, part.k_bias).reshape(len(memory), heads, -1)
        v = _project(memory, part.v, part.v_bias).reshape(len(memory), heads, -1)
        found = np.zeros([len(queries), heads, v.shape[-1]])
        weights = np.zeros([heads, len(queries), len(memory)])
        for h in range(heads):
            for i in range(len(queries)):
                seen = [j for j in range(len(memory)) if allowed(i, j)]
                weights[h, i, seen] = softmax(np.array([q[i, h] @ k[j, h] * self.scale for j in seen]))
                found[i, h] = sum(weights[h, i, j] * v[j, h] for j in seen)
        self.maps[name] = weights
        return found.reshape(len(queries), -1)

    def _local_context(self, r, real, part):
        """Applies equation 6 to a side [n, D]; `real` tells which source positions are words, None means the target."""
        f = len(part.taps)
        before = f - 1
        if real is not None:
            before = f // 2 if self.hp.dc_even_kernel == "left" else (f - 1) // 2
        contexts = []
        for t in range(len(r)):
            y = part.taps_bias.copy()
            for tap in range(f):
                place = t - before + tap
                if 0 <= place < len(r) and (real is None or real[place]):
                    y = y + r[place] @ part.taps[tap]
            a, b = np.split(y, 2)
            contexts.append(layer_norm((a * sigmoid(b) + r[t])[np.newaxis], part.norm, self.hp.norm_epsilon)[0])
        return np.stack(contexts)

    def _before(self, x, norm):
        return layer_norm(x, norm, self.hp.norm_epsilon) if self.pre_norm else x

    def _after(self, x, y, norm):
        return x + y if self.pre_norm else layer_norm(x + y, norm, self.hp.norm_epsilon)

    def _fed_forward(self, x, layer):
        norm = layer.feed_forward_norm
        return self._after(x, feed_forward(self._before(x, norm), layer.feed_forward, self.hp.ffn_activation), norm)

    def _source_layer(self, x, layer, source, name):
        norm = layer.attention_norm
        y = self._before(x, norm)
        real = [word != PAD for word in source]
        y = self._attend(y, [(y, real)], layer.attention, lambda _, j: real[j], f"{name}/source_self_attention")
        return self._fed_forward(self._after(x, y, norm), layer)

    def _target_layer(self, x, layer, read, source, name):
        """Applies one layer to the target [m, D]; `read` [n, D] are the source states that it reads."""
        n, norm, part = len(source), layer.attention_norm, layer.attention
        below, y = self._before(read, norm), self._before(x, norm)
        real = [word != PAD for word in source]
        if self.hp.lwc_mixed_attention:

            def m_is_zero(i, j):
                return (j < n and real[j]) or (j >= n and j <= i + n)

            y = self._attend(y, [(below, real), (y, None)], part, m_is_zero, f"{name}/mixed_attention")
            x = self._after(x, y, norm)
        else:
            y = self._attend(y, [(y, None)], part, lambda i, j: j <= i, f"{name}/self_attention")
            x = self._after(x, y, norm)
            y = self._before(x, norm)
            y = self._attend(y, [(below, real)], part, lambda _, j: real[j], f"{name}/source_attention")
            x = self._after(x, y, norm)
        return self._fed_forward(x, layer)

    def _embed(self, ids, side):
        """Returns the ids' embeddings (0 for PAD) plus positions from 0 and the side's vector."""
        x = np.stack([self.w.embedding[i] if i != PAD else np.zeros(self.hp.hidden_size) for i in ids])
        if self.hp.multiply_embedding_mode == "sqrt_depth":
            x = x * np.sqrt(self.hp.hidden_size)
        if side == 1 and self.w.sos is not None:
            x[0] += self.w.sos
        if self.hp.pos == "timing":
            x = x + sinusoids(len(ids), self.hp.hidden_size, self.hp.pos_encoding)
        return x if self.w.side is None else x + self.w.side[side]

    def sentence(self, source, target):
        """Returns logits [T, V] of a target given its source, both padded lists of ids; distributions go to `maps`."""
        self.maps = {}
        s, t = self._embed(source, 0), self._embed([PAD, *target[:-1]], 1)
        states = [s]
        for i, layer in enumerate(self.w.source):
            states.append(self._source_layer(states[-1], layer, source, f"layer_{i}"))
        reads_output = not self.hp.lwc_share_weights and self.hp.lwc_source == "output"
        for i, layer in enumerate(self.w.target):
            read = states[-1] if self.hp.lwc_source == "last" else states[i + reads_output]
            t = self._target_layer(t, layer, read, source, f"layer_{i}")
        t = layer_norm(t, self.w.final_norm, self.hp.norm_epsilon) if self.w.final_norm else t
        return t @ self.w.embedding.T

    def __call__(self, inputs, targets):
        """Returns logits [B, T, V] and the distributions by name, [B, H, ...] each."""
        logits, maps = [], []
        for source, target in zip(inputs, targets, strict=True):
            logits.append(self.sentence(list(source), list(target)))
            maps.append(self.maps)
        return np.stack(logits), {name: np.stack([each[name] for each in maps]) for name in maps[0]}


def _project(x, kernel, bias):
    return x @ kernel + (0.0 if bias is None else bias)


class NumpyContextGate(NumpyTransformer):
    """A Transformer whose decoder has context gates.

    Args:
      weights: `numpy_transformer.Weights` of everything except the gates.
      gates: (W [2 D, H or D], b) of each decoder layer.
      hparams: anything with the attributes of `ContextGateHParams`.
    """

    def __init__(self, weights, gates, hparams):
        super().__init__(weights, hparams)
        self.gates = gates

    def _norm(self, x, sublayer, wanted):
        return layer_norm(x, sublayer.norm, self.hp.norm_epsilon) if wanted else x

    def decode(self, states, source, target):
        """Returns a target's logits [T, V] given the encoder states, and the cross-attention of each layer."""
        embedded = self._embed(target, self.w.target_embedding)
        x = self._positions(np.concatenate([np.zeros_like(embedded[:1]), embedded[:-1]]))
        maps = []
        for (own, cross, ffn), (kernel, bias) in zip(self.w.decoder, self.gates, strict=True):
            y = self._norm(x, own, self.pre_norm)
            a = self._attend(y, y, own.part, lambda t, s: s <= t)[0]
            query = self._norm(self._norm(x + a, own, not self.pre_norm), cross, self.pre_norm)
            c, weights = self._attend(query, states, cross.part, lambda _, s: source[s] != PAD)
            maps.append(weights)
            z = sigmoid(np.concatenate([a, c], axis=-1) @ kernel + bias)
            z = np.repeat(z, x.shape[-1] // z.shape[-1], axis=-1)
            x = self._norm(x + (1.0 - z) * a + z * c, cross, not self.pre_norm)
            x = self._around(ffn, x, lambda y, p=ffn.part: feed_forward(y, p, self.hp.ffn_activation))
        x = layer_norm(x, self.w.decoder_norm, self.hp.norm_epsilon) if self.w.decoder_norm else x
        return x @ self.w.softmax.T, maps
