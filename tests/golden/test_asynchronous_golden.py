"""The asynchronous Transformer equals two NumPy decoders; the forward decoder reads the backward decoder's states."""

import functools

import numpy as np
import pytest
from numpy_transformer import NumpyTransformer, feed_forward, layer_norm, weights_of
from random_weights import random_arrays

VOCAB = 23
SETTINGS = {
    "pre_norm": "backward_length_ratio=1,backward_length_offset=3",
    "post_norm": "layer_preprocess_sequence=none,layer_postprocess_sequence=dan,projection_bias=true,num_heads=4,"
    "shared_embedding_and_softmax_weights=false,num_decoder_layers=3,backward_length_offset=1",
    "channels": "attention_key_channels=8,attention_value_channels=24,ffn_activation=swiglu,backward_length_ratio=0.5",
}
INPUTS = np.array([[15, 9, 17, 12, 1], [11, 16, 1, 0, 0], [1, 0, 0, 0, 0]], np.int32)
FORWARD = np.array([[18, 18, 13, 1], [14, 1, 0, 0], [10, 16, 17, 1]], np.int32)
BACKWARD = np.array([[9, 22, 1, 0], [19, 10, 21, 1], [1, 0, 0, 0]], np.int32)


class NumpyAsynchronous:
    """An encoder with a backward and a forward decoder in NumPy."""

    def __init__(self, arrays, hparams):
        def transformer(decoder, source_attention):
            """Returns the encoder with one of the decoders and with the named attention as its cross-attention."""
            chosen = {}
            for name, value in arrays.items():
                stack, _, rest = name.partition("/")
                if stack not in ("decoder", "backward_decoder"):
                    chosen[name] = value
                elif stack == decoder:
                    other = {"source_attention", "backward_attention"} - {source_attention}
                    if not any(f"/{part}/" in name or f"/{part}_frame/" in name for part in other):
                        chosen["decoder/" + rest.replace(source_attention, "source_attention")] = value
            return NumpyTransformer(weights_of(chosen, hparams), hparams)

        self.forward = transformer("decoder", "source_attention")
        self.attentions = [layer[1] for layer in transformer("decoder", "backward_attention").w.decoder]
        self.backward = transformer("backward_decoder", "source_attention")
        self.softmax = self.forward.w.softmax
        self.backward.w.softmax = np.eye(hparams.hidden_size)  # states instead of logits
        self.hp = hparams

    def states(self, source, target):
        """Returns the states of the backward decoder at each position of a target, [U, D]."""
        return self.backward.decode(self.backward.encode(source), source, target)[0]

    def write(self, source, limit, banned):
        """Returns the backward decoder's greedy output of at most ``limit`` tokens."""
        ids = []
        while len(ids) < limit and 1 not in ids:
            logits = self.softmax @ self.states(source, [*ids, 7])[-1]
            logits[list(banned)] = -np.inf
            ids.append(int(np.argmax(logits)))
        return ids

    def __call__(self, source, target, backward_target):
        """Returns logits [T, V] of the forward decoder and [U, V] of the backward decoder."""
        net, memory = self.forward, self.forward.encode(source)
        states = self.states(source, backward_target)
        embedded = net._embed(target, net.w.target_embedding)
        x = net._positions(np.concatenate([np.zeros_like(embedded[:1]), embedded[:-1]]))
        for (own, cross, ffn), back in zip(net.w.decoder, self.attentions, strict=True):
            x = net._around(own, x, lambda y, p=own.part: net._attend(y, y, p, lambda t, s: s <= t)[0])
            x = net._around(cross, x, lambda y, p=cross.part: net._attend(y, memory, p, lambda t, s: source[s] != 0)[0])
            x = net._around(
                back, x, lambda y, p=back.part: net._attend(y, states, p, lambda t, s: backward_target[s] != 0)[0]
            )
            x = net._around(ffn, x, lambda y, p=ffn.part: feed_forward(y, p, self.hp.ffn_activation))
        if net.w.decoder_norm:
            x = layer_norm(x, net.w.decoder_norm, self.hp.norm_epsilon)
        return x @ self.softmax.T, states @ self.softmax.T


@functools.cache
def make(setting):
    from t2t_ext import registry

    hparams = registry.hparams("asynchronous_transformer_test").override(SETTINGS[setting])
    model = registry.model("asynchronous_transformer")(hparams, source_vocab_size=VOCAB, target_vocab_size=VOCAB)
    model.build()
    model.assign(random_arrays(model, seed=3))
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    return model, NumpyAsynchronous(arrays, hparams)


@pytest.mark.parametrize("setting", SETTINGS)
def test_both_targets_given(setting):
    model, numpy_model = make(setting)
    got = model(INPUTS, np.stack([FORWARD, BACKWARD], axis=1)).numpy()
    for row, (source, forward, backward) in enumerate(zip(INPUTS, FORWARD, BACKWARD, strict=True)):
        for side, (target, expected) in enumerate(
            zip((forward, backward), numpy_model(source, forward, backward), strict=True)
        ):
            assert np.ptp(expected) > 0.5, "the golden logits hardly differ: the comparison would mean little"
            np.testing.assert_allclose(got[row, side][target != 0], expected[target != 0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_backward_decoder_writes_for_itself(setting):
    """The backward decoder writes greedily up to its own limit; the forward decoder reads the states of these words."""
    model, numpy_model = make(setting)
    written = model.generate_backward(INPUTS, model.encode(INPUTS)).numpy()
    got = model(INPUTS, FORWARD).numpy()
    hparams, lengths = model.hparams, []
    for row, (source, target) in enumerate(zip(INPUTS, FORWARD, strict=True)):
        words = int((source > 1).sum())
        limit = int(hparams.backward_length_ratio * words) + hparams.backward_length_offset if words else 1
        expected = numpy_model.write(source, limit, banned=[0, *range(2, 9)])
        lengths.append(len(expected))
        assert written[row].tolist() == expected + [0] * (written.shape[1] - len(expected))
        logits, _ = numpy_model(source, target, expected)
        np.testing.assert_allclose(got[row][target != 0], logits[target != 0], rtol=0, atol=2e-5)
    assert len(set(lengths)) > 1
