"""Tests the commands on the way to a synchronous model: two Transformers, their translations, training on them."""

import json

import pytest

from t2t_ext.bin import datagen, decoder, pseudo_references, trainer
from t2t_ext.runs.run_directory import RunDirectory

NAME = "translate_parallel_text"
HPARAMS = "num_hidden_layers=1,batch_size=800,learning_rate_warmup_steps=20"
NO_BLEU = {"eval_bleu_sentences": -1, "best_checkpoint_metric": "loss"}


def train(root, run, hparams, **flags):
    given = {
        "problem": NAME,
        "model": "transformer",
        "hparams_set": "transformer_test",
        "hparams": f"{HPARAMS},use_target_space_embedding=false,{hparams}",
        "data_dir": root / "data",
        "output_dir": root / run,
        "train_steps": 60,
        "local_eval_frequency": 60,
        "log_step_count_steps": 20,
        **flags,
    }
    assert trainer.main([f"--{name}={value}" for name, value in given.items()]) == 0


@pytest.mark.slow
def test_from_text_to_a_synchronous_translation(tmp_path, toy_corpus, capfd):
    files = [f"--{name}={getattr(toy_corpus, name)}" for name in
             ("train_source", "train_target", "dev_source", "dev_target")]  # fmt: skip
    flags = [f"--problem={NAME}", f"--data_dir={tmp_path / 'data'}", "--vocab_size=340", "--num_processes=1"]
    assert datagen.main([*flags, *files]) == 0
    train(tmp_path, "l2r", "learning_rate_constant=0.5,target_direction=l2r", **NO_BLEU)
    train(tmp_path, "r2l", "learning_rate_constant=0.5,target_direction=r2l", **NO_BLEU)
    flags = [f"--problem={NAME}", f"--data_dir={tmp_path / 'data'}", "--decode_hparams=beam_size=1,max_length_ratio=1"]
    assert pseudo_references.main([*flags, f"--l2r={tmp_path / 'l2r'}", f"--r2l={tmp_path / 'r2l'}"]) == 0
    capfd.readouterr()
    train(
        tmp_path, "sb", "pseudo=two",
        problem=f"{NAME}_synchronous", model="synchronous_transformer", hparams_set="synchronous_transformer_test",
        warm_start_from=tmp_path / "l2r", decode_hparams="beam_size=4", eval_bleu_sentences=6,
    )  # fmt: skip
    output = capfd.readouterr().err
    assert "no variable is new" in output
    assert "skipped" not in output
    assert "two targets" not in output
    assert (
        "targets of each of 600 pairs, 2 examples: (pseudo reference of the L2R model, reference backwards)" in output
    )
    lines = (tmp_path / "sb" / "metrics.jsonl").read_text().splitlines()
    losses = [record["loss"] for record in map(json.loads, lines) if record["kind"] == "train"]
    (first, *_) = (
        record["loss"]
        for record in map(json.loads, (tmp_path / "l2r" / "metrics.jsonl").read_text().splitlines())
        if record["kind"] == "train"
    )
    assert losses[0] < first, "weights of the Transformer are a better beginning than none"
    assert losses[-1] < losses[0]
    assert RunDirectory.open(tmp_path / "sb").config.problem == f"{NAME}_synchronous"
    flags = [f"--output_dir={tmp_path / 'sb'}", f"--decode_from_file={toy_corpus.dev_source}"]
    assert decoder.main([*flags, f"--decode_to_file={tmp_path / 'out'}", f"--nbest_file={tmp_path / 'nbest'}"]) == 0
    assert len((tmp_path / "out").read_text().splitlines()) == 24
    best = [json.loads(line)["hypotheses"][0] for line in (tmp_path / "nbest").read_text().splitlines()]
    assert {each["direction"] for each in best} <= {"l2r", "r2l"}
