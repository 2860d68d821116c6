"""Synchronous bidirectional decoding in NumPy (float64), from equations 3 to 10 of Zhou et al. (2019).

The code is independent of `t2t_ext.layers` and of its layout: each side is a separate list of positions, and each head
and position is computed separately, equation by equation. In training both whole targets are known. `NumpyStepper`
writes one token of any number of hypotheses at a time; it keeps the keys and values of every layer as lists.
"""

import numpy as np
from numpy_transformer import PAD, NumpyTransformer, feed_forward, layer_norm, sigmoid, softmax

TAGS = (3, 4)


def extra_weights(arrays):
    """Returns the gates and the lambdas by decoder layer, and the remaining arrays, which are a Transformer's."""
    gates, lambdas, rest = {}, {}, {}
    for name, value in arrays.items():
        if name.endswith("self_attention/gate/kernel"):
            gates[int(name.split("/")[1].removeprefix("layer_"))] = np.asarray(value, np.float64)
        elif name.endswith("self_attention/lambda"):
            lambdas[int(name.split("/")[1].removeprefix("layer_"))] = np.asarray(value, np.float64)
        else:
            rest[name] = value
    return gates, lambdas, rest


class NumpySynchronous(NumpyTransformer):
    """The NumPy Transformer with a synchronous decoder.

    Args:
      weights: `Weights` of the Transformer (float64).
      hparams: anything with the attributes of `SynchronousHParams`.
      gates: decoder layer -> W_g.
      lambdas: decoder layer -> lambda if it is trainable, [1] or [width of the values].
      layers: the decoder layers that are synchronous, counted from 0.
    """

    def __init__(self, weights, hparams, gates, lambdas, layers):
        super().__init__(weights, hparams)
        self.gates, self.lambdas, self.layers = gates, lambdas, layers

    # === Equations 2 to 10 ===

    def heads_of(self, x, kernel, bias):
        """Projects a vector [D] to the heads [H, d]."""
        y = x @ kernel + (0.0 if bias is None else bias)
        return y.reshape(self.hp.num_heads, -1)

    def attend_head(self, query, keys, values):
        """Applies equation 2 to one query [d] and lists of keys and values."""
        weights = softmax(np.array([query @ key * self.scale for key in keys]))
        return sum(weight * value for weight, value in zip(weights, values, strict=True))

    def fused(self, history, future, layer):
        """Fuses history [H, d] and future [H, d] of one position to [H, d] (equations 4 to 6)."""
        hp = self.hp
        if hp.sb_fusion == "gate":
            gate = self.gates[layer]
            if hp.sb_gate == "head":
                both = [sigmoid(np.concatenate([h, f]) @ gate) for h, f in zip(history, future, strict=True)]
                r, z = (np.stack(part) for part in zip(*(np.split(g, 2) for g in both), strict=True))
            else:
                r, z = np.split(sigmoid(np.concatenate([history.ravel(), future.ravel()]) @ gate), 2)
                r, z = r.reshape(history.shape), z.reshape(history.shape)
            return r * history + z * future
        weight = self.lambdas.get(layer, hp.sb_lambda)
        if np.size(weight) > 1:
            weight = np.reshape(weight, history.shape)
        function = {"linear": lambda a: a, "tanh": np.tanh, "relu": lambda a: np.maximum(a, 0.0)}[hp.sb_fusion]
        return history + weight * function(future)

    def sbatt(self, query, own, other, part, layer):
        """Applies SBAtt (equations 3, 7 and 9) at one position.

        Args:
          query: [D].
          own: (keys, values) of the side itself, lists of [H, d] that include the query's position.
          other: (keys, values) of the other side.
          part: the projections.
          layer: the number of the decoder layer.

        Returns:
          The output [D].
        """
        q = self.heads_of(query, part.q, part.q_bias)
        history, future = (
            np.stack(
                [
                    self.attend_head(q[h], [key[h] for key in keys], [value[h] for value in values])
                    for h in range(self.hp.num_heads)
                ]
            )
            for keys, values in (own, other)
        )
        fused = self.fused(history, future, layer) if layer in self.layers else history
        return fused.ravel() @ part.o + (0.0 if part.o_bias is None else part.o_bias)

    # === A decoder ===

    def first_inputs(self, side):
        """Returns the inputs of a side before its first word: ids, or None for a zero vector."""
        return [None, TAGS[side]] if self.hp.predict_tag else [TAGS[side]]

    def embedded(self, token):
        """Returns one token's embedding [D], or the zero vector for None."""
        return np.zeros(self.hp.hidden_size) if token is None else self._embed([token], self.w.target_embedding)[0]

    def logits_of_sides(self, states, source, sides):
        """Returns the logits of all words of both sides, computed at once as in training.

        Args:
          states: the encoder states [S, D].
          source: ids.
          sides: two lists of words with EOS, without PAD.

        Returns:
          Two arrays [words, V].
        """
        inputs = [[*self.first_inputs(side), *words[:-1]] for side, words in enumerate(sides)]
        x = [self._positions(np.stack([self.embedded(token) for token in tokens])) for tokens in inputs]
        for layer, (self_attention, cross, ffn) in enumerate(self.w.decoder):
            part = self_attention.part
            seen = [self._normed(self_attention, side) for side in x]
            keys = [[self.heads_of(y, part.k, part.k_bias) for y in side] for side in seen]
            values = [[self.heads_of(y, part.v, part.v_bias) for y in side] for side in seen]
            mixed = []
            for r in (0, 1):
                rows = []
                for t, y in enumerate(seen[r]):
                    own = keys[r][: t + 1], values[r][: t + 1]
                    other = keys[1 - r][: t + 1], values[1 - r][: t + 1]  # fewer if the other side has ended
                    rows.append(self.sbatt(y, own, other, part, layer))
                mixed.append(np.stack(rows))
            x = [self._joined(self_attention, before, after) for before, after in zip(x, mixed, strict=True)]
            x = [self._rest_of_layer(side, cross, ffn, states, source) for side in x]
        return [self._logits(side)[-len(words) :] for side, words in zip(x, sides, strict=True)]

    def _normed(self, sublayer, x):
        return layer_norm(x, sublayer.norm, self.hp.norm_epsilon) if self.pre_norm else x

    def _joined(self, sublayer, x, y):
        return x + y if self.pre_norm else layer_norm(x + y, sublayer.norm, self.hp.norm_epsilon)

    def _rest_of_layer(self, x, cross, ffn, states, source):
        def real(_, s):
            return source[s] != PAD

        x = self._around(cross, x, lambda y: self._attend(y, states, cross.part, real)[0])
        return self._around(ffn, x, lambda y: feed_forward(y, ffn.part, self.hp.ffn_activation))

    def _logits(self, x):
        if self.w.decoder_norm:
            x = layer_norm(x, self.w.decoder_norm, self.hp.norm_epsilon)
        return x @ self.w.softmax.T

    def __call__(self, inputs, targets):
        """Returns logits [B, 2, T, V] for targets [B, 2, T] padded with PAD; zeros at the padding."""
        logits = np.zeros([*targets.shape, len(self.w.softmax)])
        for b, (source, sides) in enumerate(zip(inputs, targets, strict=True)):
            words = [[i for i in side if i != PAD] for side in sides]
            for r, rows in enumerate(self.logits_of_sides(self.encode(source), source, words)):
                logits[b, r, : len(rows)] = rows
        return logits


