"""Tests of the commands on the model that combines all three ideas, with one and with two target directions."""

import pytest
from test_two_sided_training import data_dir  # noqa: F401 (a fixture)

from t2t_ext.bin import decoder, rerank, trainer
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

SIZES = "num_encoder_layers=2,num_decoder_layers=1,batch_size=400"
ONE_WAY = f"{SIZES},synchronous=false,source_view_map=2,dc_decoder_layers=1"


@pytest.fixture(scope="module")
def runs(data_dir, tmp_path_factory):  # noqa: F811
    """Returns {2: run in both directions, on pseudo references; 1: run in one direction, on references}."""
    folder = tmp_path_factory.mktemp("composed")
    both, one = folder / "both", folder / "one"
    assert train(data_dir, both, "_synchronous", SIZES) == 0
    assert train(data_dir, one, "", ONE_WAY) == 0
    return {2: both, 1: one}


def train(data, run, suffix, hparams):
    given = {
        "problem": f"translate_parallel_text{suffix}", "hparams": hparams, "data_dir": data, "output_dir": run,
        "local_eval_frequency": 2, "decode_hparams": "beam_size=2", "eval_bleu_sentences": -1,
        "best_checkpoint_metric": "loss", "train_steps": 2, "model": "composed_transformer",
        "hparams_set": "composed_transformer_test",
    }  # fmt: skip
    return trainer.main([f"--{name}={value}" for name, value in given.items()])


def test_runs_are_of_the_directions_that_were_asked_for(runs):
    for directions, run in runs.items():
        stored = RunDirectory.open(run).hparams()
        assert stored.synchronous == (directions == 2)
        assert stored.pseudo == {1: "none", 2: "two"}[directions]
        assert checkpoints.checkpoint_step(checkpoints.latest(run)) == 2


@pytest.mark.slow  # test_two_sided_training.py does so with one idea
def test_a_run_of_both_directions_goes_on_and_translates(runs, tmp_path, capsys):
    run = runs[2]
    assert trainer.main([f"--output_dir={run}", "--train_steps=3", "--local_eval_frequency=3"]) == 0
    assert checkpoints.checkpoint_step(checkpoints.latest(run)) == 3
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("the old house\n")
    flags = [f"--output_dir={run}", f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert decoder.main([*flags, "--decode_hparams=beam_size=2,max_length_offset=4"]) == 0
    assert len(target.read_text().splitlines()) == 1
    assert "Directions of the best translations" in capsys.readouterr().err


def test_only_a_model_of_two_directions_is_asked_for_even_beams(runs, capsys):
    assert decoder.main([f"--output_dir={runs[2]}", "--decode_hparams=beam_size=3", "--decode_from_file=x"]) == 2
    assert "beam_size=3: this model generates left to right and right to left at once" in capsys.readouterr().err
    given = "--decode_hparams=beam_size=3,sb_pairing=best"
    assert decoder.main([f"--output_dir={runs[1]}", given, "--decode_from_file=x"]) == 2
    assert "this model generates in one direction" in capsys.readouterr().err


def test_reranking_refuses_both_directions_at_once(runs, capsys):
    assert rerank.main([f"--l2r={runs[2]}", f"--r2l={runs[1]}", "--split=dev"]) == 2
    assert f"--l2r={runs[2]}: " in capsys.readouterr().err
    assert rerank.main([f"--l2r={runs[1]}", f"--r2l={runs[1]}", "--split=dev"]) == 2
    assert f"--r2l={runs[1]} generates l2r" in capsys.readouterr().err


def test_the_diagram_of_a_run_and_where_it_cannot_be_drawn(runs, tmp_path, capsys):
    svg = tmp_path / "model.svg"
    assert trainer.main([f"--output_dir={runs[2]}", f"--describe_svg={svg}"]) == 0
    assert capsys.readouterr().out == f"diagram: {svg}\n"
    assert "right to left" in svg.read_text(encoding="utf-8")
    assert trainer.main([f"--output_dir={runs[1]}", "--describe"]) == 0
    assert "dual contextual module, f = 2 (Ampomah et al. 2021)" in capsys.readouterr().out
    assert trainer.main([f"--output_dir={runs[1]}", f"--describe_svg={tmp_path}"]) == 2
    assert "it is a directory. Give the name of a file" in capsys.readouterr().err
    assert trainer.main([f"--output_dir={runs[1]}", f"--describe_svg={tmp_path / 'no' / 'model.svg'}"]) == 2
    assert f"there is no directory {tmp_path / 'no'}" in capsys.readouterr().err
