"""Tests of t2t_ext-analyze attention and grad_norms through the real command, on tiny runs of every kind of model."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from random_weights import random_arrays

from t2t_ext.bin import decoder
from t2t_ext.data.text import sentencepiece_model, text_encoder
from t2t_ext.errors import UserError
from t2t_ext.runs import checkpoints, run_directory

SOURCE, REFERENCE = "the old cat sees the lamp .", "die alte Katze sieht die Lampe ."


@pytest.fixture(scope="module")
def make_run(trained_run, tmp_path_factory):
    """Returns a function (model, overrides) -> path of a run with random weights.

    The run has the vocabulary and the data of ``trained_run``.
    """
    from t2t_ext import registry

    stored = run_directory.RunDirectory.open(trained_run.directory)
    encoder, _ = stored.text_encoders()

    def make(model, overrides=""):
        hparams = registry.hparams(f"{model}_test").override(overrides)
        config = dataclasses.replace(
            stored.config,
            model=model,
            hparams_set=f"{model}_test",
            hparams_class=run_directory.class_name(hparams),
            hparams=hparams.to_dict(),
        )
        size = encoder.vocab_size
        built = registry.model(model)(hparams, source_vocab_size=size, target_vocab_size=size)
        built.build()
        run = run_directory.RunDirectory.create(tmp_path_factory.mktemp(model) / model, config, encoder, encoder)
        checkpoints.save_checkpoint(run.checkpoints_dir, 7, random_arrays(built, seed=3))
        return run.path

    return make


def maps_of(directory):
    """Returns the sentence's record of attention.json, and its maps as {(kind, layer, head, direction): record}."""
    (sentence,) = json.loads((directory / "attention.json").read_text())["sentences"]
    return sentence, {(each["kind"], each["layer"], each["head"], each["direction"]): each for each in sentence["maps"]}


def test_a_transformer_looks_at_what_it_writes_itself(analyze_command, trained_run, tmp_path):
    flags = ["attention", f"--output_dir={trained_run.directory}", f"--out_dir={tmp_path}/out"]
    status, out, err = analyze_command(*flags, f"--sentence={SOURCE}", "--attention=source,self,encoder", "--layers=2")
    assert status == 0, err
    sentence, maps = maps_of(tmp_path / "out")
    written = decoder_says(trained_run, tmp_path)
    assert out.strip() == sentence["targets"]["l2r"] == written
    assert set(maps) == {(kind, 2, "mean", "") for kind in ("source", "self", "encoder")}
    own = maps["self", 2, "mean", ""]
    assert own["rows"] == own["columns"] == ["<start>", *own["predicted"][:-1]]
    assert "".join(own["predicted"]).replace("▁", " ").removesuffix("</s>").strip() == written
    assert maps["source", 2, "mean", ""]["rows"] == own["rows"]
    for each in maps.values():
        np.testing.assert_allclose(np.sum(each["weights"], axis=1), 1, atol=1e-3)
    assert not np.triu(own["weights"], 1).any()
    page = (tmp_path / "out" / "attention.html").read_text()
    assert page.count("<figure") == 3
    assert "http" not in page
    assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == sorted(
        each["file"] for each in maps.values()
    )
    # Another call replaces the pictures.
    status, _, err = analyze_command(
        *flags, f"--sentence={SOURCE}", f"--reference={REFERENCE}", "--layers=1", "--heads=all"
    )
    assert status == 0, err
    _, maps = maps_of(tmp_path / "out")
    assert set(maps) == {(kind, 1, head, "") for kind in ("source", "self") for head in (1, 2)}
    assert len(list((tmp_path / "out").glob("*.png"))) == 4


def decoder_says(trained_run, tmp_path):
    """Returns the decoder's translation of SOURCE."""
    (tmp_path / "in.txt").write_text(SOURCE + "\n")
    flags = [f"--decode_from_file={tmp_path}/in.txt", f"--decode_to_file={tmp_path}/out.txt"]
    assert decoder.main([f"--output_dir={trained_run.directory}", *flags]) == 0
    return (tmp_path / "out.txt").read_text().strip()


