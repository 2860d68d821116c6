"""Tests that texts given in parts get sacrebleu's scores of the whole, although only counts of segments are kept."""

import random

import numpy as np
import pytest

from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols, segment_counts
from t2t_ext.evaluation.segment_counts import PartByPart, SegmentCounts

_WORDS = ["the", "cat", "sat", "on", "a", "mat", ",", "and", "dogs", "ran", ".", "12", "x-y"]


@pytest.fixture(scope="module")
def texts():
    """Returns translations and two sets of references."""
    rng = random.Random(1)
    rows = [[" ".join(rng.choices(_WORDS, k=rng.randrange(9))) for _ in range(41)] for _ in range(3)]
    return rows[0], rows[1:]


def parts_of(name):
    """Returns a scorer that takes the texts part by part and scores them by a protocol."""
    protocol = protocols.protocol(name)
    return PartByPart(protocol.metrics, protocol.references)


@pytest.mark.parametrize("name", ["sacrebleu", "chrf++", "ter", "mteval_v13a", "t2t_intl", "multi_bleu_uc"])
def test_parts_score_as_sacrebleu_scores_all(texts, name, monkeypatch):
    monkeypatch.setattr(segment_counts, "_SEGMENTS_AT_ONCE", 6)
    hypotheses, references = texts
    expected = []
    for metric in protocols.protocol(name).metrics(references).values():
        found = metric.corpus_score(hypotheses, None, n_bootstrap=15)
        expected.append((found.score, found._ci, found._mean, metric.get_signature().format()))
    parts = parts_of(name)
    for start, end in ((0, 10), (10, 11), (11, 41)):
        parts.add(hypotheses[start:end], [iter(each[start:end]) for each in references])
    scores = parts.scores(15)
    assert [(each.value, each.confidence, each.mean, each.signature) for each in scores] == expected
    plain = protocols.score(name, hypotheses, references)
    assert [(each.name, each.value, each.details) for each in plain] == [
        (each.name, each.value, each.details) for each in scores
    ]


@pytest.mark.parametrize("name", ["sacrebleu", "chrf", "ter"])
def test_empty_lines_that_fill_up_a_set_are_no_references(name, monkeypatch):
    monkeypatch.setattr(segment_counts, "_SEGMENTS_AT_ONCE", 2)
    hypotheses = ["a cat", "dogs ran", "the mat sat on", "a dog", "x y"]
    filled = [["a cat sat on a mat", "dogs ran far", "the mat", "dogs", "x"], ["the cat", "", "", "a dog", "z"]]
    given = [filled[0], [text or None for text in filled[1]]]
    parts = parts_of(name)
    parts.add(hypotheses, filled)
    for score, metric in zip(parts.scores(), protocols.protocol(name).metrics(filled).values(), strict=True):
        assert "nrefs:var|" in score.signature  # even if all segments of the last part have two
        assert score.signature == str(metric.get_signature())
        assert score.value == metric.corpus_score(hypotheses, given).score


def test_only_counts_are_kept(texts, monkeypatch):
    monkeypatch.setattr(segment_counts, "_SEGMENTS_AT_ONCE", 6)
    parts = parts_of("chrf")
    parts.add(texts[0], texts[1])
    assert len(parts._metrics["chrF2"]._ref_cache) == 6
    assert sum(part.nbytes for part in parts._counts["chrF2"]._parts) == 41 * 18 * 4


def test_nothing_to_score():
    with pytest.raises(UserError, match="nothing to score"):
        parts_of("chrf").scores()


def test_counts_are_rows_of_numbers_as_they_were():
    counts = SegmentCounts()
    rows = [[1, 2], [3, 4], [2**40, 5]]
    counts.add(rows[:2])
    counts.add(rows[2:])
    assert (len(counts), list(counts), [counts[i] for i in range(3)]) == (3, rows, rows)
    assert all(type(value) is int for row in counts for value in row)
    assert np.array(counts, dtype="float32").tolist() == np.array(rows, dtype="float32").tolist()
