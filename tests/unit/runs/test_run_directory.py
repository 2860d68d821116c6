"""Tests of run directories: they hold what later commands need, and report what is wrong with them."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from t2t_ext.config.hyperparameters import HParams, hparam
from t2t_ext.errors import UserError
from t2t_ext.runs import run_directory
from t2t_ext.runs.run_directory import RunConfig, RunDirectory


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeHParams(HParams):
    hidden_size: int = hparam(8, "Width.")


@dataclasses.dataclass(frozen=True)
class FakeEncoder:
    model_bytes: bytes


def make_config(**changes):
    values = {
        "problem": "translate_ende_cldr",
        "model": "transformer",
        "hparams_set": "transformer_small",
        "hparams_class": run_directory.class_name(FakeHParams()),
        "hparams": {"hidden_size": 16},
        "data_dir": "data",
        "data_digest": "0" * 64,
        "random_seed": 1,
        "training": {"train_steps": 100, "keep_checkpoint_max": 3},
    }
    return RunConfig(**{**values, **changes})


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run", make_config(), FakeEncoder(b"source"), FakeEncoder(b"target"))


def test_an_empty_name_is_no_directory():
    with pytest.raises(UserError, match="No run directory was given"):
        RunDirectory.open("")


def test_what_is_created_is_opened(run):
    opened = RunDirectory.open(run.path)
    assert opened.config == run.config
    assert (run.path / "vocab.source.model").read_bytes() == b"source"
    assert (run.path / "vocab.target.model").read_bytes() == b"target"
    assert opened.hparams() == FakeHParams(hidden_size=16)
    assert set(opened.config.versions) >= {"t2t_ext", "tensorflow", "keras", "python"}
    assert opened.config.versions["keras"][0].isdigit()
    assert opened.checkpoints_dir == run.path / "checkpoints"


def test_creating_twice_is_refused(run):
    with pytest.raises(UserError, match="is a run already"):
        RunDirectory.create(run.path, make_config(), FakeEncoder(b"x"), FakeEncoder(b"x"))
    assert RunDirectory.open(run.path).config == run.config


def test_files_that_are_there_before_stay(tmp_path):
    (tmp_path / "log.txt").write_text("x")
    RunDirectory.create(tmp_path, make_config(), FakeEncoder(b"x"), FakeEncoder(b"x"))
    assert (tmp_path / "log.txt").read_text() == "x"


def test_missing_directory_suggests_its_neighbor(run):
    with pytest.raises(UserError, match=r"There is no run directory .*Did you mean 'run'\?"):
        RunDirectory.open(run.path.with_name("runn"))


def test_a_missing_directory_suggests_runs_alone(run):
    run.path.with_name("runs").mkdir()
    run.path.with_name("runn.log").write_text("")
    with pytest.raises(UserError) as raised:
        RunDirectory.open(run.path.with_name("runn"))
    assert "Did you mean 'run'? Train one" in str(raised.value)


def test_directory_that_is_no_run(run, tmp_path):
    with pytest.raises(UserError, match=r"is not a run directory.*These in it are: run\."):
        RunDirectory.open(tmp_path)
    run.checkpoints_dir.mkdir()
    with pytest.raises(UserError, match="Its parent is one"):
        RunDirectory.open(run.checkpoints_dir)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file, not a run directory"):
        RunDirectory.open(tmp_path / "file")
    assert not RunDirectory.exists(tmp_path)
    assert RunDirectory.exists(run.path)


def _edit(run, **changes):
    path = run.path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_newer_format_is_refused_even_with_fields_we_do_not_know(run):
    _edit(run, format_version=99, something_new=1, versions={"t2t_ext": "9.9"})
    with pytest.raises(UserError, match=r"format version 99, written by t2t_ext 9\.9"):
        RunDirectory.open(run.path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format_version": 1}', '{"format_version": "x"}'])
def test_damaged_configuration(run, content):
    (run.path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        RunDirectory.open(run.path)


def test_exchanged_or_missing_subword_model(run):
    (run.path / "vocab.target.model").write_bytes(b"another")
    with pytest.raises(UserError, match=r"vocab\.target\.model is not the subword model"):
        RunDirectory.open(run.path)
    (run.path / "vocab.target.model").unlink()
    with pytest.raises(UserError, match=r"lacks its subword model vocab\.target\.model"):
        RunDirectory.open(run.path)


def test_unknown_hparams_class(tmp_path):
    config = make_config(hparams_class="nowhere.at_all:HParams")
    run = RunDirectory.create(tmp_path / "run", config, FakeEncoder(b"x"), FakeEncoder(b"x"))
    with pytest.raises(UserError, match=r"The run .* cannot be read\. .*'nowhere\.at_all:HParams' is not a"):
        run.hparams()


def test_differences_name_both_values_and_what_may_change(run):
    given = make_config(
        hparams={"hidden_size": 32},
        model="other",
        data_dir="moved",
        training={"train_steps": 200, "keep_checkpoint_max": 3},
        train_command=["t2t_ext-trainer"],
    )
    rows = {row.name: row for row in run_directory.differences(run.config, given)}
    assert {name for name, row in rows.items() if not row.may_change} == {"hparams.hidden_size", "model"}
    assert {"data_dir", "training.train_steps", "train_command"} <= set(rows)
    assert str(rows["hparams.hidden_size"]) == "hparams.hidden_size: 16 is stored, 32 is given"
    with pytest.raises(UserError, match=r"hidden_size: 16 is stored, 32 is given; model: 'transformer' is stored"):
        run_directory.check_resumable(run.config, given, run.path)


def test_other_data_are_said_in_words(run):
    for moved, said in (
        ("moved", r"--data_dir=moved holds other data than the run .* was trained with, which were in data"),
        (run.config.data_dir, f"--data_dir={run.config.data_dir} holds other data .*: they were generated anew since"),
    ):
        given = run.config.replace(data_dir=moved, data_digest="1" * 64)
        with pytest.raises(UserError, match=said) as raised:
            run_directory.check_resumable(run.config, given, run.path)
        assert "digest" not in str(raised.value)


def test_equal_settings_differ_in_nothing_after_a_round_trip(run):
    given = make_config(hparams={"hidden_size": 16}, created=run.config.created)
    assert run_directory.differences(RunDirectory.open(run.path).config, given) == []


def test_update_stores_what_may_change_only(run):
    changed = run.config.replace(training={"train_steps": 200, "keep_checkpoint_max": 3})
    run.update(changed)
    assert RunDirectory.open(run.path).config.training["train_steps"] == 200
    with pytest.raises(UserError, match="random_seed: 1 is stored, 2 is given"):
        run.update(changed.replace(random_seed=2))
    assert RunDirectory.open(run.path).config.random_seed == 1
    assert sorted(os.listdir(run.path)) == ["config.json", "vocab.source.model", "vocab.target.model"]


def test_imports_no_tensorflow():
    program = "import sys; from t2t_ext.runs import run_directory, checkpoints; run_directory.package_versions()"
    program += "; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_moved_modules_are_taken_from_where_they_are_now(run, tmp_path):
    """A run whose modules' folder is gone uses the folder that the command was given instead."""
    modules = tmp_path / "moved_modules_of_a_run"
    modules.mkdir()
    (modules / "sets.py").write_text(
        "from t2t_ext import registry\n"
        "from t2t_ext.config.hyperparameters import TransformerHParams\n"
        "@registry.register_hparams\n"
        "def moved_set_of_a_run() -> TransformerHParams:\n"
        "    return registry.hparams('transformer_test')\n"
    )
    program = (
        "import sys\n"
        "from t2t_ext import registry\n"
        "from t2t_ext.errors import UserError\n"
        "from t2t_ext.runs.run_directory import RunDirectory\n"
        "run = RunDirectory.open(sys.argv[1])\n"
        "run = RunDirectory(run.path, run.config.replace(t2t_usr_dir='/is/gone'))\n"
        "try:\n"
        "    run.load_user_code()\n"
        "    sys.exit('a missing folder must be an error')\n"
        "except UserError as error:\n"
        "    assert '/is/gone' in str(error)\n"
        "registry.load_user_directory(sys.argv[2])\n"
        "run.load_user_code()\n"
        "registry.hparams('moved_set_of_a_run')\n"
    )
    command = [sys.executable, "-c", program, str(run.path), str(modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_classes_of_hparams_that_have_moved(tmp_path):
    """A run of an earlier version, whose hparams class has moved since, opens without differences and can resume."""
    from t2t_ext.config.hyperparameters import TransformerHParams

    hparams = TransformerHParams(hidden_size=64)
    now = make_config(hparams_class=run_directory.class_name(hparams), hparams=hparams.to_dict())
    assert "t2t_ext.config.hyperparameters" in now.to_json()
    stored = now.to_json().replace("t2t_ext.config.hyperparameters", "t2t_ext.hyperparameters")
    opened = run_directory.RunConfig.from_json(stored)
    assert run_directory.differences(opened, now) == []
    assert TransformerHParams.from_dict(json.loads(stored)["hparams"]) == hparams
