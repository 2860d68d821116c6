"""All ways to translate agree: a line's result depends neither on batch or order nor on the interface."""

import itertools
import random

import numpy as np
import pytest

TIE = 1e-4  # hypotheses whose scores are closer than this may change places


@pytest.fixture(scope="module")
def lines(toy_corpus):
    """Gives lines of many lengths; some have characters that the encoder has never seen, one is empty."""
    texts = [source for source, _ in toy_corpus.dev[:17]]
    return [*texts, "", "the", "ÄΩ漢字 🙂", "cat " * 12, texts[0], "  two  blanks ", "."]


def limit_of(encoder, line, ratio=1.5, offset=20):
    """Returns the most tokens of a line's translation: the line's subwords times the ratio, plus the offset."""
    return int(ratio * len(encoder.encode(line))) + offset


def equal_but_for_ties(one, other):
    """Asserts that two results of `translate` for the same lines agree, except for ties."""
    for first, second in zip(one, other, strict=True):
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            assert a.score == pytest.approx(b.score, abs=TIE)
        if [a.text for a in first] != [b.text for b in second]:
            # Allowed only if neighbors tie.
            scores = [a.score for a in first]
            gaps = [abs(x - y) for x, y in itertools.pairwise(scores)]
            assert gaps, "the only hypothesis differs and its score was no tie"
            assert min(gaps) < TIE


@pytest.fixture(scope="module")
def nbest(make_translator):
    return make_translator(beam_size=4, num_hypotheses=4)


@pytest.fixture(scope="module")
def translated(nbest, lines):
    return nbest.translate(lines)


def test_outputs_vary(translated):
    """Translations vary; otherwise the tests below would also pass for a translator with constant output."""
    assert len({hypotheses[0].text for hypotheses in translated}) > len(translated) // 2
    assert len({hypotheses[0].length for hypotheses in translated}) > 3


def test_batch_size_is_irrelevant(make_translator, lines, translated):
    one_by_one = make_translator(beam_size=4, num_hypotheses=4, batch_size=1).translate(lines)
    equal_but_for_ties(one_by_one, translated)


def test_order_is_irrelevant(nbest, lines, translated):
    order = list(range(len(lines)))
    random.Random(1).shuffle(order)
    shuffled = nbest.translate([lines[i] for i in order])
    back = [shuffled[order.index(i)] for i in range(len(lines))]
    equal_but_for_ties(back, translated)


def test_repeated_lines_and_calls_agree(nbest, lines, translated):
    equal_but_for_ties(nbest.translate(lines[:3] * 2), translated[:3] * 2)
    assert nbest([]) == []
    assert nbest(lines[:3]) == [hypotheses[0].text for hypotheses in translated[:3]]


def test_graph_functions_agree_with_the_translator(nbest, lines, translated):
    import tensorflow as tf

    best = nbest.search_batch(tf.constant(lines), num_hypotheses=1)
    many = nbest.search_batch(tf.constant(lines))
    texts = np.vectorize(bytes.decode)(many["outputs"].numpy())
    for row, hypotheses in enumerate(translated):
        assert best["scores"].numpy()[row, 0] == pytest.approx(hypotheses[0].score, abs=TIE)
        count = len(hypotheses)  # 1 for an empty line
        assert many["scores"].numpy()[row, :count] == pytest.approx([h.score for h in hypotheses], abs=TIE)
        assert many["lengths"].numpy()[row, :count].tolist() == [h.length for h in hypotheses]
        assert texts[row, :count].tolist() == [h.text for h in hypotheses]
        assert best["outputs"].numpy()[row, 0].decode() == hypotheses[0].text


def test_hypotheses_are_sorted_distinct_and_penalized(translated, lines):
    for line, hypotheses in zip(lines, translated, strict=True):
        if not line:
            assert all((h.text, h.score, list(h.ids)) == ("", 0.0, []) for h in hypotheses)
            continue
        assert 1 <= len(hypotheses) <= 4
        finished = [h.finished for h in hypotheses]
        assert finished == sorted(finished, reverse=True)
        for kind in (True, False):
            scores = [h.score for h in hypotheses if h.finished == kind]
            assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            assert h.score == pytest.approx(h.log_prob / ((5 + h.length) / 6) ** 0.6, abs=1e-5)


def test_only_words_are_produced_and_limits_hold(translated, lines, tiny_encoder):
    forbidden = {0, *tiny_encoder.control_ids}
    assert len({h.finished for hypotheses in translated for h in hypotheses}) == 2
    for line, hypotheses in zip(lines, translated, strict=True):
        for h in hypotheses if line else []:
            ids = list(h.ids)
            assert not forbidden & set(ids)
            assert 1 not in ids[:-1]
            assert h.finished == (ids[-1] == 1)
            assert len(ids) == h.length <= limit_of(tiny_encoder, line)
            assert h.finished or h.length == limit_of(tiny_encoder, line)
            assert h.text == tiny_encoder.decode([i for i in ids if i != 1])


@pytest.mark.parametrize(
    "options", [{"length_limit": "extra", "extra_length": 2}, {"max_length_offset": 1, "max_length_ratio": 0.5}]
)
def test_other_limits_hold(make_translator, lines, tiny_encoder, options):
    for line, (h,) in zip(lines, make_translator(beam_size=2, **options).translate(lines), strict=True):
        source = len(tiny_encoder.encode(line))
        limit = source + 1 + 2 if "length_limit" in options else int(0.5 * source) + 1
        assert not line or h.length <= limit


