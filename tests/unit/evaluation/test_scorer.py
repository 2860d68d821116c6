"""Tests that translations and references are compared in the same form for every protocol and kind of data."""

import dataclasses
import types

import pytest

from t2t_ext.data.text import text_container
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.evaluation.run_texts import RunTexts
from t2t_ext.evaluation.scorer import PartScorer, Scorer


@dataclasses.dataclass(frozen=True)
class Written:
    text: str
    prepared: str


@pytest.mark.parametrize("protocol", ["sacrebleu", "multi_bleu"])
@pytest.mark.parametrize(
    ("step", "raw"),
    [
        ("moses_tokenize", "That's the small house, isn't it?"),
        ("tokenized", "That &apos;s the small house , isn &apos;t it ?"),
    ],
)
def test_a_perfect_translation_has_100_bleu_whatever_the_data_are(tiny_encoder, step, raw, protocol):
    steps = TextSteps((step,), "en")
    encoder = SubwordEncoder.make(steps, text_container.read(tiny_encoder.model_bytes, "test")[1])
    (prepared,) = encoder.prepare([raw])
    (text,) = encoder.restore([prepared])
    assert (text, prepared) == ("That's the small house, isn't it?", "That &apos;s the small house , isn &apos;t it ?")
    (score, *_) = Scorer([protocol], [[raw]], encoder, language="en").scores([Written(text, prepared)])
    assert score.value == pytest.approx(100.0)
    parts = PartScorer([protocol], encoder, language="en")
    for _ in range(2):
        parts.add([Written(text, prepared)], [[raw]])
    (((score, *_), _),) = parts.by_protocol()
    assert score.value == pytest.approx(100.0)


@pytest.mark.parametrize("asked", [{"scoring": "chrf"}, {"tokenize": "13a"}])
def test_protocols_that_are_not_asked_for_need_no_package(tiny_encoder, without_package, asked):
    """A summary's own protocol is ROUGE, whose package may be missing where other scores are asked for."""
    without_package("rouge_score")
    texts = RunTexts(None, **asked)
    texts.problem = types.SimpleNamespace(scoring="rouge")
    scorer = texts.scorer(tiny_encoder)
    scorer.add([Written("a b", "a b")], [["a b"]])
    assert len(list(texts.scores(scorer))) == 1
    usual = RunTexts(None)
    usual.problem = texts.problem
    with pytest.raises(UserError, match="rouge"):
        usual.scorer(tiny_encoder)
