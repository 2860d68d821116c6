"""Tests of what resuming a run accepts and refuses, and of the checks before TensorFlow starts."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece

from t2t_ext import registry
from t2t_ext.bin import trainer
from t2t_ext.config import user_directory
from t2t_ext.config.training import TrainConfig
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.generation.generate import generate
from t2t_ext.errors import UserError
from t2t_ext.runs.checkpoints import list_checkpoints, save_checkpoint
from t2t_ext.runs.run_directory import RunDirectory
from t2t_ext.training import finished, setup_run

NEW = {
    "problem": "translate_parallel_text",
    "model": "transformer",
    "hparams_set": "transformer_test",
    "train_steps": 5,
}


@pytest.fixture
def files(toy_corpus):
    return {name: str(getattr(toy_corpus, name)) for name in ("train_source", "train_target")}


@pytest.fixture
def data_dir(files, tmp_path):
    problem = registry.problem("translate_parallel_text", **files)
    generate(problem, tmp_path / "data", tmp_path, vocab_size=340, num_processes=1, progress=False)
    return tmp_path / "data"


@pytest.fixture
def resolve(tmp_path):
    def call(options=None, **given):
        return setup_run.resolve(TrainConfig(output_dir=str(tmp_path / "run"), problem_options=options, **given))

    return call


@pytest.fixture
def make(resolve, data_dir):
    """Returns a function (options, given settings) -> RunDirectory of a new run without a checkpoint."""

    def call(options=None, **given):
        run = resolve(options, **{**NEW, **given}, data_dir=str(data_dir))
        return setup_run.open_run(run, GeneratedData.open(setup_run.make_problem(run), data_dir))

    return call


def add_checkpoint(run):
    path = run.checkpoints_dir / "model.ckpt-00000005"
    path.mkdir(parents=True)
    (path / "checkpoint.json").write_text("{}")
    assert list_checkpoints(run.path) == [path]


def test_options_given_again_must_be_those_that_are_stored(make, resolve, files):
    make(files)
    assert resolve().config.problem_options == files
    assert resolve(files).config.problem_options == files
    assert resolve({"train_source": files["train_source"]}).config.problem_options == files
    with pytest.raises(UserError, match=r"problem_options.source_language: None is stored, 'fr' is given"):
        resolve({"source_language": "fr"})
    with pytest.raises(UserError, match="problem: 'translate_parallel_text' is stored"):
        resolve({"train_source": "other"}, problem="translate_parallel_text_rev")
    # Another problem is refused for its name, not for options of the stored one that it lacks.
    with pytest.raises(UserError, match="problem: 'translate_parallel_text' is stored, 'translate_ende_cldr' is given"):
        resolve(problem="translate_ende_cldr")
    told = "--xla_compile needs batches of few shapes: begin a new run with batch_shapes=static, or length_groups=4, in"
    with pytest.raises(UserError, match=told):
        resolve(xla_compile=True)


def test_raw_text_may_have_another_path_but_not_be_another_file_of_an_archive(make, resolve, files, data_dir, capfd):
    """Raw text may move, since the digest of the data covers its content, but not become another archive member."""
    stored = make({**files, "dev_source": "dev.tar:en", "dev_target": "dev.tar:de"})
    moved = resolve({**files, "train_source": "moved"})
    setup_run.open_run(moved, GeneratedData.open(setup_run.make_problem(moved), data_dir))
    assert RunDirectory.open(stored.path).config.problem_options["train_source"] == "moved"
    said = capfd.readouterr().err
    assert f"train_source=moved is stored in place of {files['train_source']}; the run goes on with the data in" in said
    assert resolve({"dev_source": "moved/dev.tar:en"})
    with pytest.raises(UserError, match=r"problem_options.dev_source: 'dev.tar:en' is stored, 'dev.tar:fr' is given"):
        resolve({"dev_source": "dev.tar:fr"})


def test_data_that_are_gone_are_made_again_from_what_the_run_has_stored(make, files, data_dir, monkeypatch, capsys):
    run = make(files)
    shutil.rmtree(data_dir)
    monkeypatch.setattr(trainer, "start_tensorflow", lambda *args: pytest.fail("reached"))
    flags = ["--generate_data", "--vocab_size=340", "--num_processes=1"]
    with pytest.raises(pytest.fail.Exception, match="reached"):  # the data match the digest of the run
        trainer.main([f"--output_dir={run.path}", *flags])


def test_decode_hparams_without_effect_are_refused_unless_the_run_has_them(make, resolve):
    idle = "beam_size=4,extra_length=50"
    run = make()
    with pytest.raises(UserError, match="--decode_hparams: extra_length=50 is for length_limit=extra"):
        resolve(decode_hparams=idle)
    config = run.path / "config.json"
    content = json.loads(config.read_text())
    content["training"]["decode_hparams"] = idle  # as earlier versions allowed
    config.write_text(json.dumps(content))
    assert resolve().decode_hparams.extra_length == resolve(decode_hparams=idle).decode_hparams.extra_length == 50


@pytest.fixture
def own_process(monkeypatch):
    """Lets a test load a user directory as if it were a process of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(user_directory, "_loaded", [])
    monkeypatch.setattr(registry._hparams, "_entries", dict(registry._hparams._entries))


