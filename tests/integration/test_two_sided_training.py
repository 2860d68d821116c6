"""Tests of t2t_ext-trainer on two targets per sentence: with references only, and with pseudo references."""

import json
import shutil

import numpy as np
import pytest
import test_kills
from pseudo_sidecar import FAILED, write_sidecar

from t2t_ext.bin import decoder, trainer
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

HPARAMS = "num_hidden_layers=1,batch_size=400,learning_rate_warmup_steps=20"


@pytest.fixture(scope="module")
def data_dir(toy_corpus, toy_data, tmp_path_factory):
    """Returns the directory of the toy corpus as generated data in two shards, with a sidecar of pseudo references."""
    from t2t_ext import registry

    directory = tmp_path_factory.mktemp("data")
    shutil.copytree(toy_data, directory, dirs_exist_ok=True)
    write_sidecar(directory, registry.problem("translate_parallel_text", **toy_corpus.options()))
    return directory


def train(data, run, *, pseudo="two", hparams="", **more):
    """Runs the command in this process, so that TensorFlow is imported only once."""
    given = {
        "problem": "translate_parallel_text" + ("" if pseudo == "none" else "_synchronous"),
        "model": "synchronous_transformer",
        "hparams_set": "synchronous_transformer_test",
        "hparams": ",".join(filter(None, [HPARAMS, f"pseudo={pseudo}", hparams])),
        "data_dir": data,
        "output_dir": run,
        "train_steps": 8,
        "local_eval_frequency": 4,
        "log_step_count_steps": 4,
        "decode_hparams": "beam_size=2",
        "eval_bleu_sentences": 6,
        **more,
    }
    return trainer.main([f"--{name}={value}" for name, value in given.items() if value is not None])


