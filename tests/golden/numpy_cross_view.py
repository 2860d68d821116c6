"""Layer-wise cross-view decoding in NumPy (float64), from Liu et al. (2020), section 2.2 and equations 5 and 7.

The code is independent of `t2t_ext.layers`: it makes every view R_i separately, and the weights of adaptive matching
attention position by position. If the query weighs the layers (`ama_query=decoder`), each query gets its own view.
"""

import numpy as np
from numpy_transformer import PAD, Attention, Norm, NumpyTransformer, feed_forward, layer_norm, softmax


def split_weights(arrays):
    """Returns the arrays of the views by name, in float64, and the remaining arrays, which are a Transformer's."""
    parts = ("decoder/source_views/", "encoder/view_norms/", "/source_attention/view/", "/source_attention/norm/")
    views = {name: np.asarray(a, np.float64) for name, a in arrays.items() if any(part in name for part in parts)}
    return views, {name: array for name, array in arrays.items() if name not in views}


class NumpyCrossView(NumpyTransformer):
    """The NumPy Transformer with a decoder whose layers have views of the source of their own.

    Args:
      weights: `Weights` of the Transformer (float64).
      hparams: anything with the attributes of `TransformerHParams`.
      views: the views' arrays by name, from `split_weights`; the equations must use all of them.
      routes: for gca, gpa and fga, the encoder layer (counted from 0) that each decoder layer reads.
    """

    def __init__(self, weights, hparams, views, routes=()):
        super().__init__(weights, hparams)
        self.views, self.routes = views, routes
        self.used = set()

    def take(self, name):
        self.used.add(name)
        return self.views[name]

    def normed(self, x, path):
        return layer_norm(x, Norm(self.take(f"{path}/scale"), self.take(f"{path}/bias")), self.hp.norm_epsilon)

    def layers(self, source):
        """Returns e_1 to e_N of a sentence's ids, [S, D] each, normalized (row C9 of what the paper leaves open)."""
        x = self._embed(source, self.w.source_embedding)
        if self.w.target_space is not None:
            x = x + self.w.target_space
        x, states = self._positions(x), []

        def real(_, s):
            return source[s] != PAD

        for self_attention, ffn in self.w.encoder:
            x = self._around(self_attention, x, lambda y, p=self_attention.part: self._attend(y, y, p, real)[0])
            x = self._around(ffn, x, lambda y, p=ffn.part: feed_forward(y, p, self.hp.ffn_activation))
            states.append(x)
        if not self.pre_norm:
            return states
        last = len(states) - 1
        for j, state in enumerate(states):
            path = f"encoder/view_norms/layer_{j}"
            if j == last or self.hp.source_view_norm == "shared":
                states[j] = layer_norm(state, self.w.encoder_norm, self.hp.norm_epsilon)
            elif f"{path}/scale" in self.views:
                states[j] = self.normed(state, path)
            else:
                states[j] = None  # no decoder layer reads it
        return states

    def view(self, i, layers, query):
        """Returns R_i (equation 5), [S, D], for a decoder state [D]."""
        kind, path = self.hp.source_view, f"decoder/source_views/layer_{i}"
        if kind in ("gca", "gpa", "fga"):
            return layers[self.routes[i]]
        if kind == "fma" and self.hp.fma == "scalar":
            weights = self.take(f"{path}/combination/weights")
            return sum(weight * layer for weight, layer in zip(weights, layers, strict=True))
        if kind == "fma":
            together = np.concatenate(layers, axis=1)
            return together @ self.take(f"{path}/combination/matrix") + self.take(f"{path}/combination/bias")
        shared = self.hp.ama_share_layers
        vectors = self.take("decoder/source_views/weighing/vectors" if shared else f"{path}/weighing/vectors")
        rows = []
        for s in range(len(layers[0])):
            states = [layer[s] for layer in layers]
            keys = [query] * len(layers) if self.hp.ama_query == "decoder" else states
            alpha = softmax(np.array([v @ key for v, key in zip(vectors, keys, strict=True)]))
            rows.append(sum(a * state for a, state in zip(alpha, states, strict=True)))
        return np.stack(rows)

    def second_projections(self, i, first):
        """Returns the projections of the attention to R_i if there are two attentions."""
        if self.hp.integration_attention == "shared":
            return first
        path, keys = f"decoder/layer_{i}/source_attention/view", self.hp.attention_key_channels or self.hp.hidden_size

        def both(part):
            return self.take(f"{path}/{part}/kernel"), self.take(
                f"{path}/{part}/bias"
            ) if first.q_bias is not None else None

        (q, qb), (kv, kvb), (o, ob) = both("query"), both("kv"), both("output")
        biases = (None, None) if kvb is None else (kvb[:keys], kvb[keys:])
        return Attention(q, kv[:, :keys], kv[:, keys:], o, qb, *biases, ob)

    def look(self, i, y, layers, part, source):
        """Returns decoder layer i's cross-attention output [T, D] for states y [T, D], and the weights [H, T, S]."""

        def real(_, s):
            return source[s] != PAD

        found, maps = [], []
        for query in y:
            view = self.view(i, layers, query)
            if self.hp.integration == "soft":  # equation 7
                view = self.normed(layers[-1] + view, f"decoder/source_views/layer_{i}/norm")
            if self.hp.integration == "soft_two_attention":
                first, first_map = self._attend(query[np.newaxis], layers[-1], part, real)
                second, second_map = self._attend(query[np.newaxis], view, self.second_projections(i, part), real)
                out, weights = first + second, (first_map + second_map) / 2
                out = self.normed(out, f"decoder/layer_{i}/source_attention/norm")
            else:
                out, weights = self._attend(query[np.newaxis], view, part, real)
            found.append(out[0])
            maps.append(weights[:, 0])
        return np.stack(found), np.stack(maps, axis=1)

    def decode(self, layers, source, target):
        """Returns the logits [T, V] of a target sentence and the cross-attention of each layer."""
        embedded = self._embed(target, self.w.target_embedding)
        x = self._positions(np.concatenate([np.zeros_like(embedded[:1]), embedded[:-1]]))
        maps = []
        for i, (self_attention, cross, ffn) in enumerate(self.w.decoder):
            part = self_attention.part
            x = self._around(self_attention, x, lambda y, p=part: self._attend(y, y, p, lambda t, s: s <= t)[0])

            def look(y, i=i, p=cross.part):
                out, weights = self.look(i, y, layers, p, source)
                maps.append(weights)
                return out

            x = self._around(cross, x, look)
            x = self._around(ffn, x, lambda y, p=ffn.part: feed_forward(y, p, self.hp.ffn_activation))
        if self.w.decoder_norm:
            x = layer_norm(x, self.w.decoder_norm, self.hp.norm_epsilon)
        return x @ self.w.softmax.T, maps

    def __call__(self, inputs, targets):
        """Returns logits [B, T, V] and cross-attention [layers][B, H, T, S] of a batch of ids padded with PAD."""
        results = [self.decode(self.layers(s), s, t) for s, t in zip(inputs, targets, strict=True)]
        if self.used != set(self.views):
            raise ValueError(f"Weights that the equations know nothing of: {sorted(set(self.views) - self.used)}.")
        maps = [np.stack(layer) for layer in zip(*(m for _, m in results), strict=True)]
        return np.stack([logits for logits, _ in results]), maps
