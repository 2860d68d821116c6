"""Tests of t2t_ext-rerank through the real command, compared with probabilities computed one pair at a time."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from t2t_ext.bin import rerank
from t2t_ext.data.corpora import text_lines
from t2t_ext.data.text.text_encoder import EOS_ID, PAD_ID
from t2t_ext.evaluation import protocols
from t2t_ext.translation.rerank import RerankConfig, Reranker, best_of, winners

LINES = ["the old cat sees the lamp .", "", "the city loves it", "☃ x"]
K = 4
SEARCH = f"beam_size={K},max_length_ratio=1.0,max_length_offset=8"  # short enough to truncate some translations


@pytest.fixture(scope="module")
def runs(tiny_run, tiny_model, tiny_encoder, tmp_path_factory):
    """Returns {direction: run of a tiny model}; translations have 1 to 20 tokens, and some are the same in both."""
    from random_weights import random_arrays

    from t2t_ext.runs import checkpoints, run_directory

    arrays = random_arrays(tiny_model, seed=13, scale=2.0)
    bias = arrays["decoder/final_norm/bias"]
    arrays["softmax/embeddings"][267:] += 3.0 * bias / np.dot(bias, bias)
    arrays["softmax/embeddings"][1] = 1.5 * arrays["softmax/embeddings"][1] + 6.0 * bias / np.dot(bias, bias)
    stored = run_directory.RunDirectory.open(tiny_run.path).config
    made = {}
    for direction, factor in (("l2r", 1.0), ("r2l", 0.9)):
        config = dataclasses.replace(stored, hparams={**stored.hparams, "target_direction": direction})
        folder = tmp_path_factory.mktemp(direction) / "run"
        run = run_directory.RunDirectory.create(folder, config, tiny_encoder, tiny_encoder)
        embeddings = factor * arrays["softmax/embeddings"]
        checkpoints.save_checkpoint(run.checkpoints_dir, 40, {**arrays, "softmax/embeddings": embeddings})
        made[direction] = run.path
    return made


@pytest.fixture(scope="module")
def models(runs):
    """Returns {direction: translator of its run}."""
    from t2t_ext.translation.translator import Translator

    return {
        direction: Translator.load(path, decode_hparams=f"{SEARCH},num_hypotheses={K}")
        for direction, path in runs.items()
    }


@pytest.fixture
def command(runs, capsys):
    """Returns t2t_ext-rerank on both runs as a function (flags...) -> (status, standard output, standard error)."""

    def run(*flags):
        status = rerank.main(
            [f"--l2r={runs['l2r']}", f"--r2l={runs['r2l']}", f"--k={K}", f"--decode_hparams={SEARCH}", *flags]
        )
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def log_prob(translator, line, text_ids):
    """Returns the log-probability of these ids (text order, without EOS), from the logits of the whole sequence."""
    body = text_ids[::-1] if translator.target_direction == "r2l" else text_ids
    targets = np.array([[*body, EOS_ID]], np.int32)
    source = np.array([[*translator.source_encoder.encode(line), EOS_ID]], np.int32)
    logits = translator.model(source, targets, training=False).numpy().astype(np.float64)[0]
    logits -= logits.max(axis=-1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return log_probs[np.arange(targets.shape[1]), targets[0]].sum()


@pytest.fixture(scope="module")
def brute_force(models):
    """Returns {line: {text ids: (log-probabilities by each model, directions whose list has them)}}, by definition."""
    expected = {}
    endings = []
    for direction, translator in models.items():
        for line, hypotheses in zip(LINES, translator.translate(LINES), strict=True):
            for hypothesis in hypotheses if line else []:
                endings.append(hypothesis.finished)
                ids = [token for token in hypothesis.ids if token not in (EOS_ID, PAD_ID)]
                ids = tuple(ids[::-1] if direction == "r2l" else ids)
                _, lists = expected.setdefault(line, {}).setdefault(ids, ([], set()))
                lists.add(direction)
    assert {len(lists) for found in expected.values() for _, lists in found.values()} == {1, 2}
    assert set(endings) == {True, False}  # truncated translations are scored as if finished
    for line, found in expected.items():
        for ids, (log_probs, _) in found.items():
            log_probs += [log_prob(models[direction], line, ids) for direction in ("l2r", "r2l")]
    return expected


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize(
    ("weights", "score"), [pytest.param((1.0, 1.0), "sum", marks=pytest.mark.slow), ((1.0, 0.25), "penalized")]
)
def test_against_brute_force(models, brute_force, weights, score):
    results = Reranker(models["l2r"], models["r2l"], RerankConfig(score, weights)).rerank(LINES)
    for line, candidates in zip(LINES, results, strict=True):
        if not line:
            assert [(each.text, each.length) for each in candidates] == [("", 0)]
            continue
        expected = []
        for ids, (log_probs, lists) in brute_force[line].items():
            length = len(ids) + 1
            joint = float(np.dot(weights, log_probs)) / (((5 + length) / 6) ** 0.6 if score == "penalized" else 1)
            expected.append((joint, log_probs, (*ids, EOS_ID), lists))
        expected.sort(key=lambda each: -each[0])
        assert len(candidates) == len(expected)
        for found, (joint, log_probs, ids, lists) in zip(candidates, expected, strict=True):
            assert found.score == pytest.approx(joint, abs=2e-3)
            assert [found.log_probs[d] for d in ("l2r", "r2l")] == pytest.approx(log_probs, abs=2e-3)
            assert (found.ids, set(found.ranks)) == (ids, lists)
        # By the joint score, the result is never worse than the best translation of either model.
        for direction in models:
            assert candidates[0].score >= best_of(candidates, direction).score
            assert best_of(candidates, direction).ranks[direction] == 0


def test_files_scores_and_report(command, models, tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "WINDOW_LINES", 3)  # the lines come in two windows
    source, nbest, report = (tmp_path / name for name in ("in.txt", "nbest.jsonl", "report.json"))
    reference = write(tmp_path / "ref.txt", ["die alte Katze sieht die Lampe .", "", "die Stadt liebt", "☃"])
    status, out, err = command(
        f"--decode_from_file={write(source, LINES)}", f"--decode_reference={reference}", "--scoring=sacrebleu",
        f"--nbest_file={nbest}", f"--report_file={report}",
    )  # fmt: skip
    assert status == 0, err
    told = []
    results = Reranker(models["l2r"], models["r2l"]).rerank(LINES, lambda *progress: told.append(progress))
    assert told == sorted(told)
    assert told[-1] == (4 * len(LINES), 4 * len(LINES))
    assert read(tmp_path / "in.txt.reranked") == [candidates[0].text for candidates in results]
    for number, (line, row, candidates) in enumerate(zip(LINES, map(json.loads, read(nbest)), results, strict=True), 1):
        assert (row["source"], row["line"]) == (line, number)
        for written, candidate in zip(row["hypotheses"], candidates, strict=True):
            assert (written["text"], written["length"]) == (candidate.text, candidate.length)
            assert written["log_probs"] == pytest.approx(candidate.log_probs, abs=1e-3)
            assert written["score"] == pytest.approx(candidate.score, abs=1e-3)
            assert written["lists"] == {direction: rank + 1 for direction, rank in candidate.ranks.items()}
    counted = winners(results)
    told, *shown = out.splitlines()
    for count, where in (
        (counted.l2r, "the L2R list only"), (counted.r2l, "the R2L list only"), (counted.both, "both")
    ):  # fmt: skip
        assert f" {count} from {where} (" in told
    found = json.loads(report.read_text())
    assert (found["lines"], found["lines_with_text"]) == (4, 3)
    assert found["winners"] == pytest.approx(counted.shares())
    best = {"L2R": "l2r", "R2L": "r2l"}
    for line, (name, key) in zip(shown, {**best, "reranked": "reranked"}.items(), strict=True):
        texts = [best_of(each, key).text if name in best else each[0].text for each in results]
        bleu = protocols.score("detok", texts, [read(reference)])[0]
        assert line == f"{name}: {bleu}"
        assert found["scores"][key][0]["value"] == pytest.approx(bleu.value)


def test_weights_say_which_model_decides(models):
    config = RerankConfig(weights=(1.0, 0.0))
    for candidates in Reranker(models["l2r"], models["r2l"], config).rerank(LINES[:1]):
        assert candidates[0].log_probs["l2r"] == max(each.log_probs["l2r"] for each in candidates)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--decode_from_file and --split are both missing"),
        (["--split=dev", "--decode_from_file=x"], "exclude each other"),
        (["--split=dev", "--decode_hparams=beam_size=2"], "--k=4 translations are more than beam_size=2"),
        (["--split=dev", "--decode_hparams=sampling_method=random"], "draws"),
        (["--split=dev", "--decode_hparams=sb_pairing=best"], "this model generates in one direction"),
        (["--split=dev", "--decode_hparams=return_beams=true"], "here --k does"),
        (["--split=dev", "--weights=1"], "give two numbers"),
        (["--split=dev", "--weights=a,b"], "expects numbers separated by commas, not 'a'"),
        (["--split=dev", "--weights=0,0"], "at least one of the models must count"),
        (["--split=dev", "--score=penalised"], "--score must be one of"),
        (["--split=dev", "--scoring=sacreblue"], "Did you mean 'sacrebleu'"),
        (["--split=tset"], "tset"),
        (["--split=dev", "--decode_reference=x"], "goes with --decode_from_file"),
        (["--decode_from_file=not_there.txt"], "not_there.txt"),
        (["--decode_from_file=/dev/null"], "/dev/null is no file that the output could be named after"),
        (["--split=dev", "--decode_hparams=shortlist=not_there.npz"], "The shortlist not_there.npz cannot be read"),
        (["--decode_from_file=not_there.txt", "--scoring=chrf"], "--scoring is of scores, which need references"),
        (["--split=dev", "--checkpoint_path=avreaged"], "avreaged"),
        (["--split=dev", "--nbest_file=-"], "Standard output is for translations"),
    ],
)
def test_mistakes(command, flags, message):
    status, _, err = command(*flags)
    assert status == 2
    assert message in err


def test_runs_that_do_not_fit(runs, tmp_path, capsys, toy_corpus):
    from t2t_ext import registry
    from t2t_ext.data.text import sentencepiece_model, text_encoder
    from t2t_ext.runs import checkpoints, run_directory

    def said(l2r, r2l):
        assert rerank.main([f"--l2r={l2r}", f"--r2l={r2l}", "--split=dev"]) == 2
        return capsys.readouterr().err

    assert "generates l2r (target_direction in its hparams). Give a run that was trained with" in said(
        runs["l2r"], runs["l2r"]
    )
    assert f"--l2r={runs['r2l']} generates r2l" in said(runs["r2l"], runs["l2r"])
    # A model that generates in both directions.
    hparams = registry.hparams("synchronous_transformer_test")
    stored = run_directory.RunDirectory.open(runs["l2r"])
    config = dataclasses.replace(
        stored.config,
        model="synchronous_transformer",
        hparams_class=run_directory.class_name(hparams),
        hparams=hparams.to_dict(),
    )
    both = run_directory.RunDirectory.create(tmp_path / "both", config, *stored.text_encoders())
    source = checkpoints.list_checkpoints(stored.checkpoints_dir)[-1]
    shutil.copytree(source, both.checkpoints_dir / source.name, dirs_exist_ok=True)
    assert "it generates in both directions at once" in said(both.path, runs["r2l"])
    assert "nowhere" in said(runs["l2r"], "nowhere")
    # Another vocabulary.
    other = text_encoder.SubwordEncoder(
        sentencepiece_model.train([text for pair in toy_corpus.train for text in pair], vocab_size=330)
    )
    stored = run_directory.RunDirectory.open(runs["r2l"])
    run = run_directory.RunDirectory.create(tmp_path / "run", stored.config, other, other)
    source = checkpoints.list_checkpoints(stored.checkpoints_dir)[-1]
    shutil.copytree(source, run.checkpoints_dir / source.name, dirs_exist_ok=True)
    assert "neither could score the other's translations" in said(runs["l2r"], run.path)