@pytest.mark.usefixtures("own_process")
def test_an_edited_set_of_the_users_is_said_to_have_no_effect(resolve, data_dir, tmp_path, capfd):
    folder, size = tmp_path / "usr", tmp_path / "size"
    folder.mkdir()
    (folder / "sets_that_are_edited.py").write_text(
        "import pathlib\nfrom t2t_ext import registry\n\n@registry.register_hparams\ndef transformer_edited():\n"
        f"    size = int(pathlib.Path({str(size)!r}).read_text())\n"
        "    return registry.hparams('transformer_test').replace(filter_size=size, batch_size=4 * size)\n"
    )
    size.write_text("40")
    given = {**NEW, "hparams_set": "transformer_edited", "hparams": "batch_size=99", "t2t_usr_dir": str(folder)}
    run = resolve(**given, data_dir=str(data_dir))
    setup_run.open_run(run, GeneratedData.open(setup_run.make_problem(run), data_dir))
    resolve(**given)
    assert "transformer_edited" not in capfd.readouterr().err
    size.write_text("48")
    registry._hparams._entries["transformer_edited"].value.cache_clear()  # as if another process read it
    assert resolve(t2t_usr_dir=str(folder)).hparams.filter_size == 40
    said = capfd.readouterr().err
    assert "transformer_edited of" in said
    assert "was made: filter_size is 48 now, the run has 40. The run goes on with its own values" in said


def test_what_is_given_again_and_stays_as_it_is_keeps_its_origin(make, resolve):
    run = make(hparams="batch_size=640")
    config = run.path / "config.json"
    content = json.loads(config.read_text())
    content["origins"]["batch_size"] = "auto: probed"
    config.write_text(json.dumps(content))
    assert resolve(hparams="batch_size=640").config.origins["batch_size"] == "auto: probed"
    assert resolve(hparams="batch_size=auto").hparams.batch_size == 640
    assert resolve(hparams="batch_size=320").config.origins["batch_size"] == "flag"


def test_a_set_that_the_model_does_not_take_is_told_before_its_pseudo_references(resolve, tmp_path):
    """They would be made in vain."""
    with pytest.raises(UserError, match="choose --model=asynchronous_transformer, or an hparams set"):
        resolve(**{**NEW, "hparams_set": "asynchronous_transformer_test"}, data_dir=str(tmp_path))


def test_a_transformer_with_the_set_of_another_model_is_told_once(make, resolve, capsys):
    said = "--hparams_set=dynamic_conv_test is made for --model=dynamic_conv"
    make(hparams_set="dynamic_conv_test")
    assert said in capsys.readouterr().err
    resolve()  # the run is resumed
    assert said not in capsys.readouterr().err


