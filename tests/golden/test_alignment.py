"""Compares word alignments with the loops of numpy_alignment."""

import types

import numpy as np
import pytest
from numpy_alignment import links, surface, words_of_pieces

from t2t_ext.errors import UserError

# Pieces of one word, of several words, of only whitespace, with whitespace at the end, bytes, and pieces without text.
PIECES = ["<pad>", "</s>", "<unk>", "<l2r>", "▁the", "in▁the", "▁", "▁▁", "a", "ß", "<0x20>", "<0x09>", "<0xE2>", "c▁"]
PIECES += ["▁d▁e", "\u3000", "▁▁f"]
SILENT = (0, 1, 3)


class Vocabulary:
    vocab_size = len(PIECES)
    control_ids = (3,)
    segmented_by_graph = True

    def piece_texts(self):
        return [surface(piece, False) for piece in PIECES]


def surfaces(ids):
    return [b"?" if i == 2 else surface(PIECES[i], i in SILENT) for i in ids]


def test_words_by_hand():
    assert words_of_pieces([b" the", b" ", b" a", b"b ", b"", b"c\td", b" "]) == (
        [{0}, {1}, {1}, {1}, set(), {2, 3}, set()],
        4,
    )


def test_links_by_hand():
    attention = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
    # Target word 0 is pieces 0 and 1: 0.8 for source word 0 of piece 0, 1.2 for source word 1 of pieces 1 and 2.
    assert links(attention, [b" x", b" y", b"z"], [b" a", b"b", b" c"]) == "1-0 1-1"


def test_random_sentences():
    """Random sentences have the expected alignments; attention in eighths makes sums exact and ties frequent."""
    import tensorflow as tf

    from t2t_ext.translation import alignment

    rng = np.random.default_rng(7)
    tables = alignment.piece_tables(Vocabulary())
    source = rng.integers(0, len(PIECES), [200, 9]).astype(np.int32)
    target = rng.integers(0, len(PIECES), [200, 8]).astype(np.int32)
    source[0], target[1], source[2] = 0, 0, 6  # empty texts; only whitespace
    attention = rng.integers(0, 4, [200, 8, 9]) / 8
    sides = [alignment.words_of(tf.constant(ids), tables) for ids in (source, target)]
    for ids, words in zip((source, target), sides, strict=True):
        for row, first, count, total in zip(ids, *(part.numpy() for part in words), strict=True):
            expected, number = words_of_pieces(surfaces(row))
            assert total == number
            assert [set(range(f, min(f + c, total))) for f, c in zip(first, count, strict=True)] == expected
    found = alignment.align_words(tf.constant(attention, tf.float32), *sides).numpy()
    expected = [links(a, surfaces(s), surfaces(t)) for a, s, t in zip(attention, source, target, strict=True)]
    assert [line.decode() for line in found] == expected
    assert expected[:3] == ["", "", ""]
    assert len(set(expected)) > 100


def fake_model(layers=3, heads=4, directions=1, seed=0):
    """Returns a model with random attention, which is the same for all ids, and its attention weights by name."""
    rng = np.random.default_rng(seed)
    weights = {f"decoder/layer_{i}/source_attention": rng.random([2, heads, 5, 6]) for i in range(layers)}
    weights["decoder/layer_0/self_attention"] = rng.random([2, heads, 5, 5])
    return types.SimpleNamespace(attention_weights=lambda inputs, targets: weights, directions=directions), weights


@pytest.mark.parametrize(
    ("layers", "chosen", "expected"), [(3, None, 1), (1, None, 0), (2, None, 0), (3, 0, 0), (3, -1, 2), (12, 10, 10)]
)
def test_layers(layers, chosen, expected):
    from t2t_ext.translation.alignment import AlignmentConfig, source_attention

    model, weights = fake_model(layers)
    found = source_attention(model, None, None, AlignmentConfig(layer=chosen))
    np.testing.assert_allclose(found, weights[f"decoder/layer_{expected}/source_attention"].mean(1), rtol=1e-6)


def test_heads():
    from t2t_ext.translation.alignment import AlignmentConfig, source_attention

    model, weights = fake_model()
    found = source_attention(model, None, None, AlignmentConfig(layer=2, heads=(3, 0)))
    np.testing.assert_allclose(found, weights["decoder/layer_2/source_attention"][:, [0, 3]].mean(1), rtol=1e-6)


def test_members_are_averaged():
    from t2t_ext.translation.alignment import AlignmentConfig, source_attention

    (one, left), (other, right) = fake_model(3, seed=1), fake_model(2, seed=2)
    ensemble = types.SimpleNamespace(members=(one, other), weights=(0.25, 0.75))
    expected = 0.25 * left["decoder/layer_1/source_attention"] + 0.75 * right["decoder/layer_0/source_attention"]
    found = source_attention(ensemble, None, None, AlignmentConfig())
    np.testing.assert_allclose(found, expected.mean(1), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "config", "message"),
    [
        ({}, {"layer": 3}, "has 3 layers; give 0 to 2"),
        ({}, {"layer": -4}, "--alignment_layer=-4"),
        ({}, {"heads": (1, 4)}, "no head 4; the layer has heads 0 to 3"),
        ({"layers": 0}, {}, "no cross-attention"),
        ({"directions": 2}, {}, "no cross-attention"),
    ],
)
def test_errors(model, config, message):
    from t2t_ext.translation.alignment import AlignmentConfig, source_attention

    with pytest.raises(UserError, match=message):
        source_attention(fake_model(**model)[0], None, None, AlignmentConfig(**config))