@pytest.mark.parametrize(
    ("model", "overrides", "expected"),
    [
        ("synchronous_transformer", "", [("source", "l2r"), ("source", "r2l"), ("self", "l2r"), ("self", "r2l"),
                                         ("future", "l2r"), ("future", "r2l")]),
        pytest.param(  # slow because the backward decoder runs a search
            "asynchronous_transformer", "backward_length_ratio=1,backward_length_offset=2",
            [("source", "l2r"), ("source", "r2l"), ("self", "l2r"), ("self", "r2l"), ("backward", "l2r")],
            marks=pytest.mark.slow,
        ),
        ("layer_coordination", "", [("mixed", "")]),
        ("dynamic_conv", "", [("source", "")]),
        ("transformer", "target_direction=r2l", [("source", "r2l"), ("self", "r2l")]),
    ],
)  # fmt: skip
def test_every_kind_of_model(analyze_command, make_run, tmp_path, model, overrides, expected, monkeypatch):
    # Drawing takes longer than everything else here; the first test covers it.
    monkeypatch.setattr("t2t_ext.analysis.attention.pictures.head_picture", lambda *_: b"")
    run = make_run(model, overrides)
    status, out, err = analyze_command(
        "attention", f"--output_dir={run}", f"--sentence={SOURCE}", f"--reference={REFERENCE}", "--layers=1",
        f"--out_dir={tmp_path}",
    )  # fmt: skip
    assert status == 0, err
    assert REFERENCE in out
    _, maps = maps_of(tmp_path)
    assert sorted(maps) == sorted((kind, 1, "mean", side) for kind, side in expected)
    first = {"l2r": "<l2r>", "r2l": "<r2l>"} if model == "synchronous_transformer" else {}
    for (kind, _, _, side), each in maps.items():
        assert each["rows"][0] == first.get(side, "<start>")
        if kind == "mixed":
            source, target = each["columns"][: each["source_columns"]], each["columns"][each["source_columns"] :]
            assert (source[-1], target) == ("</s>", each["rows"])
        if kind == "future":
            assert each["columns"][0] == first["r2l" if side == "l2r" else "l2r"]


def test_gradient_norms_of_training(analyze_command, trained_run, tmp_path):
    lines = [json.loads(line) for line in (trained_run.directory / "gradient_norms.jsonl").read_text().splitlines()]
    metrics = [json.loads(line) for line in (trained_run.directory / "metrics.jsonl").read_text().splitlines()]
    logged = {record["step"]: record["gradient_norm"] for record in metrics if record["kind"] == "train"}
    assert [record["step"] for record in lines] == list(logged)
    for record in lines:
        assert record["norms"]["all"] == pytest.approx(logged[record["step"]], rel=1e-5)
        squares = sum(norm**2 for name, norm in record["norms"].items() if name != "all")
        assert squares**0.5 == pytest.approx(record["norms"]["all"], rel=0.05)  # approximate: means over steps
    other = tmp_path / "other"
    shutil.copytree(trained_run.directory, other, ignore=shutil.ignore_patterns("tensorboard", "best"))
    halved = [
        {**each, "norms": {name: norm / 2 if name == "encoder/layer_1" else norm for name, norm in
                           each["norms"].items()}} for each in lines
    ]  # fmt: skip
    (other / "gradient_norms.jsonl").write_text("".join(json.dumps(each) + "\n" for each in halved))
    status, out, err = analyze_command(
        "grad_norms", f"--output_dir={trained_run.directory}", other, "--labels=whole,half", "--from_step=20",
        f"--out_dir={tmp_path}/out",
    )  # fmt: skip
    assert status == 0, err
    assert "half: norm of dLoss/d(encoder layer 2) = " in out
    assert "0.500 of whole's" in out
    rows = [line.split("\t") for line in (tmp_path / "out" / "grad_norms.tsv").read_text().splitlines()]
    values = {(row[0], row[1]): dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    top = [each["norms"]["encoder/layer_1"] for each in lines if each["step"] >= 20]
    assert float(values["whole", "top encoder layer"]["mean"]) == pytest.approx(np.mean(top), rel=1e-4)
    assert values["half", "top encoder layer"]["ratio_to_first"] == "0.5"
    assert values["half", "encoder/layer_0"]["ratio_to_first"] == "1"
    page = (tmp_path / "out" / "grad_norms.html").read_text()
    assert page.count("<svg") == 2
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".html", ".tsv", ".png"}


