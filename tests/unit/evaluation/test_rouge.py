"""Tests of ROUGE: the scores of rouge-score, separation of sentences, languages, and the commands that use it."""

import json
import random

import pytest

pytest.importorskip("rouge_score", reason="needs t2t_ext[summarization]")

from rouge_score import rouge_scorer

from t2t_ext.bin import bleu, compare
from t2t_ext.config.training import TrainingSettings
from t2t_ext.errors import UserError
from t2t_ext.evaluation import protocols, rouge
from t2t_ext.evaluation.segment_metrics import MeanOfSegments
from t2t_ext.training import dev_metrics

WORDS = ["the", "a", "man", "men", "runs", "running", "Londoner", "in", "won't", "1,000", ",", ".", "police-men"]
LABELS = ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"]


def summaries(seed, count=8):
    rng = random.Random(seed)
    return [[" ".join(rng.choices(WORDS, k=rng.randint(1, 7))) for _ in range(rng.randint(1, 3))] for _ in range(count)]


def marked(parts):
    return " ".join(f"<t> {part} </t>" for part in parts)


@pytest.mark.parametrize("stemmed", [True, False])
def test_the_numbers_are_those_of_rouge_score(stemmed):
    hypotheses, *references = summaries(1), summaries(2), summaries(3)
    found = protocols.score(
        "rouge" if stemmed else "rouge_unstemmed",
        [marked(each) for each in hypotheses],
        [[marked(each) for each in reference] for reference in references],
        n_bootstrap=50,
    )
    kinds = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(kinds, use_stemmer=stemmed)
    pairs = zip(hypotheses, *references, strict=True)
    scores = [
        scorer.score_multi(["\n".join(reference) for reference in them], "\n".join(mine)) for mine, *them in pairs
    ]
    assert [each.name for each in found] == LABELS
    for score, kind in zip(found, kinds, strict=True):
        assert score.value == pytest.approx(100 * sum(each[kind].fmeasure for each in scores) / len(scores))
        assert abs(score.mean - score.value) < 5
        assert score.confidence > 0
        assert "nrefs:2|bs:50|seed:12345|case:lc" in score.signature
        assert score.higher_is_better
    assert ("porter" in found[0].signature) == stemmed


def test_marks_are_no_words_and_tell_sentences_apart():
    # LCS of "a b" + "c d" and "c d" + "a b": each single sentence is found, but only half of the whole text.
    for first, second in (("<t> a b </t> <t> c d </t>", "<t> c d </t> <t> a b </t>"), ("a b <q> c d", "c d\na b")):
        one, two, whole, by_sentence = (each.value for each in protocols.score("rouge", [first], [[second]]))
        assert (one, whole, by_sentence) == (100, 50, 100)
        assert two == pytest.approx(100 * 2 / 3)
    assert rouge.sentences("<s> a </s> <s> b </s>") == ["a", "b"]
    # Entities that the Moses tokenizer has escaped do not become words, either.
    assert protocols.score("rouge", ["he &apos;s &amp; she"], [["he's she"]])[0].value == 100


def test_languages_that_rouge_score_does_not_read():
    german = ["Über Änderungen wird später entschieden"]
    assert protocols.score("rouge_unicode", german, [["über Änderungen entschieden"]])[0].value == pytest.approx(75)
    chinese = protocols.score("rouge_unicode", ["猫坐下"], [["猫躺下"]])
    assert chinese[0].value == pytest.approx(100 * 2 / 3)


def test_empty_references_count_only_where_there_is_no_other():
    hypotheses = ["a b", "a b", "a b"]
    references = [["a b", "", ""], ["x y", "a b", ""]]
    assert protocols.score("rouge", hypotheses, references)[0].value == pytest.approx(100 * 2 / 3)

    class Length(MeanOfSegments):
        def segment_score(self, hypothesis, info):
            return len(hypothesis) / 3 * len(info)

    metric = Length("length", references, signature={"what": "length"})
    assert metric.corpus_score(hypotheses, None, n_bootstrap=1).score == pytest.approx(100 * (2 + 1 + 1) / 3)
    assert "what:length" in metric.get_signature().format()


def test_commands(tmp_path, capsys):
    reference, first, second = tmp_path / "ref.txt", tmp_path / "a.jsonl", tmp_path / "b.txt"
    lines = [marked(each) for each in summaries(4, 12)]
    reference.write_text("".join(line + "\n" for line in lines))
    best = [{"hypotheses": [{"text": "no marks here", "prepared": line}]} for line in lines]
    first.write_text("".join(json.dumps(each) + "\n" for each in best))
    second.write_text("".join(marked(each) + "\n" for each in summaries(5, 12)))
    flags = [f"--translation={first}", f"--reference={reference}", "--protocol=rouge,chrf", "--n_bootstrap=20"]
    assert bleu.main(flags) == 0
    assert capsys.readouterr().out.count("rouge ROUGE-") == 4
    flags = [f"--reference={reference}", "--protocol=rouge", "--n_bootstrap=20", "--n_trials=50"]
    assert compare.main([*flags, f"--json={tmp_path / 'out.json'}", str(first), str(second)]) == 0
    scores = json.loads((tmp_path / "out.json").read_text())["scores"]
    assert [each["label"] for each in scores] == LABELS
    assert scores[3]["systems"]["a"]["value"] == pytest.approx(100)
    assert scores[3]["tests"][0]["difference"] < -1


def test_the_dev_set_is_scored_by_what_is_watched(without_package):
    settings = TrainingSettings(best_checkpoint_metric="ROUGE-L")
    assert dev_metrics.scored_by(settings, "sacrebleu") == ("sacrebleu", "rouge")
    assert dev_metrics.scored_by(settings, "rouge_unicode") == ("sacrebleu", "rouge_unicode")
    assert dev_metrics.scored_by(TrainingSettings(), "multi_bleu") == ("multi_bleu",)
    assert dev_metrics.scored_by(TrainingSettings(), "rouge") == ("sacrebleu", "rouge")
    watched = TrainingSettings(eval_early_stopping_metric="chrF2", eval_early_stopping_steps=5)
    assert dev_metrics.scored_by(watched, "rouge") == ("sacrebleu", "rouge", "chrf")
    with pytest.raises(UserError, match="ROUGE-L needs translations"):
        dev_metrics.check(TrainingSettings(best_checkpoint_metric="ROUGE-L", eval_bleu_sentences=-1))
    with pytest.raises(UserError, match="Did you mean 'ROUGE-L'"):
        dev_metrics.check(TrainingSettings(best_checkpoint_metric="ROUGE_L"))
    without_package("rouge_score")
    with pytest.raises(UserError, match=r"pip install 't2t_ext\[summarization\]'"):
        protocols.protocol("rouge")
    with pytest.raises(UserError, match="summarization"):
        dev_metrics.check(TrainingSettings(best_checkpoint_metric="ROUGE-2"))
