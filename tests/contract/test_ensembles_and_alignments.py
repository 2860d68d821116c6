"""Compares ensembles and alignments of the Translator with results computed directly from the models."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "golden"))
from numpy_alignment import links, surface

from t2t_ext.errors import UserError

LINES = ["the old cat sees the lamp .", "the city loves the small flower today .", "", "x \u2603  y", "the"]
TIE = 2e-4


@pytest.fixture(scope="module")
def other_model(tiny_model):
    """Gives another model with the same vocabulary: wider, one layer fewer, other weights."""
    from random_weights import random_arrays

    from t2t_ext import registry

    size = tiny_model.target_vocab_size
    hparams = tiny_model.hparams.replace(hidden_size=24, num_heads=3, num_decoder_layers=1)
    model = registry.model("transformer")(hparams, source_vocab_size=size, target_vocab_size=size)
    model.build()
    model.assign(random_arrays(model, seed=8, scale=2.0))
    return model


def translator_of(model, encoder, target_direction="l2r", alignment=None, **decode_hparams):
    from t2t_ext.config.decode import DecodeHParams
    from t2t_ext.translation.translator import Translator

    settings = {"max_length_offset": 8, "max_length_ratio": 1.0, **decode_hparams}
    return Translator(model, encoder, encoder, DecodeHParams(**settings), target_direction, alignment)


@pytest.fixture(scope="module")
def together(tiny_model, other_model, tiny_encoder):
    from t2t_ext.models.ensemble import Ensemble

    return translator_of(Ensemble([tiny_model, other_model], (1, 3)), tiny_encoder, num_hypotheses=2)


def log_probs_of(model, source, ids):
    """Returns log P [T] of the ids of one sentence, from the model's logits."""
    logits = model(np.array([source], np.int32), np.array([ids], np.int32)).numpy()[0].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    rows = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return rows[np.arange(len(ids)), list(ids)]


def test_an_ensemble_reports_the_mean_probability(together, tiny_model, other_model, tiny_encoder):
    found = together.translate(LINES)
    for line, hypotheses in zip(LINES, found, strict=True):
        for hypothesis in hypotheses if line else ():
            source = [*tiny_encoder.encode(line), 1]
            members = [np.exp(log_probs_of(model, source, hypothesis.ids)) for model in (tiny_model, other_model)]
            expected = np.log(0.25 * members[0] + 0.75 * members[1]).sum()
            assert hypothesis.log_prob == pytest.approx(expected, abs=TIE)
    assert [row[0].text for row in found] != translator_of(tiny_model, tiny_encoder)(LINES)
    pairs = [(line, "die alte Katze") for line in LINES]
    ids = [*tiny_encoder.encode(pairs[0][1]), 1]
    for (line, _), score in zip(pairs, together.score(pairs), strict=True):
        source = [*tiny_encoder.encode(line), 1]
        members = [np.exp(log_probs_of(model, source, ids)) for model in (tiny_model, other_model)]
        expected = np.log(0.25 * members[0] + 0.75 * members[1])
        np.testing.assert_allclose(score.token_log_probs, expected, atol=TIE)


def test_a_model_with_itself_is_the_model(tiny_model, tiny_encoder):
    from t2t_ext.models.ensemble import Ensemble

    settings = {"beam_size": 3, "num_hypotheses": 3, "coverage_penalty": 0.2}  # coverage also needs attention
    alone = translator_of(tiny_model, tiny_encoder, **settings).translate(LINES)
    twice = translator_of(Ensemble([tiny_model] * 2), tiny_encoder, **settings).translate(LINES)
    for left, right in zip(alone, twice, strict=True):
        assert [h.ids for h in left] == [h.ids for h in right]
        assert [h.score for h in left] == pytest.approx([h.score for h in right], abs=TIE)


# === Alignments ===


def attention_of(model, source, ids, layer):
    """Returns the cross-attention of a layer, [T, S], averaged over the heads."""
    weights = model.attention_weights(np.array([source], np.int32), np.array([ids], np.int32))
    return weights[f"decoder/layer_{layer}/source_attention"].numpy()[0].mean(axis=0)