@pytest.mark.slow
def test_gradient_norms_at_checkpoints(analyze_command, trained_run, tmp_path):
    import tensorflow as tf

    from t2t_ext import registry
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.data.datasets.pipeline import eval_batches
    from t2t_ext.training.losses import softmax_cross_entropy
    from t2t_ext.translation.translator import Translator

    flags = ["--split=dev", "--batches=100", "--batch_size=5000", "--checkpoint_path=30", f"--out_dir={tmp_path}"]
    status, _, err = analyze_command("grad_norms", f"--output_dir={trained_run.directory}", *flags)
    assert status == 0, err
    rows = [line.split("\t") for line in (tmp_path / "grad_norms.tsv").read_text().splitlines()]
    found = {row[1]: float(row[rows[0].index("together")]) for row in rows[1:]}
    run = run_directory.RunDirectory.open(trained_run.directory)
    problem = registry.problem(run.config.problem, **run.config.problem_options)
    store = ExampleStore.load(GeneratedData.open(problem, run.config.data_dir), "dev")
    model = Translator.load(trained_run.directory, "30", "precision=float32").model
    layer = [variable for name, variable in model.named_variables().items() if name.startswith("encoder/layer_1/")]
    loss, tokens = 0.0, 0.0
    with tf.GradientTape() as tape:
        for batch in eval_batches(store, run.hparams(), 5000):
            features = model.features(batch["inputs"], batch["targets"])
            kernel, smoothing = model.softmax_weights()[0], run.hparams().label_smoothing
            sums = softmax_cross_entropy(features, kernel, None, batch["targets"], smoothing)
            loss, tokens = loss + sums.loss, tokens + sums.tokens
        mean = loss / tokens
    expected = float(tf.linalg.global_norm(tape.gradient(mean, layer)))
    assert found["encoder/layer_1"] == found["top encoder layer"] == pytest.approx(expected, rel=1e-3)


def test_gradient_norms_are_of_the_weights_that_are_used(analyze_command, trained_run, tmp_path, monkeypatch):
    """If a run has averaged weights, grad_norms loads these instead of the model's current weights."""
    from t2t_ext.runs import checkpoints

    real, asked = checkpoints.load_arrays, []

    def load(path, group):
        asked.append(group)
        return real(path, "model")

    monkeypatch.setattr(checkpoints.CheckpointInfo, "users_group", property(lambda self: "average"))
    monkeypatch.setattr(checkpoints, "load_arrays", load)
    flags = ["--split=dev", "--batches=1", f"--out_dir={tmp_path}"]
    status, _, err = analyze_command("grad_norms", f"--output_dir={trained_run.directory}", *flags)
    assert status == 0, err
    assert asked == ["average"]


def test_mistakes(analyze_command, trained_run, make_run, tmp_path, toy_corpus):
    run = trained_run.directory
    look, norms = ("attention", f"--output_dir={run}"), ("grad_norms", f"--output_dir={run}")
    (tmp_path / "two").write_text("a\n\n")
    (tmp_path / "one").write_text("a\n")
    other = text_encoder.SubwordEncoder(
        sentencepiece_model.train([text for pair in toy_corpus.train for text in pair], vocab_size=330)
    )
    foreign = run_directory.RunDirectory.create(
        tmp_path / "foreign", run_directory.RunDirectory.open(run).config, other, other
    )
    shutil.copytree(run / "checkpoints", foreign.checkpoints_dir)
    for flags, message in (
        ((), "The analysis comes first"),
        (("atention",), "Did you mean 'attention'"),
        (("--output_dir=x",), "The analysis comes first"),
        (("attention", "--sentence=x", f"--output_dir={tmp_path}/runn"), "There is no run directory"),
        (look, "are both missing"),
        ((*look, "--sentence= "), "--sentence is empty"),
        ((*look, "--sentence=x", "--reference="), "--reference is empty"),
        ((*look, "--sentence=x", f"--sentence_file={tmp_path}/one"), "exclude each other"),
        ((*look, f"--sentence_file={tmp_path}/two", f"--reference_file={tmp_path}/one"), "Unequal numbers of lines"),
        ((*look, "--sentence=x", "--layers=3"), "--layers=3: 3 is outside of the 2 layers"),
        ((*look, "--sentence=x", "--heads=0-9"), "--heads=0-9: 0-9 is outside of the 2 heads"),
        ((*look, "--sentence=x", "--attention=slef"), "Did you mean 'self'"),
        (
            (*look, "--sentence=x", "--reference=y", "--attention=mixed"),
            "has no mixed attention; it has: encoder, self",
        ),
        ((*look, f"--sentence={SOURCE}", "--max_subwords=3"), "too long for a picture"),
        ((*look, "--sentence=x", "--partner=y"), "--partner goes with --reference"),
        ((*look, "--sentence=x", "--reference=y", "--direction=r2l"), "generates l2r only"),
        ((*norms, run), "is given twice"),
        ((*norms, "--labels=a,b"), "2 labels for 1 runs"),
        ((*norms, "--from_step=61"), "lines are of steps 10 to 60"),
        ((*norms, "--batches=2"), "--batches goes with --split"),
        ((*norms, "--split=dve"), "has no dve split"),
        ((*norms, "--split=dev", "--to_step=3"), "give --checkpoint_path"),
        ((*norms, foreign.path, "--split=dev"), "different vocabularies"),
        (("grad_norms", f"--output_dir={foreign.path}"), "has no gradient_norms.jsonl"),
    ):
        status, _, err = analyze_command(*flags)
        assert (status, message in err) == (2, True), f"{flags}: {err}"


