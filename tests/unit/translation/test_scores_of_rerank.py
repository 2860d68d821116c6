"""Tests of which log-probabilities reranking uses, with two stand-ins for translators and without TensorFlow."""

import types

import pytest

from t2t_ext.errors import UserError
from t2t_ext.translation.hypothesis import Hypothesis
from t2t_ext.translation.rerank import Reranker, check_runs

SEARCHED, FORCED = -1.0, -3.0


def translator(direction, shortlist):
    ids = (7, 8, 1) if direction == "l2r" else (8, 7, 1)
    found = Hypothesis("x", SEARCHED, 3, SEARCHED, True, ids, direction=direction)
    return types.SimpleNamespace(
        model=types.SimpleNamespace(directions=1),
        target_direction=direction,
        samples=False,
        shortlist=shortlist,
        target_encoder=types.SimpleNamespace(ids_sha256="same"),
        translate=lambda lines, progress: [[found] for _ in lines],
        score_ids=lambda lines, ids, progress: [
            [types.SimpleNamespace(log_prob=FORCED) for _ in of_line] for of_line in ids
        ],
    )


@pytest.mark.parametrize(("shortlist", "expected"), [(None, SEARCHED), ("candidates", FORCED)])
def test_scores_among_the_candidates_of_a_shortlist_do_not_count(shortlist, expected):
    reranker = Reranker(translator("l2r", shortlist), translator("r2l", None))
    ((only,),) = reranker.rerank(["a line"])
    assert only.log_probs == {"l2r": expected, "r2l": SEARCHED}
    assert only.ranks == {"l2r": 0, "r2l": 0}


def test_a_translation_without_a_probability_is_not_ranked():
    l2r = translator("l2r", "candidates")
    l2r.score_ids = lambda lines, ids, progress: [[types.SimpleNamespace(log_prob=float("nan"))] for _ in ids]
    with pytest.raises(UserError, match=r"Line 1: the log-probability that the l2r model gives a translation is nan"):
        Reranker(l2r, translator("r2l", None)).rerank(["a line"])


def test_other_vocabularies_are_to_be_made_from_the_run_that_is_there():
    def run(path, direction):
        encoder = types.SimpleNamespace(ids_sha256=path)
        config = types.SimpleNamespace(hparams={"target_direction": direction}, vocabularies={"target": path})
        hparams = types.SimpleNamespace(directions=1)
        return types.SimpleNamespace(
            path=path, config=config, hparams=lambda: hparams, text_encoders=lambda: (encoder, encoder)
        )

    with pytest.raises(UserError, match="--vocab_from=forwards"):
        check_runs(run("forwards", "l2r"), run("backwards", "r2l"))
