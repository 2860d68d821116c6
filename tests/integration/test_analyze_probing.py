"""Tests of t2t_ext-analyze probing and divergence through the real command, on tiny runs."""

import dataclasses
import json

import numpy as np
import pytest
from random_weights import random_arrays

from t2t_ext.bin import analyze
from t2t_ext.runs import checkpoints, run_directory


@pytest.fixture(scope="module")
def dual_runs(tiny_run, tiny_encoder, tmp_path_factory):
    """Returns two runs with random weights and dual contextual modules in both stacks, with kernel sizes 2 and 3."""
    from t2t_ext import registry

    stored = run_directory.RunDirectory.open(tiny_run.path).config
    runs = []
    for size in (2, 3):
        hparams = registry.hparams("dual_context_test").override(f"dc_kernel_size={size}")
        model = registry.model("dual_context_transformer")(
            hparams, source_vocab_size=tiny_encoder.vocab_size, target_vocab_size=tiny_encoder.vocab_size
        )
        model.build()
        config = dataclasses.replace(
            stored,
            model="dual_context_transformer",
            hparams_set="dual_context_test",
            hparams_class=run_directory.class_name(hparams),
            hparams=hparams.to_dict(),
        )
        path = tmp_path_factory.mktemp("dual") / f"kernel{size}"
        run = run_directory.RunDirectory.create(path, config, tiny_encoder, tiny_encoder)
        checkpoints.save_checkpoint(run.checkpoints_dir, 5, random_arrays(model, seed=size, scale=2.0))
        runs.append(run.path)
    return runs


@pytest.fixture(scope="module")
def task_dir(toy_corpus, tmp_path_factory):
    """Returns the directory of the probing tasks that the real command builds from the toy corpus."""
    directory = tmp_path_factory.mktemp("tasks")
    corpus = directory / "corpus.txt"
    corpus.write_text("".join(f"{source}\n" for source, _ in toy_corpus.train))
    flags = ["--build_tasks=bigram_shift,word_content", "--build_words=3", "--build_first_rank=12"]
    sizes = ["--build_sizes=150,30,60", f"--out_dir={directory}/built"]
    assert analyze.main(["probing", f"--build_from={corpus}", *flags, *sizes]) == 0
    return directory / "built"


@pytest.mark.slow
def test_probing_of_two_runs(analyze_command, tiny_run, dual_runs, task_dir, tmp_path, monkeypatch):
    flags = [f"--output_dir={tiny_run.path},{dual_runs[0]}", f"--probing_dir={task_dir}", f"--out_dir={tmp_path}",
             "--labels=base,dual", "--epochs=25", "--learning_rate=0.01", "--max_train_sentences=140",
             "--seeds=2"]  # fmt: skip
    status, out, err = analyze_command("probing", *flags)
    assert status == 0, err
    assert "mean, surface (1 of 2)" in out
    content = json.loads((tmp_path / "probing.json").read_text())
    assert [task["task"] for task in content["tasks"]] == ["WC", "BShift"]
    for task in content["tasks"]:
        assert task["sentences"] == {"tr": 140, "va": 30, "te": 60}
        for found in task["runs"].values():
            assert found["accuracy"] == pytest.approx(np.mean(found["accuracies_by_seed"]))
            assert len(found["accuracies_by_seed"]) == len(found["best_epochs"]) == 2
            assert found["interval"][0] <= found["accuracy"] <= found["interval"][1]
        assert task["runs"]["dual"]["compared"]["test"] == "paired bootstrap over test sentences"
    assert content["settings"]["seeds"] == 2
    # The mean of the states tells which of three words a sentence contains, if the states belong to that sentence.
    assert content["tasks"][0]["majority"] == pytest.approx(1 / 3)
    assert content["tasks"][0]["runs"]["base"]["accuracy"] > 0.6
    kept = list((tiny_run.path / "analysis" / "probing" / "features").iterdir())
    assert sorted(path.name.split("-")[0] for path in kept) == ["bigram_shift", "word_content"]
    assert np.load(kept[0]).shape == (230, 16)
    # A second call uses the stored features and gives the same results.
    monkeypatch.setattr("t2t_ext.translation.translator.Translator.load", lambda *_: pytest.fail("a model was loaded"))
    assert analyze_command("probing", *flags, "--probing_dir=", f"--tasks={task_dir}/word_content.txt")[0] == 0
    assert json.loads((tmp_path / "probing.json").read_text())["tasks"] == content["tasks"][:1]


