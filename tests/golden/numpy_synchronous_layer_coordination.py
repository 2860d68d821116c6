"""Layer-wise coordination in both directions in NumPy (float64), from the papers and not from `t2t_ext`.

The history follows He et al. (2018), equation 3: a position of a direction attends to the source and to its own
direction's past in one softmax. The rest follows Zhou et al. (2019), equations 3 to 10: with the same projections the
position attends to the other direction's inputs up to the same position (future), and both results are fused. The
source attends to neither direction. Where the papers leave something open, `docs/decisions/0026` applies.

For readability the code processes one sentence, one head and one position at a time; each direction is a separate list.
"""

import numpy as np
from numpy_layer_coordination import NumpyLayerCoordination
from numpy_synchronous import TAGS, NumpySynchronous
from numpy_transformer import PAD, layer_norm

DIRECTIONS = ("l2r", "r2l")


def extra_weights(arrays):
    """Returns the gates and the lambdas by layer, and the remaining arrays, those of layer-wise coordination."""
    gates, lambdas, rest = {}, {}, {}
    for name, value in arrays.items():
        number = next((int(part.removeprefix("layer_")) for part in name.split("/") if part.startswith("layer_")), None)
        if name.endswith("attention/gate/kernel"):
            gates[number] = np.asarray(value, np.float64)
        elif name.endswith("attention/lambda"):
            lambdas[number] = np.asarray(value, np.float64)
        else:
            rest[name] = value
    return gates, lambdas, rest


class NumpySynchronousLayerCoordination(NumpyLayerCoordination):
    """A synchronous model with layer-wise coordination, given weights and hyperparameters.

    Args:
      weights: `numpy_layer_coordination.Weights`.
      hparams: anything with the attributes of `SynchronousLayerCoordinationHParams`.
      gates: layer -> W_g.
      lambdas: layer -> lambda if it is trainable.
      layers: the layers that are synchronous, counted from 0.
    """

    fused = NumpySynchronous.fused

    def __init__(self, weights, hparams, gates, lambdas, layers):
        super().__init__(weights, hparams)
        self.gates, self.lambdas, self.layers = gates, lambdas, layers

    def _direction(self, r, x, below, layer, number, real):
        """Returns one layer's output for direction r, given its inputs x of both directions (two arrays of rows)."""
        n, norm, part = len(below), layer.attention_norm, layer.attention
        own, other = (self._before(x[side], norm) for side in (r, 1 - r))
        heads, name = self.hp.num_heads, f"layer_{number}"
        if self.hp.lwc_mixed_attention:
            seen, kind = np.concatenate([below, own]), "mixed_attention"

            def in_history(i, j):
                return (j < n and real[j]) or (j >= n and j <= i + n)
        else:
            seen, kind = own, "self_attention"

            def in_history(i, j):
                return j <= i

        found = self._find(own, seen, part, in_history, f"{name}/{kind}/{DIRECTIONS[r]}/history")
        if number in self.layers:
            future = self._find(own, other, part, lambda i, j: j <= i, f"{name}/self_attention/{DIRECTIONS[r]}/future")
            both = zip(found, future, strict=True)
            found = np.stack([self.fused(h.reshape(heads, -1), f.reshape(heads, -1), number).ravel() for h, f in both])

        def output(rows):
            return rows @ part.o + (0.0 if part.o_bias is None else part.o_bias)

        y = self._after(x[r], output(found), norm)
        if not self.hp.lwc_mixed_attention:
            place = f"{name}/source_attention/{DIRECTIONS[r]}"
            found = self._find(self._before(y, norm), below, part, lambda _, j: real[j], place)
            y = self._after(y, output(found), norm)
        return self._fed_forward(y, layer)

    def sides(self, source, sides):
        """Returns logits [words, V] of both directions, which are lists of words with EOS and without PAD."""
        self.maps = {}
        real = [word != PAD for word in source]
        s = self._embed(source, 0)
        first = [[PAD, tag] if self.hp.predict_tag else [tag] for tag in TAGS]
        x = [self._embed([*tokens, *words[:-1]], 1) for tokens, words in zip(first, sides, strict=True)]
        for number, (source_layer, layer) in enumerate(zip(self.w.source, self.w.target, strict=True)):
            after = self._source_layer(s, source_layer, source, f"layer_{number}")
            below = self._before(s if self.hp.lwc_share_weights else after, layer.attention_norm)
            x = [self._direction(r, x, below, layer, number, real) for r in (0, 1)]
            s = after
        if self.w.final_norm:
            x = [layer_norm(side, self.w.final_norm, self.hp.norm_epsilon) for side in x]
        return [side[-len(words) :] @ self.w.embedding.T for side, words in zip(x, sides, strict=True)]

    def __call__(self, inputs, targets):
        """Returns logits [B, 2, T, V] for targets [B, 2, T] padded with PAD; zeros at the padding."""
        logits = np.zeros([*targets.shape, len(self.w.embedding)])
        for b, (source, sides) in enumerate(zip(inputs, targets, strict=True)):
            words = [[i for i in side if i != PAD] for side in sides]
            for r, rows in enumerate(self.sides(list(source), words)):
                logits[b, r, : len(rows)] = rows
        return logits
