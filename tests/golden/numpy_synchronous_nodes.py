"""The synchronous Transformer of Zhou et al. (2019) at the nodes of a search, in NumPy (float64).

Equations 3 to 10 are written from the paper. A node's query attends to the nodes of its own past (history, H) and, with
the same projections, to the nodes of the other side that it sees (future, H'). ``H + lambda f(H')`` or gates join both
results. Everything else is the Transformer of `numpy_transformer`.
"""

import numpy as np
from numpy_synchronous_search import L2R_ID, R2L_ID, Node, log_softmax
from numpy_transformer import NumpyTransformer, feed_forward, layer_norm, sigmoid, sinusoids, softmax, weights_of

# The weights that a synchronous layer has in addition to the Transformer's.
OWN = ("self_attention/lambda", "self_attention/gate/kernel")
FUNCTIONS = {"linear": lambda x: x, "tanh": np.tanh, "relu": lambda x: np.maximum(x, 0.0)}
MOST_POSITIONS = 64


class NumpySynchronous(NumpyTransformer):
    """The synchronous Transformer for the search of one sentence.

    Args:
      arrays: The model's arrays by name.
      hparams: SynchronousHParams.
      source: The sentence's ids, padded or not.
    """

    def __init__(self, arrays, hparams, source):
        arrays = dict(arrays)
        self.own = {name: np.asarray(arrays.pop(name), np.float64) for name in list(arrays) if name.endswith(OWN)}
        super().__init__(weights_of(arrays, hparams), hparams)
        self.source = source
        self.encoded = self.encode(source)
        self.signal = sinusoids(MOST_POSITIONS, hparams.hidden_size, hparams.pos_encoding)

    def start(self):
        """Returns each side's nodes before the first step: one for the zero vector if the tag is predicted."""
        if not self.hp.predict_tag:
            return (), ()
        nodes = [Node(side, 0) for side in (0, 1)]
        for side in (0, 1):
            nodes[side].past, nodes[side].seen = (nodes[side],), (nodes[1 - side],)
        return tuple((node,) for node in nodes)

    def log_probs(self, node):
        """Returns the log-probabilities of the next token at a node, [V]."""
        x = self._input(node, len(self.w.decoder))
        if self.w.decoder_norm:
            x = layer_norm(x, self.w.decoder_norm, self.hp.norm_epsilon)
        return log_softmax(self.w.softmax @ x)

    def _input(self, node, layer):
        """Returns a layer's input at a node, [D]; the index after the last layer gives the last layer's output."""
        key = (self, "input", layer)
        if key not in node.states:
            node.states[key] = self._embedded(node) if layer == 0 else self._layer(node, layer - 1)
        return node.states[key]

    def _embedded(self, node):
        token = (L2R_ID, R2L_ID)[node.side] if node.token is None else node.token
        return self._embed([token], self.w.target_embedding)[0] + self.signal[len(node.past) - 1]

    def _layer(self, node, layer):
        self_attention, cross, ffn = self.w.decoder[layer]
        x = self._around(self_attention, self._input(node, layer), lambda y: self._mix(node, layer, y))
        x = self._around(cross, x, lambda y: self._attend(y[None], self.encoded, cross.part, self._real)[0][0])
        return self._around(ffn, x, lambda y: feed_forward(y, ffn.part, self.hp.ffn_activation))

    def _real(self, _, position):
        return self.source[position] != 0

    def _mix(self, node, layer, y):
        """Returns the output of SBAtt at a node, [D]."""
        part = self.w.decoder[layer][0].part
        query = (y @ part.q + (0 if part.q_bias is None else part.q_bias)).reshape(self.hp.num_heads, -1)

        def look(nodes):
            found = []
            for head in range(self.hp.num_heads):
                keys, values = zip(*(self._key_value(each, layer, head) for each in nodes), strict=True)
                weights = softmax(np.array(keys) @ query[head] * self.scale)
                found.append(weights @ np.array(values))
            return np.array(found)

        mixed = look(node.past)
        if layer in self.hp.synchronous_layers:
            mixed = self._fuse(mixed, look(node.seen), layer)
        return mixed.reshape(-1) @ part.o + (0 if part.o_bias is None else part.o_bias)

    def _key_value(self, node, layer, head):
        key = (self, "key and value", layer)
        if key not in node.states:
            sublayer = self.w.decoder[layer][0]
            y, part = self._input(node, layer), sublayer.part
            if self.pre_norm:
                y = layer_norm(y, sublayer.norm, self.hp.norm_epsilon)
            node.states[key] = [
                (y @ kernel + (0 if bias is None else bias)).reshape(self.hp.num_heads, -1)
                for kernel, bias in ((part.k, part.k_bias), (part.v, part.v_bias))
            ]
        keys, values = node.states[key]
        return keys[head], values[head]

    def _fuse(self, history, future, layer):
        """Fuses history and future, [H, d] each, to [H, d]."""
        path = f"decoder/layer_{layer}/self_attention"
        if self.hp.sb_fusion == "gate":
            kernel = self.own[f"{path}/gate/kernel"]
            rows = [np.concatenate(pair) for pair in zip(history, future, strict=True)]
            if self.hp.sb_gate == "model":
                rows = [np.concatenate([history.reshape(-1), future.reshape(-1)])]
            read, update = np.split(sigmoid(np.array(rows) @ kernel), 2, axis=-1)
            return read.reshape(history.shape) * history + update.reshape(history.shape) * future
        factor = self.own.get(f"{path}/lambda", np.array([self.hp.sb_lambda]))
        factor = factor if factor.size == 1 else factor.reshape(history.shape)
        return history + factor * FUNCTIONS[self.hp.sb_fusion](future)
