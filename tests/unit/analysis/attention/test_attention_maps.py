"""Tests of attention maps: the words of their rows and columns, and the choice of the maps that are shown."""

import types

import numpy as np
import pytest
import tensorflow as tf

from t2t_ext.analysis.attention import maps as attention
from t2t_ext.analysis.attention import pictures as drawing
from t2t_ext.analysis.attention.report import Choice
from t2t_ext.errors import UserError

SOURCE = ["das", "Haus", "</s>"]
TARGET = ["the", "house", "is", "</s>"]
BACKWARDS = ["house", "</s>"]


def model(directions=1, target_direction="l2r", predict_tag=False):
    """Returns the part of a model that ``sentence_of`` needs."""
    hparams = types.SimpleNamespace(target_direction=target_direction, predict_tag=predict_tag)
    return types.SimpleNamespace(directions=directions, hparams=hparams)


def weights(rows, columns, heads=2):
    return tf.random.stateless_uniform([1, heads, rows, columns], seed=[1, 2])


def read(found, words):
    return {each.name: each for each in attention.read_maps(found, words)}


def test_a_row_reads_the_token_before_the_one_it_predicts():
    words = attention.sentence_of(model(), SOURCE, [TARGET])
    found = read(
        {
            "encoder/layer_1/self_attention": weights(3, 3),
            "decoder/layer_0/self_attention": weights(4, 4),
            "decoder/layer_0/source_attention": weights(4, 3),
        },
        words,
    )
    inputs = ("<start>", "the", "house", "is")
    own = found["decoder/layer_0/self_attention"]
    assert (own.kind, own.rows, own.columns, own.predicted) == ("self", inputs, inputs, tuple(TARGET))
    source = found["decoder/layer_0/source_attention"]
    assert (source.kind, source.rows, source.columns) == ("source", inputs, tuple(SOURCE))
    encoder = found["encoder/layer_1/self_attention"]
    assert (encoder.kind, encoder.rows, encoder.columns, encoder.predicted) == ("encoder", *[tuple(SOURCE)] * 2, ())
    assert encoder.title == "Encoder self-attention, encoder layer 2"


def test_mixed_attention_has_source_and_target_columns():
    words = attention.sentence_of(model(), SOURCE, [TARGET])
    found = read(
        {
            "layer_2/mixed_attention": weights(4, 7),
            "layer_2/source_self_attention": weights(3, 3),
            "layer_2/self_attention": weights(4, 4),
            "layer_2/source_attention": weights(4, 3),
        },
        words,
    )
    mixed = found["layer_2/mixed_attention"]
    assert mixed.columns == (*SOURCE, "<start>", "the", "house", "is")
    assert (mixed.kind, mixed.boundary, mixed.stack, mixed.layer) == ("mixed", 3, "", 2)
    assert mixed.title == "Mixed attention, layer 3"
    # Position 1 sees the whole source, and of the target <start> and itself.
    np.testing.assert_array_equal(mixed.hidden[1], [False] * 5 + [True] * 2)
    kinds = [found[f"layer_2/{name}"].kind for name in ("source_self_attention", "self_attention", "source_attention")]
    assert kinds == ["encoder", "self", "source"]


@pytest.mark.parametrize("predict_tag", [False, True])
def test_two_directions_read_their_tags_and_each_other(predict_tag):
    words = attention.sentence_of(model(2, predict_tag=predict_tag), SOURCE, [TARGET, BACKWARDS])
    more = int(predict_tag)  # the extra position that predicts the tag
    both = 4 + more  # the shorter side is padded to this length
    found = read(
        {
            "decoder/layer_0/self_attention/l2r/history": weights(both, both),
            "decoder/layer_0/self_attention/l2r/future": weights(both, both),
            "decoder/layer_0/self_attention/r2l/future": weights(both, both),
            "decoder/layer_0/source_attention/r2l": weights(both, 3),
        },
        words,
    )
    first = ("<start>",) * more
    left, right = (*first, "<l2r>", "the", "house", "is"), (*first, "<r2l>", "house")
    of = {name.removeprefix("decoder/layer_0/"): each for name, each in found.items()}
    assert of["self_attention/l2r/history"].columns == left
    assert (of["self_attention/l2r/future"].rows, of["self_attention/l2r/future"].columns) == (left, right)
    assert (of["self_attention/r2l/future"].rows, of["self_attention/r2l/future"].columns) == (right, left)
    assert of["source_attention/r2l"].predicted == (*(["<r2l>"] if predict_tag else []), *BACKWARDS)
    assert of["source_attention/r2l"].weights.shape == (2, 2 + more, 3)
    assert of["self_attention/r2l/future"].kind == "future"


