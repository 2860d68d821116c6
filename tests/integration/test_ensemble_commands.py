"""Tests of ensembles and alignments with the commands: decoder, exporter, and the SavedModel in Python and C."""

import json
import sys

import pytest
from test_export import HERE, LINES, loader_arguments, run_loader

from t2t_ext.bin import decoder, exporter

PAIRS = [("the old cat", "die alte Katze"), ("", "die"), ("the lamp  sees", "x \u2603")]


@pytest.fixture(scope="module")
def other_run(tiny_run, tiny_encoder, tmp_path_factory):
    """Returns another run on the same data, with one decoder layer and a checkpoint of step 7."""
    from random_weights import random_arrays

    from t2t_ext import registry
    from t2t_ext.models.seq2seq import build_model
    from t2t_ext.runs import checkpoints
    from t2t_ext.runs.run_directory import RunDirectory

    first = RunDirectory.open(tiny_run.path)
    hparams = first.hparams().replace(num_decoder_layers=1)
    config = first.config.replace(hparams=hparams.to_dict())
    run = RunDirectory.create(tmp_path_factory.mktemp("other") / "run", config, tiny_encoder, tiny_encoder)
    model = build_model(registry.model("transformer"), hparams, tiny_encoder, tiny_encoder)
    checkpoints.save_checkpoint(run.checkpoints_dir, 7, random_arrays(model, seed=5, scale=2.0))
    return run.path


@pytest.fixture(scope="module")
def ensemble(tiny_run, other_run):
    from t2t_ext.translation.translator import Translator

    return Translator.load([tiny_run.path, other_run], ensemble_weights=(2, 1))


@pytest.fixture
def decode(tiny_run, tmp_path, capsys):
    """Returns the decoder as a function (flags...) -> (status, standard output, standard error).

    In the flags, {run}, {in}, {pairs} and {dir} stand for paths.
    """
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    names = {"run": tiny_run.path, "in": tmp_path / "in.txt", "pairs": tmp_path / "pairs.tsv", "dir": tmp_path}

    def run(*flags):
        status = decoder.main([flag.format(**names) for flag in flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def read(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_decoder_with_an_ensemble(decode, ensemble, other_run, tmp_path):
    runs = [f"--output_dir={{run}},{other_run}", "--ensemble_weights=2,1"]
    flags = ["--decode_from_file={in}", "--alignment_file={dir}/align", "--nbest_file={dir}/nbest"]
    status, _, err = decode(*runs, *flags)
    assert status == 0, err
    (output,) = tmp_path.glob("in.txt.*.alpha0.6.ensemble2.*.decodes")
    assert read(output) == ensemble(LINES)
    results = ensemble.translate(LINES)
    assert read(tmp_path / "align") == [row[0] for row in ensemble.align_hypotheses(LINES, results)]
    rows = list(map(json.loads, read(tmp_path / "nbest")))
    assert [row["hypotheses"][0]["alignment"] for row in rows] == read(tmp_path / "align")
    assert len(rows[0]["hypotheses"]) == 4

    status, out, err = decode(*runs, "--score_file={pairs}", "--alignment_file={dir}/pairs.align")
    assert status == 0, err
    found = [float(line.split("\t")[0]) for line in out.splitlines()]
    assert found == pytest.approx([score.log_prob for score in ensemble.score(PAIRS)], abs=1e-3)
    assert read(tmp_path / "pairs.align") == ensemble.align(PAIRS)


def test_n_best_lists_have_a_line_for_each_hypothesis(decode, tmp_path):
    settings = "--decode_hparams=return_beams=true,beam_size=3"
    flags = ["--output_dir={run}", "--decode_from_file={in}", "--decode_to_file={dir}/out"]
    flags += ["--alignment_file={dir}/align", "--alignment_layer=1", "--alignment_heads=1,0"]
    status, _, err = decode(*flags, settings)
    assert status == 0, err
    lines = read(tmp_path / "align")
    columns = [line.split("\t") for line in read(tmp_path / "out")]
    for line, texts in zip(LINES, columns, strict=True):
        assert len(texts) == (3 if line else 1)
        for text in texts:
            assert len(lines.pop(0).split()) == len(text.encode().split())
    assert not lines


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output_dir={run},{dir}/none"], "There is no run directory {dir}/none"),
        (["--output_dir={run},{run}", "--checkpoint_path=40,40,40"], "2 runs (--output_dir) and 3 checkpoints"),
        (["--output_dir={run},{run}", "--ensemble_weights=1"], "1 weights for 2 members"),
        (["--output_dir={run},{run}", "--ensemble_weights=1,a"], "expects numbers separated by commas"),
        (["--output_dir={run}", "--alignment_layer=1"], "--alignment_file=FILE"),
        (["--output_dir={run}", "--alignment_file=-"], "--alignment_file=-"),
        (["--output_dir={run}", "--alignment_file={dir}/no/a"], "no directory {dir}/no"),
        (["--output_dir={run}", "--alignment_file={dir}/a", "--alignment_heads=1;2"], "expects whole numbers"),
        (["--output_dir={run}", "--alignment_file={dir}/a", "--alignment_heads=9"], "there is no head 9"),
    ],
)
def test_errors(decode, tmp_path, flags, message):
    status, out, err = decode(*flags, "--decode_from_file={in}")
    assert status == 2
    assert message.format(dir=tmp_path) in err
    assert err.count("error: ") == 1
    assert "Traceback" not in err
    assert out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "pairs.tsv"]


