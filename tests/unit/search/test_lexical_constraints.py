"""Tests of phrases as strings: reading, counting, and phrases that cannot be met. tests/golden tests the search."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def encode(tiny_encoder):
    """Returns a function (lines, limits) -> Phrases as NumPy arrays, for a left-to-right and a reversed direction."""
    import tensorflow as tf

    from t2t_ext.data.text.graph_text_encoder import GraphSubwordEncoder
    from t2t_ext.search.lexical_constraints import encode_phrases

    encoder = GraphSubwordEncoder(tiny_encoder.model_bytes)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32)], autograph=False)
    def function(lines, limits):
        return encode_phrases(lines, lambda strings: encoder.encode(strings)[:, :-1], limits, (False, True))

    def run(lines, limits=None):
        limits = [50] * len(lines) if limits is None else limits
        phrases = function(tf.constant(lines, tf.string), tf.constant(limits, tf.int32))
        return type(phrases)(*(part.numpy() for part in phrases))

    return run


def ids_of(phrases, sentence, direction=0):
    return [
        list(map(int, tokens[:length]))
        for tokens, length in zip(phrases.tokens[sentence, direction], phrases.lengths[sentence], strict=True)
        if length
    ]


def test_phrases_are_encoded_as_text_is(encode, tiny_encoder):
    found = encode(["die alte Katze\tLampe", "", "Blume"])
    expected = [
        [tiny_encoder.encode("die alte Katze"), tiny_encoder.encode("Lampe")],
        [],
        [tiny_encoder.encode("Blume")],
    ]
    assert [ids_of(found, sentence) for sentence in range(3)] == expected
    backward = [[ids[::-1] for ids in row] for row in expected]
    assert [ids_of(found, sentence, 1) for sentence in range(3)] == backward
    assert list(found.impossible) == [0, 0, 0]


def test_whitespace_and_empty_phrases(encode, tiny_encoder):
    found = encode(["\t  die Katze \t\t \tTür\t", " ", "\t"])
    assert ids_of(found, 0) == [tiny_encoder.encode("die Katze"), tiny_encoder.encode("Tür")]
    assert ids_of(found, 1) == ids_of(found, 2) == []
    # The same as of the host, which strips by str.strip.
    found = encode(["\xa0die Katze\u3000\t\u2003\tTür\x85", "\u2028"])
    assert ids_of(found, 0) == [tiny_encoder.encode("die Katze"), tiny_encoder.encode("Tür")]
    assert ids_of(found, 1) == []


def test_the_same_phrase_again(encode):
    found = encode(["Katze\tTür\tKatze\tKatze", "Katze\tTür"])
    assert found.copies.tolist() == [[0, 0, 1, 2], [0, 0, -1, -1]]


def test_what_the_limit_cannot_hold_is_set_aside(encode, tiny_encoder):
    words = tiny_encoder.encode("die alte Katze")
    found = encode(["die alte Katze\tdie"] * 2, [len(words) + 1, len(words)])
    assert ids_of(found, 0) == [words, tiny_encoder.encode("die")]
    assert ids_of(found, 1) == [tiny_encoder.encode("die")]
    assert list(found.impossible) == [0, 1]


def test_what_the_vocabulary_cannot_spell_is_set_aside():
    """A phrase that encodes to UNK, as in a user's subword model without byte fallback, counts as impossible."""
    import tensorflow as tf

    from t2t_ext.data.text.text_encoder import UNK_ID
    from t2t_ext.search.lexical_constraints import encode_phrases

    found = encode_phrases(
        tf.constant(["a b\tc"]),
        lambda strings: tf.RaggedTensor.from_row_lengths([20, UNK_ID, 21], [2, 1]),
        tf.constant([50]),
        (False,),
    )
    assert found.tokens.numpy().tolist() == [[[[21]]]]
    assert found.impossible.numpy().tolist() == [1]


@pytest.mark.parametrize("lines", [[], [""], ["", ""]])
def test_no_phrases_at_all(encode, lines):
    found = encode(lines)
    assert found.tokens.shape == (len(lines), 2, 1, 1)
    assert not found.lengths.any()


def test_unmet_phrases_are_counted():
    """count_unmet equals a count in plain Python, on random sequences with many occurrences."""
    import tensorflow as tf

    from t2t_ext.search.lexical_constraints import count_unmet, make_phrases

    rng = np.random.default_rng(1)
    phrases = [[(2,), (2, 3), (3, 2, 2)], [], [(2, 2), (2, 2), (4,)], [(3, 3, 3, 3)]]
    tokens, lengths = np.zeros([4, 3, 4], np.int32), np.zeros([4, 3], np.int32)
    for b, row in enumerate(phrases):
        for c, phrase in enumerate(row):
            tokens[b, c, : len(phrase)], lengths[b, c] = phrase, len(phrase)
    ids = rng.integers(2, 5, size=[4, 30, 7]).astype(np.int32)
    directions = rng.integers(0, 2, size=[4, 30]).astype(np.int32)
    made = make_phrases(tf.constant(tokens), tf.constant(lengths), (False, True), tf.constant([0, 1, 0, 0]))
    found = count_unmet(made, tf.constant(ids), tf.constant(directions)).numpy()
    for b, row in enumerate(phrases):
        for n in range(30):
            text = tuple(map(int, ids[b, n]))[:: -1 if directions[b, n] else 1]
            places = [sum(text[i : i + len(phrase)] == phrase for i in range(7)) for phrase in row]
            wanted = [1 + row[:c].count(phrase) for c, phrase in enumerate(row)]
            unmet = sum(place < want for place, want in zip(places, wanted, strict=True))
            assert found[b, n] == unmet + (b == 1)


def test_banks_take_turns():
    import tensorflow as tf

    from t2t_ext.search.lexical_constraints import take_turns

    log_probs = tf.constant([[[-1.0, -2.0, -3.0, -4.0, -5.0, -1e9, -6.0]]])
    bank = tf.constant([[[0, 0, 0, 2, 2, 3, 1]]])
    assert take_turns(log_probs, bank, 7).numpy().tolist() == [[[3, 6, 0, 4, 1, 2, 5]]]
    assert take_turns(log_probs, bank * 0, 4).numpy().tolist() == [[[0, 1, 2, 3]]]


def test_an_empty_place_that_ends_with_pad_continues_no_phrase():
    """A hypothesis that does not exist may hold PAD, which is no part of a phrase shorter than another in the batch."""
    import tensorflow as tf

    from t2t_ext.search.lexical_constraints import advance, make_phrases, next_tokens, start_progress

    tokens = tf.constant([[[4, 4, 0], [4, 4, 0]], [[4, 4, 4], [0, 0, 0]]])
    phrases = make_phrases(tokens, tf.constant([[2, 2], [3, 0]]), (False,))
    progress = start_progress(phrases, 1)
    for token in (4, 4, 0):
        progress = advance(phrases, progress, tf.fill([2, 1, 1], token))
    assert next_tokens(phrases, progress).numpy().tolist() == [[[[0, 4, 0, 4]]], [[[4, 0, 4, 0]]]]