def test_a_dual_contextual_module_has_a_map_of_its_local_heads_and_one_of_its_global_ones():
    words = attention.sentence_of(model(), SOURCE, [TARGET])
    source, target = weights(3, 3, heads=4), weights(4, 4, heads=4)
    found = read({"encoder/layer_1/dual_context": source, "decoder/layer_0/dual_context": target}, words)
    names = [f"{place}/dual_context/{which}_context" for place in ("encoder/layer_1", "decoder/layer_0")
             for which in ("local", "global")]  # fmt: skip
    assert list(found) == names
    np.testing.assert_array_equal(found[names[0]].weights, source[0, :2])
    np.testing.assert_array_equal(found[names[3]].weights, target[0, 2:])
    assert [each.kind for each in found.values()] == ["encoder", "encoder", "self", "self"]
    assert [each.title for each in found.values()] == [
        "Local context attention, encoder layer 2",
        "Global attention, encoder layer 2",
        "Local context attention, decoder layer 1",
        "Global attention, decoder layer 1",
    ]
    own = found[names[2]]
    assert own.rows == own.columns == ("<start>", "the", "house", "is")
    assert own.hidden[0].tolist() == [False, True, True, True]
    chosen = Choice(kinds=("self",), heads="2").of(list(found.values()))
    assert [(each.part, head) for each, head in chosen] == [("local_context", 1), ("global_context", 1)]


def test_a_backward_decoder_is_known_by_what_its_states_wrote():
    words = attention.sentence_of(model(), SOURCE, [TARGET, BACKWARDS])
    found = read(
        {
            "decoder/layer_0/backward_attention/future": weights(4, 4),
            "backward_decoder/layer_0/self_attention/r2l": weights(4, 4),
        },
        words,
    )
    forward = found["decoder/layer_0/backward_attention/future"]
    assert (forward.kind, forward.side, forward.columns) == ("backward", "l2r", tuple(BACKWARDS))
    backward = found["backward_decoder/layer_0/self_attention/r2l"]
    assert (backward.rows, backward.side, backward.stack) == (("<start>", "house"), "r2l", "backward_decoder")


def test_a_right_to_left_model_starts_without_a_word():
    words = attention.sentence_of(model(target_direction="r2l"), SOURCE, [BACKWARDS])
    (found,) = attention.read_maps({"decoder/layer_0/self_attention": weights(2, 2)}, words)
    assert (found.rows, found.side) == (("<start>", "house"), "r2l")


def test_what_is_not_over_positions_is_left_out():
    words = attention.sentence_of(model(), SOURCE, [TARGET])
    odd = {"decoder/layer_0/gates": weights(4, 2), "something": weights(4, 4), "decoder/layer_0/mean": tf.zeros([4, 3])}
    assert attention.read_maps(odd, words) == []


def test_strongest_links():
    links = list(attention.strongest(np.array([[0.1, 0.6, 0.3], [1.0, 0.0, 0.0]]), 2))
    assert links[0] == [(1, 0.6), (2, 0.3)]
    assert links[1] == [(0, 1.0)]  # weights of 0 are no links


@pytest.fixture
def maps():
    words = attention.sentence_of(model(), SOURCE, [TARGET])
    found = {f"encoder/layer_{i}/self_attention": weights(3, 3) for i in range(2)}
    for i in range(3):
        found[f"decoder/layer_{i}/self_attention"] = weights(4, 4, heads=4)
        found[f"decoder/layer_{i}/source_attention"] = weights(4, 3, heads=4)
    return attention.read_maps(found, words)


def test_choices(maps):
    def names(**choice):
        return [(each.name, head) for each, head in Choice(**choice).of(maps)]

    assert [name for name, _ in names()] == [
        f"decoder/layer_{i}/{kind}" for kind in ("source_attention", "self_attention") for i in range(3)
    ]
    assert names(kinds=("self",), layers="1,3", heads="2,4") == [
        (f"decoder/layer_{layer}/self_attention", head) for layer in (0, 2) for head in (1, 3)
    ]
    assert names(kinds=("encoder",), heads="all")[:2] == [("encoder/layer_0/self_attention", i) for i in (0, 1)]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"kinds": ("mixed",)}, "no mixed attention; it has: encoder, self, source"),
        ({"layers": "4"}, "--layers=4: 4 is outside of the 3 layers"),
        ({"layers": "x"}, r"--layers=x: 'x' is no layer: write all, 1-6, or 1,3-4\.$"),
        ({"heads": "5"}, "--heads=5: 5 is outside of the 4 heads"),
        ({"heads": "first"}, "'first' is no head: write mean, all,"),
        ({"direction": "r2l"}, "this model generates l2r only"),
        ({"layers": ""}, "names none"),
    ],
)
def test_choices_that_the_model_does_not_have(maps, choice, message):
    with pytest.raises(UserError, match=message):
        Choice(**choice).of(maps)


def test_pictures_are_drawn(maps):
    assert tf.image.decode_png(drawing.head_picture(maps[-1], None, 1.0)).shape[2] == 4