def test_warm_start_is_stored_and_may_be_given_again(make, resolve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = make(warm_start_from="first")
    first = str(tmp_path / "first")
    assert RunDirectory.open(run.path).config.warm_start_from == first
    # A run that was killed before its first checkpoint begins again.
    assert setup_run.first_weights(resolve()) == first
    assert setup_run.first_weights(resolve(warm_start_from="second")) == str(tmp_path / "second")
    add_checkpoint(run)
    assert setup_run.first_weights(resolve()) is None
    assert setup_run.first_weights(resolve(warm_start_from="first")) is None
    with pytest.raises(UserError, match=r"--warm_start_from=second: the run .* has checkpoints already"):
        resolve(warm_start_from="second")


def test_what_a_warm_start_keeps_is_stored_and_may_be_given_again(make, resolve):
    run = make(warm_start_from="first", warm_start_optimizer="keep")
    assert resolve().config.warm_start_optimizer == "keep"
    assert resolve(warm_start_optimizer="reset").config.warm_start_optimizer == "reset"
    add_checkpoint(run)
    assert resolve(warm_start_optimizer="keep").config.warm_start_optimizer == "keep"
    with pytest.raises(UserError, match="has checkpoints already; it began with keep"):
        resolve(warm_start_optimizer="reset")


def test_without_translations_the_loss_chooses_unless_the_user_does(make, resolve):
    make(eval_bleu_sentences=-1)
    assert resolve().settings.best_checkpoint_metric == "loss"
    assert resolve(best_checkpoint_metric="perplexity").settings.best_checkpoint_metric == "perplexity"
    with pytest.raises(UserError, match="best_checkpoint_metric=bleu needs translations, which --eval_bleu_sentences"):
        resolve(best_checkpoint_metric="bleu")


def test_a_metric_of_early_stopping_without_early_stopping_is_said_to_do_nothing(make, resolve, capfd):
    make(eval_early_stopping_metric_delta=0.5)
    assert (
        "--eval_early_stopping_metric_delta does nothing without --eval_early_stopping_steps=N"
        in capfd.readouterr().err
    )
    resolve(eval_early_stopping_steps=100)
    assert "does nothing" not in capfd.readouterr().err


def test_a_run_that_resumes_leaves_alone_what_others_are_writing_there(make, resolve, data_dir):
    stored, code = (
        make(),
        (
            "import sys\nfrom t2t_ext.io import files\nwith files.atomic_file(sys.argv[1]) as temporary:\n"
            "  temporary.write_text('line')\n  print('written', flush=True)\n  sys.stdin.readline()"
        ),
    )
    command = [sys.executable, "-c", code, str(stored.path / "translations")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as decoder:
        assert decoder.stdout.readline() == "written\n"
        run = resolve()
        setup_run.open_run(run, GeneratedData.open(setup_run.make_problem(run), data_dir))
        decoder.communicate("\n")
    assert decoder.returncode == 0
    assert (stored.path / "translations").read_text() == "line"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"warm_start_optimizer": "kepp", "warm_start_from": "first"}, "warm_start_optimizer is one of reset, keep"),
        ({"warm_start_optimizer": "keep"}, "there is no optimizer to keep without --warm_start_from=RUN"),
    ],
)
def test_what_a_warm_start_cannot_keep(make, given, told):
    with pytest.raises(UserError, match=told):
        make(**given)


def test_a_warm_start_comes_too_late_for_a_run_that_began(make, resolve):
    add_checkpoint(make())
    with pytest.raises(UserError, match="began with fresh weights"):
        resolve(warm_start_from="first")


def test_a_run_whose_checkpoints_are_gone_keeps_its_best(make, resolve):
    run = make()
    setup_run.check_checkpoints(resolve())  # it was killed before its first checkpoint
    add_checkpoint(run)
    shutil.copytree(run.checkpoints_dir, run.best_dir)
    setup_run.check_checkpoints(resolve())
    shutil.rmtree(run.checkpoints_dir)
    with pytest.raises(UserError, match=r"no checkpoint to resume from: .*best holds model\.ckpt-00000005"):
        setup_run.check_checkpoints(resolve())