def records(run):
    """Returns the records of metrics.jsonl without the values that depend on time."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


@pytest.fixture(scope="module")
def finished(data_dir, tmp_path_factory):
    """Returns a run of 8 steps with pseudo=two; early stopping is on, so that its metric matters."""
    run = tmp_path_factory.mktemp("runs") / "two"
    assert train(data_dir, run, eval_early_stopping_steps=100) == 0
    return run


def test_a_run_on_triples_counts_both_targets_and_each_example_once(finished, data_dir):
    run = RunDirectory.open(finished)
    assert run.config.hparams["pseudo"] == "two"
    assert run.config.training["eval_early_stopping_metric"] == "bleu"
    logged = records(finished)
    assert [(r["kind"], r["step"]) for r in logged] == [("train", 4), ("eval", 4), ("train", 8), ("eval", 8)]
    for record in logged:
        if record["kind"] == "train":
            # Each example has one source and two targets of about the source's length.
            assert 1.6 < record["target_tokens_per_step"] / record["source_tokens_per_step"] < 2.8
            assert 8 < record["source_tokens_per_step"] / record["examples_per_step"] < 25
            assert 0.5 < record["fill_rate"] <= 1
        else:
            assert "leaky" not in record
            assert record["perplexity"] == pytest.approx(np.exp(record["nll"]))
            assert "bleu" in record
    assert logged[2]["loss"] < logged[0]["loss"]
    assert checkpoints.list_checkpoints(finished / "best")


def test_dev_loss_on_references_alone_is_that_of_the_sides_that_are_references(finished, data_dir, toy_corpus):
    """reference_loss equals a NumPy computation from the logits that counts only the gold sides.

    The dev examples are (pseudo reference of the L2R model, gold) and (gold, pseudo reference of the R2L model).
    """
    from t2t_ext import registry
    from t2t_ext.translation.translator import Translator

    problem = registry.problem("translate_parallel_text_synchronous", **toy_corpus.options())
    store = ExampleStore.load(GeneratedData.open(problem, data_dir), "dev")
    translator = Translator.load(finished, checkpoint_path=checkpoints.latest(finished))
    smoothing = translator.model.hparams.label_smoothing
    sums, tokens = dict.fromkeys(("gold", "pseudo"), 0.0), dict.fromkeys(("gold", "pseudo"), 0)
    for number in range(store.num_examples):
        inputs, gold = store.example(number)
        l2r, r2l = (ids[offsets[number] : offsets[number + 1]] for ids, offsets in store.pseudo)
        for sides, names in (((l2r, gold), ("pseudo", "gold")), ((gold, r2l), ("gold", "pseudo"))):
            backwards = np.append(sides[1][-2::-1], sides[1][-1])
            rows = np.zeros((1, 2, max(map(len, sides))), np.int32)
            rows[0, 0, : len(sides[0])], rows[0, 1, : len(backwards)] = sides[0], backwards
            logits = translator.model(inputs[np.newaxis], rows).numpy()[0].astype(np.float64)
            for ids, side, name in zip((sides[0], backwards), logits, names, strict=True):
                logs = side[: len(ids)] - np.log(np.exp(side[: len(ids)]).sum(-1, keepdims=True))
                wanted = np.full_like(logs, smoothing / (logs.shape[-1] - 1))
                wanted[np.arange(len(ids)), ids] = 1 - smoothing
                sums[name] += (wanted * (np.log(wanted) - logs)).sum()
                tokens[name] += len(ids)
    record = records(finished)[-1]
    assert record["reference_loss"] == pytest.approx(sums["gold"] / tokens["gold"], rel=1e-5)
    assert record["loss"] == pytest.approx(sum(sums.values()) / sum(tokens.values()), rel=1e-5)
    assert abs(record["loss"] - record["reference_loss"]) > 1e-4


def test_a_run_that_lost_its_last_checkpoint_ends_as_the_undisturbed_one(finished, tmp_path, capfd):
    """Resuming in the middle of an epoch repeats the lost steps with the same batches and dropout masks."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    shutil.rmtree(checkpoints.latest(run))
    assert trainer.main([f"--output_dir={run}"]) == 0
    output = capfd.readouterr().err
    assert "resuming after step 4" in output
    assert f"{FAILED} whose pseudo reference of the L2R model failed" in output
    assert "dev loss on 48 examples of the same kinds; left out: none" in output
    assert ", on references alone " in output
    assert records(run) == records(finished)
    for group in ("model", "training"):
        expected = checkpoints.load_arrays(checkpoints.latest(finished), group)
        for name, value in checkpoints.load_arrays(checkpoints.latest(run), group).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_other_pseudo_references_are_another_run(finished, data_dir, tmp_path, capfd):
    """Pseudo references of other models are other data, so a run on the old ones cannot resume with them."""
    from t2t_ext import registry

    other = tmp_path / "data"
    shutil.copytree(data_dir, other)
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    stored = json.loads((run / "config.json").read_text())
    write_sidecar(other, registry.problem("translate_parallel_text", **stored["problem_options"]), seed=2)
    assert trainer.main([f"--output_dir={run}", f"--data_dir={other}", "--train_steps=9"]) == 2
    assert "holds other data than the run " in capfd.readouterr().err
    assert trainer.main([f"--output_dir={run}", "--hparams=pseudo=six", "--train_steps=9"]) == 2
    assert "pseudo" in capfd.readouterr().err


def test_references_alone_train_with_a_warning_and_translate(data_dir, toy_corpus, tmp_path, capfd):
    run = tmp_path / "run"
    flags = {"eval_bleu_sentences": 4, "train_steps": 4, "hparams": "predict_tag=true"}
    assert train(data_dir, run, pseudo="none", **flags) == 0
    output = capfd.readouterr().err
    assert "warning: pseudo=none" in output
    assert "see its own future" in output
    assert "only BLEU means something" in output
    assert records(run)[-1]["leaky"] is True
    source = tmp_path / "source.txt"
    source.write_text("".join(line + "\n" for line in toy_corpus.dev_source.read_text().splitlines()[:3]))
    out = tmp_path / "out.txt"
    flags = [f"--output_dir={run}", f"--decode_from_file={source}", f"--decode_to_file={out}"]
    assert decoder.main([*flags, "--decode_hparams=beam_size=2"]) == 0
    assert len(out.read_text().splitlines()) == 3