class NumpyStepper:
    """Writes hypotheses of both sides of one sentence token by token, without computing anything twice.

    A past is a list with (keys, values) of each layer; both are lists of [H, d] in generation order.

    Args:
      model: a `NumpySynchronous`.
      source: ids.

    Attributes:
      empty: the past of a hypothesis without tokens.
      now: during a step, each hypothesis's past including this step, for the layers computed so far.
    """

    def __init__(self, model, source):
        self.model, self.source = model, source
        self.states = model.encode(source)
        self.position = 0
        self.empty = [([], []) for _ in model.w.decoder]
        self.now = []

    def step(self, tokens, own, seen):
        """Computes one step of several hypotheses, which are all at the same position.

        Args:
          tokens: for each hypothesis, the input id, or None for a zero vector.
          own: for each hypothesis, its past.
          seen: for each hypothesis, a function layer -> (keys, values) that it sees of the other side; it is called
            when `now` contains this step's keys and values of the layer.

        Returns:
          Each hypothesis's logits [V] and its past including this step.
        """
        model = self.model
        positions = model._positions(np.zeros([self.position + 1, model.hp.hidden_size]))
        x = [model.embedded(token) + positions[self.position] for token in tokens]
        self.now = [[] for _ in tokens]
        for layer, (self_attention, cross, ffn) in enumerate(model.w.decoder):
            part = self_attention.part
            normed = [model._normed(self_attention, y) for y in x]
            for y, past, mine in zip(normed, own, self.now, strict=True):
                keys, values = past[layer]
                key, value = model.heads_of(y, part.k, part.k_bias), model.heads_of(y, part.v, part.v_bias)
                mine.append(([*keys, key], [*values, value]))
            mixed = [
                model.sbatt(y, mine[layer], look(layer), part, layer)
                for y, mine, look in zip(normed, self.now, seen, strict=True)
            ]
            x = [model._joined(self_attention, before, after) for before, after in zip(x, mixed, strict=True)]
            x = [model._rest_of_layer(y[np.newaxis], cross, ffn, self.states, self.source)[0] for y in x]
        self.position += 1
        return [model._logits(y) for y in x], self.now
