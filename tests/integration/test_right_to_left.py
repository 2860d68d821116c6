"""Tests of a run with target_direction=r2l through every command: all output reads from left to right."""

import json
import re
import shutil

import numpy as np
import pytest

from t2t_ext.bin import avg_all, decoder, exporter, translate_all
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

LINES = ["the old cat sees the lamp .", "", "the city loves the small flower today ."]
PAIRS = [("the old cat", "die alte Katze"), ("the lamp  sees", "x \u2603")]


@pytest.fixture(scope="module")
def run(tiny_run, tiny_model, tmp_path_factory):
    """Returns the path of a copy of the tiny run that is marked as right to left and has a second checkpoint."""
    path = tmp_path_factory.mktemp("r2l") / "run"
    shutil.copytree(tiny_run.path, path)
    config = json.loads((path / "config.json").read_text())
    config["hparams"]["target_direction"] = "r2l"
    (path / "config.json").write_text(json.dumps(config))
    arrays = {name: np.asarray(variable) * 1.1 for name, variable in tiny_model.named_variables().items()}
    checkpoints.save_checkpoint(RunDirectory.open(path).checkpoints_dir, 41, arrays)
    return path


@pytest.fixture(scope="module")
def backward(run):
    """Returns the Translator of the run's first checkpoint, which has the weights of the tiny model."""
    from t2t_ext.translation.translator import Translator

    return Translator.load(run, "40")


@pytest.fixture
def decode(run, tmp_path, capsys):
    """Returns the decoder on the run as a function (flags...) -> (status, standard output, standard error)."""
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")

    def call(*flags):
        status = decoder.main([f"--output_dir={run}", "--checkpoint_path=40", *flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def read(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_translations_n_best_lists_and_alignments_read_left_to_right(
    decode, backward, tiny_encoder, make_translator, tmp_path
):
    flags = [f"--decode_from_file={tmp_path}/in.txt", f"--decode_to_file={tmp_path}/out"]
    status, _, err = decode(*flags, f"--alignment_file={tmp_path}/align", f"--nbest_file={tmp_path}/nbest")
    assert status == 0, err
    # The weights are those of the tiny model, which generates left to right, so the tokens are the same in reverse.
    forward = make_translator(beam_size=4).translate(LINES)
    for text, (best, *_) in zip(read(tmp_path / "out"), forward, strict=True):
        assert text == tiny_encoder.decode([i for i in best.ids if i != 1][::-1])
    results = backward.translate(LINES)
    assert read(tmp_path / "align") == [row[0] for row in backward.align_hypotheses(LINES, results)]
    for line, found in zip(read(tmp_path / "nbest"), results, strict=True):
        assert json.loads(line)["hypotheses"][0]["text"] == found[0].text


def test_scores_are_of_the_turned_target(decode, backward, make_translator, tmp_path):
    status, out, err = decode(f"--score_file={tmp_path}/pairs.tsv")
    assert status == 0, err
    found = [float(line.split("\t")[0]) for line in out.splitlines()]
    assert found == pytest.approx([score.log_prob for score in backward.score(PAIRS)], abs=1e-3)
    forward = [score.log_prob for score in make_translator().score(PAIRS)]
    assert found != pytest.approx(forward, abs=1e-2)


def test_prefixes_are_refused_with_the_reason(decode, tmp_path):
    (tmp_path / "prefixes").write_text("a\nb\nc\n")
    status, _, err = decode(f"--decode_from_file={tmp_path}/in.txt", f"--prefix_file={tmp_path}/prefixes")
    assert status == 2
    assert "target_direction=r2l" in err


@pytest.mark.slow
def test_ensembles_of_runs_of_one_direction(decode, run, tiny_run, tmp_path, capsys):
    flags = [f"--decode_from_file={tmp_path}/in.txt", f"--decode_to_file={tmp_path}/both"]
    twice = [f"--output_dir={run}", f"--checkpoint_path={run}/checkpoints/model.ckpt-00000040,"
             f"{run}/checkpoints/model.ckpt-00000040"]  # fmt: skip
    assert decoder.main([*flags, *twice]) == 0, capsys.readouterr().err
    status, _, err = decode(f"--decode_from_file={tmp_path}/in.txt", f"--decode_to_file={tmp_path}/one")
    assert status == 0, err
    assert read(tmp_path / "both") == read(tmp_path / "one")
    assert decoder.main([*flags, f"--output_dir={run},{tiny_run.path}"]) == 2
    assert re.search("generates r2l, .* generates l2r", capsys.readouterr().err)


@pytest.mark.slow
def test_a_saved_model_and_averages_turn_round_as_well(run, backward, tmp_path):
    import tensorflow as tf

    export = [f"--output_dir={run}", f"--export_dir={tmp_path}/export", "--checkpoint_path=40"]
    assert exporter.main(export) == 0
    (version,) = (tmp_path / "export").iterdir()
    found = tf.saved_model.load(str(version)).signatures["serving_default"](inputs=tf.constant(LINES))
    assert [text.decode() for text in found["outputs"].numpy()] == backward(LINES)
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    assert avg_all.main([f"--output_dir={copy}", "--n=2"]) == 0
    (average,) = checkpoints.list_checkpoints(copy / "averaged")
    flags = [f"--output_dir={copy}", "--decode_hparams=beam_size=2", "--wait_minutes=0"]
    assert translate_all.main(flags) == 0
    (folder,) = (copy / "translations").iterdir()
    first = folder / "model.ckpt-00000040.txt"
    out = tmp_path / "out"
    decoding = ["--split=dev", f"--decode_to_file={out}", "--decode_hparams=beam_size=2"]
    assert decoder.main([f"--output_dir={copy}", "--checkpoint_path=40", *decoding]) == 0
    assert out.read_bytes() == first.read_bytes()
    assert decoder.main([f"--output_dir={copy}", f"--checkpoint_path={average}", *decoding]) == 0
    assert len(read(out)) == len(read(first))