@pytest.mark.slow
def test_divergence_of_two_kernel_sizes(analyze_command, dual_runs, toy_corpus, tmp_path):
    status, out, err = analyze_command(
        "divergence", f"--output_dir={dual_runs[0]}", dual_runs[1], "--split=dev", "--sentences=10",
        f"--out_dir={tmp_path}/split",
    )  # fmt: skip
    assert status == 0, err
    content = json.loads((tmp_path / "split" / "divergence.json").read_text())
    assert [run["label"] for run in content["runs"]] == ["f=2", "f=3"]
    assert "== Encoder\nrun  f" in out
    assert "== Decoder\nrun  f" in out
    for run in content["runs"]:
        for found in run["stacks"].values():
            means = [layer["mean"] for layer in found["layers"].values()]
            assert len(means) == 2
            assert all(0 < mean < np.log(2) for mean in means)
            assert found["E_d"]["mean"] == pytest.approx(np.mean(means))
            assert found["sentences"] == 10
    (tmp_path / "in.txt").write_text("".join(source + "\n" for source, _ in toy_corpus.dev[:10]) + "\n")
    status, _, err = analyze_command("divergence", f"--output_dir={dual_runs[0]}", f"--sentence_file={tmp_path}/in.txt")
    assert status == 0, err
    assert "1 of 11 sentences are empty or have more than 200 subwords" in err
    assert "f=2: the modules of its decoder are not measured: give --reference_file, or --split" in err
    alone = json.loads((dual_runs[0] / "analysis" / "divergence" / "divergence.json").read_text())["runs"][0]["stacks"]
    assert list(alone) == ["encoder"]
    assert alone["encoder"]["E_d"]["mean"] == pytest.approx(content["runs"][0]["stacks"]["encoder"]["E_d"]["mean"])


def test_mistakes(analyze_command, tiny_run, dual_runs, task_dir, tmp_path):
    run = f"--output_dir={tiny_run.path}"
    probing, divergence = ("probing", run), ("divergence", run)
    for flags, message in (
        (("probing", f"--tasks={task_dir}/bigram_shift.txt"), "No run was given"),
        (probing, "are both missing"),
        ((*probing, "--tasks=a", f"--probing_dir={task_dir}"), "exclude each other"),
        ((*probing, f"--probing_dir={task_dir}x"), "There is no directory"),
        ((*probing, f"--tasks={tmp_path}/none.txt"), "There is no file"),
        ((*probing, f"--probing_dir={task_dir}", "--layer=3"), "has 2 layers"),
        ((*probing, f"--probing_dir={task_dir}", "--layer=last"), "write top, or the number"),
        ((*probing, f"--probing_dir={task_dir}", "--learning_rate=0"), "--learning_rate=0 must be a positive number"),
        ((*probing, tiny_run.path, f"--probing_dir={task_dir}"), "is given twice"),
        ((*probing, f"--probing_dir={task_dir}", "--labels=a,b"), "2 labels for 1 runs"),
        ((*probing, "--build_words=5"), "--build_words goes with --build_from"),
        (("probing", "--build_from=x", run), "probes no run"),
        (("probing", "--build_from=x", "--out_dir=y", "--build_sizes=5,5"), "write three numbers"),
        (("probing", "--build_from=x", "--out_dir=y", "--build_tasks=top_constituents"), "needs a parser"),
        (("probing", f"--build_from={tmp_path}/none", f"--out_dir={tmp_path}/y"), "There is no file"),
        (("probing", f"--build_from={task_dir}/bigram_shift.txt", f"--out_dir={task_dir}"), "would be written over"),
        (divergence, "are both missing"),
        ((*divergence, "--split=dev"), "has no dual contextual module"),
        ((*divergence, "--split=dev", "--reference_file=x"), "--reference_file goes with --sentence_file"),
        (("divergence", f"--output_dir={dual_runs[0]}", "--split=dev", "--max_subwords=2"), "no sentence has from 1"),
    ):
        status, _, err = analyze_command(*flags)
        assert (status, message in err) == (2, True), f"{flags}: {err}"


def test_an_output_directory_is_checked_before_the_model_is_loaded(
    analyze_command, dual_runs, task_dir, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    flags = f"--output_dir={dual_runs[0]}", f"--out_dir={tmp_path}/file"
    loads = "t2t_ext.translation.translator.Translator.load"
    monkeypatch.setattr(loads, lambda *_: pytest.fail("the model was loaded"))
    for more in (("probing", f"--probing_dir={task_dir}"), ("divergence", "--split=dev")):
        status, _, err = analyze_command(*more, *flags)
        assert (status, "the directory cannot be written to" in err) == (2, True)