@pytest.mark.slow
def test_loss_on_references_only(data_dir, tmp_path, capfd):
    run = tmp_path / "run"
    flags = {"eval_bleu_sentences": -1, "train_steps": 4, "best_checkpoint_metric": "loss"}
    assert train(data_dir, run, pseudo="six", hparams="sb_loss_on_pseudo=false", **flags) == 0
    output = capfd.readouterr().err
    assert "1,200 without a reference (sb_loss_on_pseudo=false)" in output
    assert "loss on references only" in output
    record = records(run)[0]
    assert 1.6 < record["target_tokens_per_step"] / record["source_tokens_per_step"] < 2.8
    assert 4 < record["loss"] < 8
    assert records(run)[-1]["reference_loss"] == records(run)[-1]["loss"]
    assert RunDirectory.open(run).config.training["eval_early_stopping_metric"] == "loss"


def test_ordinary_transformers_train_on_pseudo_references_as_well(data_dir, tmp_path, capfd):
    run = tmp_path / "run"
    names = {"model": "transformer", "hparams_set": "transformer_test"}
    flags = {"eval_bleu_sentences": -1, "train_steps": 4, "best_checkpoint_metric": "loss"}
    assert train(data_dir, run, pseudo="both", hparams="target_direction=r2l", **flags, **names) == 0
    output = capfd.readouterr().err
    assert "targets of each of 600 pairs, 3 examples: reference, pseudo reference of the L2R model" in output
    assert "on references alone" not in output
    assert records(run)[-1]["reference_loss"] == records(run)[-1]["loss"]
    assert "loss on references only" not in output  # the loss counts only references, as for any Transformer


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"pseudo": "two", "problem": "translate_parallel_text"},
            "t2t_ext-pseudo-references --problem=translate_paral",
        ),
        ({"pseudo": "two", "problem": "translate_parallel_text_synchronus"}, "translate_parallel_text_synchronous"),
        ({"pseudo": "tow"}, "pseudo is one of auto, none, l2r, both, two, six, one"),
        ({"pseudo": "none", "hparams": "sb_loss_on_pseudo=false"}, "with pseudo=none there are none"),
        ({"hparams": "target_direction=r2l"}, "target_direction"),
        ({"decode_hparams": "beam_size=1"}, "beam_size=1"),
        ({"decode_hparams": "beam_size=5"}, "beam_size=5"),
        ({"model": "transformer", "hparams_set": "transformer_test"}, "one of none, l2r, both"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(data_dir, tmp_path, capfd, flags, message):
    assert train(data_dir, tmp_path / "run", **flags) == 2
    error = capfd.readouterr().err
    assert "error: " in error
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_killed_training_on_six_triples_ends_as_if_it_had_not_been(data_dir, tmp_path):
    """SIGKILL in mid-epoch, during a checkpoint, or before the record of an evaluation does not change the result."""
    given = {
        "problem": "translate_parallel_text_synchronous", "model": "synchronous_transformer",
        "hparams_set": "synchronous_transformer_test", "data_dir": data_dir, "train_steps": 6,
        "hparams": f"{HPARAMS},pseudo=six,ema_decay=0.9,sb_future_dropout=0.2", "local_eval_frequency": 3,
        "log_step_count_steps": 1, "eval_bleu_sentences": -1, "best_checkpoint_metric": "loss", "random_seed": 3,
    }  # fmt: skip

    def flags(run):
        return ["--deterministic", *(f"--{name}={value}" for name, value in {**given, "output_dir": run}.items())]

    kills = [("open metrics.jsonl", 2), ("os.rename checkpoints/.model.ckpt-N.tmp", 1), ("open metrics.jsonl", 4)]
    with test_kills.Server(tmp_path) as server:
        expected, run = tmp_path / "undisturbed", tmp_path / "killed"
        assert not server.run("trainer", flags(expected), expected)[0]
        for kill in kills:
            assert server.run("trainer", flags(run), run, kill_at=kill)[0]
        assert not server.run("trainer", flags(run), run)[0]
    test_kills.assert_equal_runs(run, expected)
