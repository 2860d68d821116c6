"""Tests of image captioning with the commands, from the raw files to a served model."""

import io
import json
import sys

import numpy as np
import pytest
import serving_fakes
from caption_files import SIZE, write_coco
from python_blocks import run_blocks

from t2t_ext.bin import datagen, decoder, exporter, pseudo_references, query_server, trainer, translate_all

HPARAMS = "num_hidden_layers=1,batch_size=256,learning_rate_warmup_steps=20,learning_rate_constant=0.5"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Returns a directory with the raw files, the data and a trained run, and the entries of the raw files."""
    directory = tmp_path_factory.mktemp("captions")
    entries = write_coco(directory / "raw", train=12, restval=2, dev=3, test=4)
    options = f"feature_size={SIZE}"
    flags = ["--problem=caption_coco", f"--problem_options={options}", f"--data_dir={directory / 'data'}"]
    assert datagen.main([*flags, f"--tmp_dir={directory / 'raw'}", "--vocab_size=320", "--num_processes=1"]) == 0
    run = ["--model=transformer", "--hparams_set=transformer_test", f"--hparams={HPARAMS}", "--train_steps=30"]
    run += [f"--output_dir={directory / 'run'}", "--decode_hparams=beam_size=2", "--log_step_count_steps=30"]
    assert trainer.main([*flags, *run]) == 0
    return directory, entries


@pytest.fixture
def decode(place, capsys):
    """Returns the decoder on the trained run as a function (flags...) -> (status, standard output, standard error)."""

    def call(*flags):
        capsys.readouterr()
        status = decoder.main([f"--output_dir={place[0] / 'run'}", "--decode_hparams=beam_size=2", *flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_training_learns_and_scores(place):
    from t2t_ext.runs.run_directory import RunDirectory

    records = [json.loads(line) for line in (place[0] / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if record["kind"] == "eval"][-1]
    assert last["loss"] < 5.0  # an untrained model has log(320) = 5.8
    assert "nrefs:5" in last["bleu_signature"]
    trained = next(record for record in records if record["kind"] == "train")
    assert 0.5 < trained["fill_rate"] <= 1.0
    assert RunDirectory.open(place[0] / "run").config.source_feature_size == SIZE


def test_a_split_and_files_of_every_kind_decode_alike(place, decode, tmp_path):
    _, entries = place
    split = tmp_path / "split.txt"
    nbest = tmp_path / "nbest.jsonl"
    status, shown, _ = decode("--split=test", f"--decode_to_file={split}", f"--nbest_file={nbest}")
    assert status == 0
    assert "BLEU = " in shown
    assert "nrefs:5" in shown
    captions = split.read_text().splitlines()
    assert len(captions) == 4
    rows = [json.loads(line) for line in nbest.read_text().splitlines()]
    assert [row["source"] for row in rows] == [str(image) for image, _, _ in entries[-4:]]
    assert len(rows[0]["hypotheses"]) == 2
    # The data store float16, so the features to compare with must be rounded to float16, too.
    kept = {str(image): features.astype(np.float16).astype(np.float32) for image, features, _ in entries[-4:]}
    np.savez(tmp_path / "images.npz", **kept)
    out, references = tmp_path / "out.txt", tmp_path / "ref.txt"
    references.write_text("".join(f"{texts[0]}\n" for _, _, texts in entries[-4:]))
    status, shown, _ = decode(
        f"--decode_from_file={tmp_path / 'images.npz'}", f"--decode_to_file={out}", f"--decode_reference={references}"
    )
    assert status == 0
    assert "nrefs:1" in shown
    assert out.read_text().splitlines() == captions


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--decode_from_file=lines.txt"], "no file of features: the run reads feature vectors"),
        (["--decode_from_file=nothing.npz"], "No such file"),
        (["--decode_from_file=-"], "numbers each). Give a .npz, .npy or .tsv file of feature vectors"),
        (["--decode_interactive"], "--decode_interactive reads text, but the run"),
        (["--score_file=lines.txt"], "--score_file reads text"),
        (["--split=test", "--alignment_file=a"], "numbers each). Leave it out; the input is --split=NAME, or"),
        (["--split=tset"], "has no tset split"),
        (
            ["--split=test", "--decode_hparams=shortlist=not_there.npz"],
            "A shortlist is made for subwords of the source",
        ),
    ],
)
def test_what_text_alone_can_do_is_refused(decode, tmp_path, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("a dog\ta cat\n")
    status, _, shown = decode(*flags)
    assert status != 0
    assert message in shown


def test_a_shortlist_is_refused_before_anything_is_translated(place, capsys):
    flags = [f"--output_dir={place[0] / 'run'}", "--split=test", "--wait_minutes=0"]
    assert translate_all.main([*flags, "--decode_hparams=shortlist=not_there.npz"]) == 2
    assert "A shortlist is made for subwords of the source, and this run reads" in capsys.readouterr().err
    assert not (place[0] / "run" / "translations").exists()


def test_features_of_another_size_are_refused(decode, tmp_path):
    np.save(tmp_path / "a.npy", np.ones([2, SIZE + 1], np.float32))
    status, _, shown = decode(f"--decode_from_file={tmp_path / 'a.npy'}")
    assert status != 0
    assert "but float [regions, 12] is wanted" in shown


@pytest.fixture(scope="module")
def servable(place):
    """Returns the exported run, loaded as by a server."""
    directory = place[0] / "export"
    flags = [f"--output_dir={place[0] / 'run'}", f"--export_dir={directory}", "--decode_hparams=beam_size=2"]
    assert exporter.main(flags) == 0
    described = json.loads((directory / "30" / "export.json").read_text())
    assert described["source_feature_size"] == SIZE
    return serving_fakes.Servable(directory / "30")


@pytest.mark.slow  # test_query_server.py asks servers of text
@pytest.mark.parametrize("kind", ["grpc", "rest"])
def test_a_server_says_what_the_decoder_says(place, servable, decode, tmp_path, capsys, monkeypatch, kind):
    path = tmp_path / "images.npz"
    np.savez(path, **{str(image): features for image, features, _ in place[1][-4:]})
    assert decode(f"--decode_from_file={path}", f"--decode_to_file={tmp_path / 'out.txt'}")[0] == 0
    with getattr(serving_fakes, f"{kind}_server")(servable) as address:
        flags = [f"--server={address}", f"--features={path}", *(["--rest"] if kind == "rest" else [])]
        assert query_server.main([*flags, "--timeout_secs=60", "--batch_size=3"]) == 0
        assert capsys.readouterr().out == (tmp_path / "out.txt").read_text()
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        assert query_server.main([*flags, "--inputs_once=a dog"]) != 0
    assert "--inputs_once is for text" in capsys.readouterr().err


def test_ensembles_read_the_same(place, tiny_run, capsys):
    status = decoder.main([f"--output_dir={place[0] / 'run'},{tiny_run.path}", "--split=test"])
    assert status != 0
    assert "different target vocabularies" in capsys.readouterr().err


def test_pseudo_references_of_images(place, tmp_path, capsys):
    directory, _ = place
    options = f"--problem_options=feature_size={SIZE}"
    data = ["--problem=caption_coco", options, f"--data_dir={directory / 'data'}"]
    backwards = tmp_path / "r2l"
    run = ["--model=transformer", "--hparams_set=transformer_test", f"--hparams={HPARAMS},target_direction=r2l"]
    run += ["--train_steps=30", "--eval_bleu_sentences=-1", f"--output_dir={backwards}"]
    assert trainer.main([*data, *run]) == 0
    flags = [*data, f"--l2r={directory / 'run'}", f"--r2l={backwards}", "--decode_hparams=beam_size=1"]
    capsys.readouterr()
    assert pseudo_references.main(flags) == 0
    assert "caption_coco_synchronous is in" in capsys.readouterr().out
    model = [
        "--model=synchronous_transformer",
        "--hparams_set=synchronous_transformer_test",
        "--hparams=batch_size=256",
    ]
    flags = [
        "--problem=caption_coco_synchronous",
        *data[1:],
        *model,
        "--train_steps=2",
        f"--output_dir={tmp_path / 'run'}",
    ]
    assert trainer.main([*flags, "--decode_hparams=beam_size=2"]) == 0


def test_the_python_of_the_docs(place, decode, tmp_path, monkeypatch):
    directory, entries = place
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").symlink_to(directory / "run")
    np.save("image.npy", entries[-1][1].astype(np.float32))
    assert decode("--split=test", "--decode_to_file=out.txt", "--nbest_file=nbest.jsonl")[0] == 0
    run_blocks("docs/captioning.md")
    results = json.loads((tmp_path / "results.json").read_text())
    assert [each["caption"] for each in results] == (tmp_path / "out.txt").read_text().splitlines()