def test_the_measurements_of_a_run_whose_checkpoints_are_gone_are_kept(make, resolve):
    run = make()
    trained = {"kind": "train", "step": 3}
    run.metrics_path.write_text(json.dumps(trained) + "\n")  # it was killed before its first checkpoint
    setup_run.check_checkpoints(resolve())
    run.metrics_path.write_text("".join(json.dumps(each) + "\n" for each in (trained, {"kind": "eval", "step": 5})))
    with pytest.raises(UserError, match=r"metrics\.jsonl has the measurements of a training up to step 5, which"):
        setup_run.check_checkpoints(resolve())
    add_checkpoint(run)
    setup_run.check_checkpoints(resolve())


def test_a_file_is_no_run(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(UserError, match="is a file"):
        setup_run.resolve(TrainConfig(output_dir=str(tmp_path / "run"), **NEW, data_dir="data"))


def test_a_path_that_is_not_utf_8_is_refused_before_anything_is_written(resolve, data_dir, tmp_path):
    with pytest.raises(UserError, match="is not UTF-8"):
        resolve(**NEW, data_dir=str(data_dir), train_command=(f"--data_dir={tmp_path}/d\udce9",))
    assert not (tmp_path / "run").exists()


def test_data_are_no_run(data_dir, resolve):
    for data in (data_dir, data_dir.parent / "others"):
        with pytest.raises(UserError, match=r"data holds generated data \(translate_parallel_text\) and is no run"):
            setup_run.resolve(TrainConfig(output_dir=str(data_dir), **NEW, data_dir=str(data)))
    run = resolve(**NEW, data_dir=str(data_dir), warm_start_from=str(data_dir))
    with pytest.raises(UserError, match=r"warm_start_from=.*data holds generated data .* from a run directory"):
        setup_run.check_first_weights(run)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vocab_size=400"], "--vocab_size: only for generating data"),
        (["--num_shards=2", "--separate_vocab"], "--num_shards, --separate_vocab: only"),
        (["--warm_start_from=/no/where"], "--warm_start_from=/no/where does not exist"),
        ([], "There are no data of translate_parallel_text"),
        (["--train_source=a.de", "--train_target=a.en"], "--train_source=a.de --train_target=a.en (with --tmp_dir=DIR"),
        (["--model=synchronous_transformer"], "SynchronousTransformer without both directions"),
        (["--hparams=learning_rate=0.0001"], "set learning_rate_constant, or a learning_rate_schedule with legacy"),
        (
            ["--distribution=tpu"],
            "--distribution=tpu needs batches of few shapes: add batch_shapes=static, or length_groups=4, to --hparams",
        ),
        (["--hparams=feature_positions=timing"], "feature_positions has no effect: the source of translate_parallel"),
    ],
)
def test_mistakes_are_found_before_tensorflow_starts(flags, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trainer, "start_tensorflow", lambda *args: pytest.fail("TensorFlow was started"))
    new = [f"--{name}={value}" for name, value in NEW.items()]
    status = trainer.main([*new, f"--data_dir={tmp_path}", f"--output_dir={tmp_path / 'run'}", *flags])
    assert status == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def finish(run, step=5, best=5):
    """Adds the checkpoints and the record of a finished run."""
    for folder in (run.checkpoints_dir, run.best_dir):
        save_checkpoint(folder, step if folder == run.checkpoints_dir else best, {"w": np.zeros(2, np.float32)})
    run.metrics_path.write_text(json.dumps({"kind": "eval", "step": step, "bleu": 1.0, "loss": 2.0}) + "\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "is at step 5 already, its --train_steps"),
        ({"train_steps": 5}, "is at step 5 already, its --train_steps"),
        ({"train_steps": 3}, "is at step 5 already, and --train_steps=3 ends no later"),
        ({"train_steps": 6}, ""),
        ({"best_checkpoint_metric": "loss"}, ""),  # may choose another checkpoint
        ({"hparams": "batch_size=100"}, ""),  # is refused later
    ],
)
def test_a_run_that_has_made_its_steps_says_so(make, resolve, given, said):
    finish(make())
    told = finished.message(resolve(**given))
    assert said in told
    assert bool(said) == bool(told)


