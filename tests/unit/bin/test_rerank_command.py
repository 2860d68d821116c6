"""Tests of the lines that t2t_ext-rerank counts in a window, with stand-ins for the models and no TensorFlow."""

import types

import pytest

from t2t_ext.bin import rerank
from t2t_ext.errors import UserError
from t2t_ext.translation.rerank import Candidate


def _candidates(*ids):
    return [Candidate("x", "x", ids, {"l2r": -1.0, "r2l": -1.0}, -2.0, {"l2r": 0})]


def test_the_output_of_a_folder_is_beside_it():
    assert rerank._default_output("fold/images/") == "fold/images.reranked"
    assert rerank._default_output("in.txt") == "in.txt.reranked"
    assert rerank._default_output("-") == "-"


def test_lines_that_are_truncated_or_empty_or_not_translated_are_counted():
    reranker = types.SimpleNamespace(
        l2r=types.SimpleNamespace(truncated_line_numbers=(2,), untranslated_line_numbers=(1, 3)),
        r2l=types.SimpleNamespace(truncated_line_numbers=(1, 2), untranslated_line_numbers=(3,)),
        rerank=lambda lines, passes: [_candidates(5, 1), _candidates(1), _candidates()],
    )
    found = rerank._Found(None, reranker, [])
    for _ in range(2):
        found.add(["a", "b", "c"], None, None)
    assert found.truncated.first == [1, 2, 4, 5]
    assert found.empty.first == [2, 5]
    assert found.untranslated.first == [3, 6]  # lines for which neither model has a translation


def _search_of(*flags):
    """Returns the decode hparams of both searches."""
    return rerank._settings(rerank.build_parser().parse_args(["--l2r=A", "--r2l=B", *flags]))[1]


@pytest.mark.parametrize(
    ("flags", "beam"),
    [([], 10), (["--k=6"], 6), (["--k=6", "--decode_hparams=beam_size=8"], 8), (["--k=4"], 4)],
)
def test_the_beam_is_k_or_wider(flags, beam):
    found = _search_of(*flags)
    assert (found.beam_size, found.num_hypotheses) == (beam, int(flags[0][4:]) if flags else 10)


def test_groups_divide_the_beam_of_k():
    """The groups must divide the beam that is searched with, not the default of other commands."""
    assert _search_of("--k=9", "--decode_hparams=diverse_groups=3").beam_size == 9
    with pytest.raises(UserError, match="beam_size=9 is not a multiple of diverse_groups=4"):
        _search_of("--k=9", "--decode_hparams=diverse_groups=4")
    with pytest.raises(UserError, match="--k=9 translations are more than beam_size=8 finds"):
        _search_of("--k=9", "--decode_hparams=diverse_groups=4,beam_size=8")
