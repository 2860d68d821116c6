"""An independent rendering of talking-heads attention in NumPy (float64), written from Shazeer et al. (2020), figure 1.

The code processes one pair of positions at a time. P_l maps the vector of the H logits of a query and a key to another
vector. After the softmax over the keys, P_w does the same with the vector of the H attention weights.
"""

import numpy as np
from numpy_transformer import NumpyTransformer, softmax, weights_of


def talking_heads(x, part, mix_logits, mix_weights, *, heads, scale, allowed):
    """Returns O [T, D] of x [T, D], and the distributions [H, T, T] before the second mix."""

    def projected(kernel, bias):
        return (x @ kernel + (0.0 if bias is None else bias)).reshape(len(x), heads, -1)

    q, k = projected(part.q, part.q_bias), projected(part.k, part.k_bias)
    v = projected(part.v, part.v_bias)
    weights = np.zeros([heads, len(x), len(x)])
    found = np.zeros_like(v)
    for t in range(len(x)):
        seen = [s for s in range(len(x)) if allowed(t, s)]
        talked = [np.array([q[t, h] @ k[s, h] * scale for h in range(heads)]) @ mix_logits for s in seen]
        for head in range(heads):
            weights[head, t, seen] = softmax(np.array([each[head] for each in talked]))
        for s in seen:
            heard = weights[:, t, s] @ mix_weights
            for head in range(heads):
                found[t, head] += heard[head] * v[s, head]
    y = found.reshape(len(x), -1) @ part.o
    return y + (0.0 if part.o_bias is None else part.o_bias), weights


class NumpyTalkingHeads(NumpyTransformer):
    """An encoder-decoder whose self-attention has talking heads in the layers for which the arrays have matrices.

    Args:
      arrays: a model's arrays by name.
      hparams: anything with the attributes of `TransformerHParams`.
    """

    def __init__(self, arrays, hparams):
        mixes = {name: np.asarray(value, np.float64) for name, value in arrays.items() if "/mix_" in name}
        super().__init__(weights_of({n: a for n, a in arrays.items() if n not in mixes}, hparams), hparams)
        self.mixes = {}
        for name in mixes:
            stack, layer, _, _ = name.split("/")
            path = f"{stack}/{layer}/self_attention"
            part = getattr(self.w, stack)[int(layer.removeprefix("layer_"))][0].part
            self.mixes[id(part)] = (mixes[f"{path}/mix_logits"], mixes[f"{path}/mix_weights"])

    def _attend(self, queries, memory, part, allowed):
        if id(part) not in self.mixes:
            return super()._attend(queries, memory, part, allowed)
        return talking_heads(
            queries, part, *self.mixes[id(part)], heads=self.hp.num_heads, scale=self.scale, allowed=allowed
        )