def test_a_run_that_has_made_its_steps_stores_other_folders(make, resolve, files, data_dir, tmp_path):
    finish(make(files))
    shutil.copytree(data_dir, tmp_path / "copied")
    assert finished.message(resolve(data_dir=str(data_dir)))
    for other in (resolve(data_dir=str(tmp_path / "copied")), resolve({"train_source": "moved"})):
        assert not finished.message(other)


@pytest.mark.usefixtures("own_process")
def test_a_run_that_has_made_its_steps_stores_other_modules(make, resolve, tmp_path):
    sets = tmp_path / "usr" / "sets_of_a_finished_run.py"
    sets.parent.mkdir()
    sets.write_text("from t2t_ext import registry\n\n@registry.register_hparams\ndef own_set():\n    pass\n")
    finish(make(t2t_usr_dir=str(sets.parent)))
    assert finished.message(resolve(t2t_usr_dir=str(sets.parent)))
    with open(sets, "a") as file:
        file.write("# edited\n")
    assert finished.message(resolve())
    assert not finished.message(resolve(t2t_usr_dir=str(sets.parent)))


def test_what_a_kill_left_undone_is_done(make, resolve, monkeypatch):
    run = make()
    finish(run)
    assert finished.message(resolve())
    assert not finished.message(resolve(keep_checkpoint_max=1))
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert not finished.message(resolve())
    monkeypatch.delenv("TF_CONFIG")
    finish(run, best=4)
    assert not finished.message(resolve())
    shutil.rmtree(run.best_dir)
    finish(run)
    assert finished.message(resolve())
    run.metrics_path.write_text("")
    assert not finished.message(resolve())
    shutil.rmtree(run.checkpoints_dir)
    add_checkpoint(run)  # a damaged one
    assert not finished.message(resolve())


def test_the_trainer_keeps_what_is_stored_of_a_run_that_has_made_its_steps(make, monkeypatch, capsys):
    run = make()
    finish(run)
    monkeypatch.setattr(trainer, "_start_tensorflow", lambda *args: pytest.fail("TensorFlow starts"))
    before = (run.path / "config.json").read_bytes()
    assert trainer.main([f"--output_dir={run.path}", "--train_steps=3"]) == 0
    assert "Give a larger --train_steps to go on" in capsys.readouterr().err
    assert (run.path / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("model", "hparams_set", "told"),
    [
        ("synchronous_transformer", "synchronous_transformer_test", "needs the ids 3, 4 of the target's vocabulary"),
        ("asynchronous_transformer", "asynchronous_transformer_test", "needs the ids 3, 4, 5, 6, 7, 8, 9, 10 of"),
        ("transformer", "transformer_test", ""),
    ],
)
def test_text_in_the_place_of_control_symbols(files, resolve, tmp_path, model, hparams_set, told):
    """As in a user's own SentencePiece model."""
    with open(files["train_target"], encoding="utf-8") as text, open(tmp_path / "own.model", "wb") as own:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=text, model_writer=own, vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
            hard_vocab_limit=False, minloglevel=3,
        )  # fmt: skip
    problem = registry.problem("translate_parallel_text", **files)
    model_file = str(tmp_path / "own.model")
    generate(problem, tmp_path / "data", tmp_path, subword_model=model_file, num_processes=1, progress=False)
    given = {**NEW, "model": model, "hparams_set": hparams_set}
    given |= {"hparams": "pseudo=none"} if told else {}
    run = resolve(None, **given, data_dir=str(tmp_path / "data"))
    generated = GeneratedData.open(setup_run.make_problem(run), tmp_path / "data")
    if not told:
        setup_run.open_run(run, generated)
        return
    with pytest.raises(UserError, match=told) as caught:
        setup_run.open_run(run, generated)
    assert "--control_symbols=<l2r>,<r2l>,<reserved_0>" in str(caught.value)
    assert not RunDirectory.exists(run.output_dir)