def test_the_end_of_a_sentence_is_no_subword_of_it():
    from t2t_ext.analysis.attention import sentences

    sentences._check_length([20, 21, text_encoder.EOS_ID], "It", "a b", 2)
    with pytest.raises(UserError, match="3 subwords, at most 2"):
        sentences._check_length([20, 21, 22, text_encoder.EOS_ID], "It", "a b c", 2)


@pytest.mark.parametrize("flags", [("attention", f"--sentence={SOURCE}"), ("grad_norms", "--split=dev")])
def test_an_output_directory_is_checked_before_the_model_is_loaded(
    analyze_command, trained_run, tmp_path, monkeypatch, flags
):
    (tmp_path / "file").write_text("")
    module = f"t2t_ext.bin._analyze_{flags[0]}"
    monkeypatch.setattr(f"{module}.start_tensorflow", lambda *_: pytest.fail("TensorFlow was started"))
    status, _, err = analyze_command(*flags, f"--output_dir={trained_run.directory}", f"--out_dir={tmp_path}/file")
    assert (status, "the directory cannot be written to" in err) == (2, True)


def test_two_directions_are_refused_before_the_model_is_loaded(make_run, tmp_path, capsys, monkeypatch):
    """The decoder refuses prefixes and alignments for a model of two directions before it starts TensorFlow."""
    run = make_run("synchronous_transformer")
    (tmp_path / "in.txt").write_text("a\n")
    monkeypatch.setattr("t2t_ext.bin.decoder.start_tensorflow", lambda *_: pytest.fail("TensorFlow was started"))
    for flag, name, message in (
        ("prefix_file", "in.txt", "Prefixes need a model"),
        ("alignment_file", "out.txt", "the alignment of a transl"),
    ):
        status = decoder.main(
            [f"--output_dir={run}", f"--decode_from_file={tmp_path}/in.txt", f"--{flag}={tmp_path}/{name}"]
        )
        assert (status, message in capsys.readouterr().err) == (2, True)


@pytest.mark.slow
def test_both_directions_write_and_look_at_each_other(analyze_command, make_run, tmp_path):
    run = make_run("synchronous_transformer", "sb_lambda=0.5")
    flags = ["--decode_hparams=max_length_ratio=1,max_length_offset=3", "--layers=1", "--attention=future"]
    status, out, err = analyze_command(
        "attention", f"--output_dir={run}", f"--sentence={SOURCE}", f"--out_dir={tmp_path}", *flags
    )
    assert status == 0, err
    sentence, maps = maps_of(tmp_path)
    assert out.splitlines() == [f"{side}: {text}" for side, text in sentence["targets"].items()]
    left, right = maps["future", 1, "mean", "l2r"], maps["future", 1, "mean", "r2l"]
    assert (left["columns"], right["columns"]) == (right["rows"], left["rows"])