@pytest.fixture(scope="module")
def exported_ensemble(tiny_run, other_run, few_signatures, tmp_path_factory):
    export_dir = tmp_path_factory.mktemp("export") / "model"
    flags = [f"--output_dir={tiny_run.path},{other_run}", f"--export_dir={export_dir}", "--ensemble_weights=2,1"]
    with few_signatures():
        assert exporter.main(flags) == 0
    return export_dir / "40"


@pytest.mark.slow  # the graph is that of a single model, which test_export.py serves, with the ensemble of the decoder
def test_an_exported_ensemble(exported_ensemble, ensemble, tiny_run, other_run):
    import tensorflow as tf

    from t2t_ext.serving.export import saved_model_ops

    signatures = tf.saved_model.load(str(exported_ensemble)).signatures
    found = signatures["serving_default"](inputs=tf.constant(LINES))
    assert [text.decode() for text in found["outputs"].numpy()] == ensemble(LINES)
    sources, targets = zip(*PAIRS, strict=True)
    found = signatures["align"](inputs=tf.constant(sources), targets=tf.constant(targets))
    assert [line.decode() for line in found["alignments"].numpy()] == ensemble.align(PAIRS)
    assert saved_model_ops(exported_ensemble)["VarHandleOp"] == len(ensemble.model.named_variables())
    members = json.loads((exported_ensemble / "export.json").read_text())["ensemble"]
    assert [(member["run"], member["step"]) for member in members] == [(str(tiny_run.path), 40), (str(other_run), 7)]
    assert [member["weight"] for member in members] == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.slow  # test_export.py loads a single model in this way
def test_an_exported_ensemble_loads_through_the_c_api(exported_ensemble, ensemble):
    command = [sys.executable, str(HERE / "c_api_loader.py"), *loader_arguments(exported_ensemble)]
    assert run_loader(command) == ensemble(LINES)


def test_an_ensemble_is_exported_where_the_user_says(tiny_run, other_run, capsys):
    assert exporter.main([f"--output_dir={tiny_run.path},{other_run}"]) == 2
    assert "--export_dir=EXPORT" in capsys.readouterr().err
    flags = [f"--output_dir={tiny_run.path}", "--alignment_layer=5"]
    assert exporter.main(flags) == 2
    assert "the decoder has 2 layers" in capsys.readouterr().err
    assert not (tiny_run.path / "export").exists()