@pytest.mark.parametrize("penalty", [{}, {"length_penalty": "len_power", "alpha": 1.0}])
def test_the_score_of_a_translation_is_its_forced_score(make_translator, lines, penalty):
    """Scoring the ids that the search chose gives the search's score; the text might be split into other subwords."""
    translator = make_translator(beam_size=4, num_hypotheses=2, **penalty)
    checked = 0
    for line, hypotheses in zip(lines, translator.translate(lines), strict=True):
        for h in hypotheses:
            if not line or not h.finished:
                continue
            ((forced,),) = translator.score_ids([line], [[h.ids]])
            assert forced.log_prob == pytest.approx(h.log_prob, abs=TIE)
            assert forced.score == pytest.approx(h.score, abs=TIE)
            assert forced.length == h.length
            checked += 1
    assert checked > 10


def log_softmax(logits):
    """Returns the log-softmax over the last axis, in float64."""
    logits = logits.astype(np.float64)
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def ids_of(encoder, texts):
    """Returns the ids of the texts, int32 [rows, longest], with EOS in every row."""
    rows = [[*encoder.encode(text), 1] for text in texts]
    ids = np.zeros([len(rows), max(map(len, rows))], np.int32)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


def test_scores_of_pairs_are_the_models(make_translator, tiny_model, tiny_encoder, toy_corpus):
    pairs = [*toy_corpus.dev[:9], ("the cat", ""), ("the", "ÄΩ漢字 🙂")]
    scores = make_translator(batch_size=4).score(pairs)
    sources, targets = (ids_of(tiny_encoder, column) for column in zip(*pairs, strict=True))
    log_probs = log_softmax(tiny_model(sources, targets).numpy())
    for row, score in enumerate(scores):
        length = int((targets[row] != 0).sum())
        expected = [log_probs[row, t, targets[row, t]] for t in range(length)]
        assert score.length == length
        assert list(score.token_log_probs) == pytest.approx(expected, abs=TIE)
        assert score.log_prob == pytest.approx(sum(expected), abs=TIE)
        assert score.score == pytest.approx(score.log_prob / ((5 + length) / 6) ** 0.6, abs=TIE)


def test_a_beam_of_one_takes_the_best_token_at_every_step(make_translator, tiny_model, tiny_encoder, lines):
    forbidden = [0, 2, *tiny_encoder.control_ids]
    found = make_translator(beam_size=1).translate(lines)
    assert len({h.finished for (h,) in found}) == 2
    for line, (h,) in zip(lines, found, strict=True):
        if not line:
            continue
        logits = tiny_model(ids_of(tiny_encoder, [line]), np.array([h.ids], np.int32)).numpy()[0]
        logits[:, forbidden] = -np.inf
        for step, token in zip(logits, h.ids, strict=True):
            assert step[token] >= step.max() - TIE
        assert h.finished or h.length == limit_of(tiny_encoder, line)


def test_right_to_left_output_is_turned_back(make_translator, tiny_encoder, lines, translated):
    backward = make_translator(beam_size=4, target_direction="r2l").translate(lines)
    turned = 0
    for f, b in zip(translated, backward, strict=True):
        assert list(f[0].ids) == list(b[0].ids), "ids are in the model's direction"
        words = [i for i in b[0].ids if i != 1]
        assert b[0].text == tiny_encoder.decode(words[::-1])
        turned += b[0].text != f[0].text
    assert turned > len(lines) // 2


def test_right_to_left_scores_are_of_the_turned_target(make_translator, tiny_model, tiny_encoder, toy_corpus):
    source, target = toy_corpus.dev[0]
    (score,) = make_translator(target_direction="r2l").score([(source, target)])
    ids = np.array([[*tiny_encoder.encode(target)[::-1], 1]], np.int32)
    log_probs = log_softmax(tiny_model(ids_of(tiny_encoder, [source]), ids).numpy())[0]
    expected = [log_probs[t, token] for t, token in enumerate(ids[0])]
    assert score.log_prob == pytest.approx(sum(expected), abs=TIE)
    assert list(score.token_log_probs) == pytest.approx([*expected[:-1][::-1], expected[-1]], abs=TIE)


def test_empty_lines_stay_empty_and_in_their_places(nbest, lines):
    mixed = ["", lines[0], "", lines[1], ""]
    texts = nbest(mixed)
    assert [not text for text in texts] == [True, False, True, False, True]
    assert texts[1::2] == nbest(lines[:2])
    assert nbest(["", ""]) == ["", ""]


def test_a_very_long_line_is_survived(make_translator, lines):
    translator = make_translator(beam_size=2, max_input_length=64, max_length_ratio=0.2)
    long_line = "the old cat sees the lamp . " * 2000
    texts = translator([lines[0], long_line, lines[1]])
    assert translator.truncated_lines == 1
    assert texts[0] == translator([lines[0]])[0]
    assert translator.truncated_lines == 0
    assert texts[2] == translator([lines[1]])[0]
    assert isinstance(texts[1], str)


def test_odd_characters_are_survived(nbest):
    odd = ["\u2028", "a\tb", "\ufeff", "\x00x", "🙂" * 3, "\r", "<l2r> <pad> </s>", " "]
    assert len(nbest(odd)) == len(odd)


def test_a_single_string_is_refused(nbest):
    from t2t_ext.errors import UserError

    with pytest.raises((UserError, TypeError)):
        nbest("the cat")