def expected_links(encoder, attention, source, ids, *, backward=False):
    """Returns the oracle's alignment line for ids in the model's direction, including EOS."""
    control = (0, 1, *encoder.control_ids)
    order = [i for i, token in enumerate(ids) if token not in (0, 1)]
    order = order[::-1] if backward else order
    sides = [
        [surface(piece, index in control) for index, piece in zip(side, encoder.pieces(side), strict=True)]
        for side in (source, [ids[i] for i in order])
    ]
    return links(attention[order], *sides)


PAIRS = [
    ("the old cat sees the lamp .", "die alte Katze sieht die Lampe ."),
    ("the  cat \t sees ", " die\u3000Katze  \u2603\u2603 sieht"),
    ("", "die"),
    ("the", ""),
    ("  ", " "),
    ("the old cat " * 30, "die alte Katze " * 20),
]


@pytest.mark.parametrize("direction", ["l2r", "r2l"])
def test_given_translations(tiny_model, tiny_encoder, direction):
    translator = translator_of(tiny_model, tiny_encoder, direction, max_input_length=40)
    found = translator.align(PAIRS)
    assert translator.truncated_line_numbers == (6,)
    for (source, target), line in zip(PAIRS, found, strict=True):
        source_ids, ids = ([*tiny_encoder.encode(text)[:40], 1] for text in (source, target))
        ids = [*ids[:-1][::-1], 1] if direction == "r2l" else ids
        attention = attention_of(tiny_model, source_ids, ids, 0)
        assert line == expected_links(tiny_encoder, attention, source_ids, ids, backward=direction == "r2l")
    assert found[2:5] == ["", "", ""]
    words = [[int(link.split("-")[1]) for link in line.split()] for line in found[:2]]
    assert words == [list(range(len(target.encode().split()))) for _, target in PAIRS[:2]]


@pytest.mark.parametrize("direction", ["l2r", "r2l"])
def test_found_translations(tiny_model, tiny_encoder, direction):
    """Alignments of the search's hypotheses equal the oracle's, also if the length limit has cut them before EOS."""
    translator = translator_of(tiny_model, tiny_encoder, direction, num_hypotheses=3, batch_size=4)
    results = translator.translate(LINES)
    assert len({h.finished for row in results for h in row}) == 2
    found = translator.align_hypotheses(LINES, results)
    assert [len(row) for row in found] == [3 if line else 1 for line in LINES]
    for line, hypotheses, alignments in zip(LINES, results, found, strict=True):
        source = [*tiny_encoder.encode(line), 1]
        for hypothesis, alignment in zip(hypotheses, alignments, strict=True):
            if not line:
                assert alignment == ""
                continue
            attention = attention_of(tiny_model, source, hypothesis.ids, 0)
            backward = direction == "r2l"
            assert alignment == expected_links(tiny_encoder, attention, source, hypothesis.ids, backward=backward)
            assert len(alignment.split()) == len(hypothesis.text.encode().split())


def test_an_ensemble_aligns_with_the_mean_attention(together, tiny_model, other_model, tiny_encoder):
    source, target = PAIRS[0]
    source_ids, ids = ([*tiny_encoder.encode(text), 1] for text in (source, target))
    attention = [attention_of(model, source_ids, ids, 0) for model in (tiny_model, other_model)]
    expected = expected_links(tiny_encoder, 0.25 * attention[0] + 0.75 * attention[1], source_ids, ids)
    assert together.align([(source, target)]) == [expected]


def test_a_layer_that_is_not_there_is_found_out_early(tiny_model, tiny_encoder):
    from t2t_ext.translation.alignment import AlignmentConfig

    translator = translator_of(tiny_model, tiny_encoder, alignment=AlignmentConfig(layer=7))
    assert not translator.can_align
    with pytest.raises(UserError, match="--alignment_layer=7: the decoder has 2 layers"):
        translator.check_alignment()
