"""Tests of pipeline stages: their progress, and what is refused so that no costly result is lost or confused."""

import dataclasses
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from t2t_ext.bin import experiment
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import ScoreRecord, ScoreTable
from t2t_ext.experiments import report, results
from t2t_ext.experiments import stages as stages_module
from t2t_ext.experiments.conduct import run_stages, wanted_stages
from t2t_ext.experiments.plan import Options, plan
from t2t_ext.experiments.stages import (
    Interrupted,
    _end_orphan,
    check_unchanged,
    run_stage,
    score_record,
    state_of,
)
from t2t_ext.io import files, locks

BOOK = experiment.recipe_book()
RECIPE = BOOK.recipe("cldr_synchronous")


def make(tmp_path, **changes):
    """Returns the stages of the small pipeline by kind and owner."""
    stages = plan(RECIPE, BOOK, Options(work_dir=tmp_path, **changes))
    return {(stage.kind, stage.owner.removeprefix("cldr_synchronous")): stage for stage in stages}


def note(stage, second, status="done"):
    """Writes the marker of a stage, and something in the place of its result."""
    stage.folder.mkdir(parents=True, exist_ok=True)
    if stage.output.suffix == ".json":
        stage.output.parent.mkdir(parents=True, exist_ok=True)
        stage.output.write_text("{}")
    else:
        stage.output.mkdir(parents=True, exist_ok=True)
    content = {
        "key": stage.key, "flags": stage.counted_flags(), "status": status,
        "time": f"2026-01-01T00:00:{second:02}+00:00",
    }  # fmt: skip
    stage.marker.write_text(json.dumps(content))


@pytest.fixture
def stages(tmp_path, monkeypatch):
    """Returns the stages of the small pipeline, all done, one second after the other."""
    monkeypatch.setattr(stages_module, "_is_complete", lambda stage: stage.output.exists())
    found = make(tmp_path)
    for second, stage in enumerate(found.values()):
        note(stage, second)
    return found


def test_pseudo_references_of_other_teachers_are_not_replaced_silently(stages, tmp_path):
    assert state_of(stages["pseudo", ""]).word == "done"
    changed = make(tmp_path, hparams={"hidden_size": "64"})
    assert state_of(changed["pseudo", ""]).word == "changed"
    with pytest.raises(UserError, match=r"train, seed 1 of cldr_synchronous_l2r.* was made with other settings"):
        check_unchanged(list(changed.values()), ["train"])  # only that recipe may train its own run again
    with pytest.raises(UserError, match="--recipe=cldr_synchronous_l2r --redo=train"):
        check_unchanged(list(changed.values()), ["train"])


def test_a_marker_without_its_time_is_damaged(stages):
    marker = stages["train", ""].marker
    content = json.loads(marker.read_text())
    del content["time"]
    marker.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{marker} is damaged \(it lacks 'time'\). Restore it"):
        state_of(stages["train", ""])


def test_a_teacher_that_was_trained_anew_makes_what_it_taught_out_of_date(stages):
    check_unchanged(list(stages.values()), [])
    note(stages["train", "_l2r"], 50)
    note(stages["average", "_l2r"], 51)
    state = state_of(stages["pseudo", ""])
    assert state.word == "changed"
    assert state.differences == ("'train, seed 1 of cldr_synchronous_l2r' was made again since",)
    with pytest.raises(UserError, match=r"was made again since.*--redo=pseudo"):
        check_unchanged(list(stages.values()), [])
    # The run that was trained on them would be lost with them, so --redo must name it, too.
    with pytest.raises(UserError, match=r"was made from what --redo=pseudo makes again .*Add train to --redo"):
        check_unchanged(list(stages.values()), ["pseudo"])
    check_unchanged(list(stages.values()), ["pseudo", "train"])
    # Generating the data again gives the same data, so later stages stay valid.
    note(stages["data", ""], 59)
    assert state_of(stages["train", "_r2l"]).differences == ()


def test_the_average_of_the_same_run_is_the_same(stages):
    note(stages["average", "_l2r"], 51)
    assert state_of(stages["pseudo", ""]).word == "done"
    check_unchanged(list(stages.values()), [])


def test_what_was_made_from_a_lost_run_is_not_made_again_unasked(stages):
    teacher, student = stages["train", "_l2r"], stages["train", ""]
    shutil.rmtree(teacher.output)
    message = rf"made from 'train, seed 1 of cldr_synchronous_l2r', whose result, {teacher.output}, is missing"
    with pytest.raises(UserError, match=message):
        check_unchanged(list(stages.values()), [])
    with pytest.raises(UserError, match=message):  # the student would be removed after the pseudo references
        check_unchanged(list(stages.values()), ["pseudo"])
    check_unchanged(list(stages.values()), ["pseudo", "train"])

    note(teacher, 50)  # trained again by another command, after this one had begun
    note(stages["pseudo", ""], 51)
    (student.output / "kept").touch()
    with pytest.raises(UserError, match=r"'pseudo.* was made again since.*--redo=train"):
        run_stage(student, "1/1", print)
    assert (student.output / "kept").exists()


def test_what_another_process_is_at_is_neither_done_twice_nor_removed(stages):
    stage = stages["train", "_l2r"]
    note(stage, 50, status="begun")
    with locks.held(stage.marker.with_suffix(".lock"), "is running it"):
        with pytest.raises(UserError, match=r"Another process is running the stage 'train, seed 1.*\(process \d+ on"):
            run_stage(stage, "1/1", print)
    with subprocess.Popen(["true"]) as killed:
        killed.wait()
    leftover = (
        stage.folder / f".{stage.marker.name}.tmp-{socket.gethostname()[:40]}_{killed.pid}_{files._process_table()}0000"
    )
    leftover.touch()
    with locks.in_directory(stage.output, "trains"):
        with pytest.raises(UserError, match=r"is to be made again, but process \d+ on this machine.* is at work there"):
            run_stage(stage, "1/1", print, redo=True)
    assert stage.output.is_dir()
    assert stage.marker.exists()
    assert not leftover.exists()
    score = stages["score", "_l2r"]
    with locks.held(score.output.with_name(f".{score.output.name}.lock"), "translates"):  # a translate-all's
        with pytest.raises(UserError, match=r"is to be made again, but .* is at work there"):
            run_stage(score, "1/1", print, redo=True)
    assert score.output.is_dir()


def without_commands(monkeypatch, status=0):
    """Replaces the commands of stages by a function that makes their output; returns the titles in order."""
    carried_out = []

    def carry_out(stage, say):
        carried_out.append(stage.title)
        note(stage, 0, status="begun")
        return (status() if callable(status) else status), "it failed"

    monkeypatch.setattr("t2t_ext.experiments.stages._run", carry_out)
    monkeypatch.setattr("t2t_ext.experiments.stages._is_complete", lambda stage: stage.output.exists())
    return carried_out


def test_scores_of_weights_that_are_no_more_are_removed(stages, monkeypatch, tmp_path):
    carried_out = without_commands(monkeypatch)
    stage = stages["score", "_l2r"]
    translation = stage.output / "model.ckpt-00000999.txt"
    translation.touch()
    assert not run_stage(stage, "1/1", print)
    assert translation.exists()
    assert run_stage(stage, "1/1", print, again=True)  # its run was trained again
    assert not translation.exists()
    # Another protocol scores the same translations; another search makes others.
    for flag, kept in (("scoring", True), ("decode_hparams", False)):
        note(stage, 0)
        translation.touch()
        changed = dataclasses.replace(stage, flags={**stage.flags, flag: "x"}, key="other")
        assert run_stage(changed, "1/1", print)
        assert translation.exists() == kept
    assert len(carried_out) == 3


def test_an_interrupted_redo_goes_on(stages, monkeypatch, tmp_path):
    """Each result is removed only once, even if its command was interrupted."""
    statuses = [0, 130, 0, 0]
    carried_out = without_commands(monkeypatch, lambda: statuses.pop(0))
    wanted = [stage for stage in stages.values() if stage.kind in ("data", "train")]
    wanted = [dataclasses.replace(stage, owner="") for stage in wanted]
    made = wanted[-1].output / "made"
    for stage in wanted:
        note(stage, 0)
    said = []
    with pytest.raises(Interrupted):
        run_stages(wanted, wanted, ["train"], tmp_path, said.append)
    made.touch()
    half_done = wanted[2].output / "checkpoint"
    half_done.touch()
    assert len(list(tmp_path.glob("redo.*.json"))) == 1
    run_stages(wanted, wanted, ["train"], tmp_path, said.append)
    titles = [stage.title for stage in wanted]
    assert carried_out == [titles[1], titles[2], titles[2], titles[3]]
    assert half_done.exists()
    assert not made.exists()
    assert any("--redo=train goes on where it was interrupted" in line for line in said)
    assert not list(tmp_path.glob("redo.*.json"))


def test_a_redo_that_is_interrupted_after_its_trainings_keeps_them(stages, monkeypatch, tmp_path):
    statuses = [0, 0, 130, 0, 0]
    carried_out = without_commands(monkeypatch, lambda: statuses.pop(0))
    wanted = [dataclasses.replace(stages[kind, "_l2r"], owner="") for kind in ("train", "average", "score")]
    with pytest.raises(Interrupted):
        run_stages(wanted, wanted, ["train"], tmp_path, print)
    trained = wanted[0].output / "checkpoint"
    trained.touch()
    run_stages(wanted, wanted, ["train"], tmp_path, print)
    assert carried_out == [wanted[place].title for place in (0, 1, 2, 2)]
    assert trained.exists()
    assert not list(tmp_path.glob("redo.*.json"))


def test_a_redo_that_was_finished_otherwise_begins_anew(stages, monkeypatch, tmp_path):
    wanted = [dataclasses.replace(stages["train", "_l2r"], owner="")]
    said = []
    without_commands(monkeypatch, 130)
    with pytest.raises(Interrupted):
        run_stages(wanted, wanted, ["train"], tmp_path, said.append)
    note(wanted[0], 0)  # a command without --redo has finished it
    carried_out = without_commands(monkeypatch)
    run_stages(wanted, wanted, ["train"], tmp_path, said.append)
    assert not any("goes on" in line for line in said)
    assert carried_out == [wanted[0].title]


def test_a_redo_goes_on_with_settings_that_have_changed_since(stages, monkeypatch, tmp_path):
    wanted = [dataclasses.replace(stages["train", "_l2r"], owner="")]
    without_commands(monkeypatch, 130)
    with pytest.raises(Interrupted):
        run_stages(wanted, wanted, ["train"], tmp_path, print)
    note(wanted[0], 0, status="begun")
    (wanted[0].output / "old").touch()
    monkeypatch.setattr(stages_module, "_changes_of_hparams", lambda stage: ("hidden_size of a set",))
    without_commands(monkeypatch)
    run_stages(wanted, wanted, ["train"], tmp_path, print)
    assert not (wanted[0].output / "old").exists()


def test_scores_that_were_begun_before_their_run_was_trained_again_are_removed(stages, monkeypatch):
    without_commands(monkeypatch)
    stage = stages["score", "_l2r"]
    translation = stage.output / "model.ckpt-00000999.txt"
    for second, kept in ((0, False), (59, True)):
        note(stage, second, status="begun")
        translation.touch()
        note(stages["train", "_l2r"], 50)
        note(stages["average", "_l2r"], 51)
        assert state_of(stage).word == ("begun" if kept else "changed")
        assert run_stage(stage, "1/1", print)
        assert translation.exists() == kept


def test_a_redo_of_other_recipes_runs_alone_is_refused(stages):
    every = list(stages.values())
    with pytest.raises(UserError, match="--redo=train does nothing with --until=pseudo"):
        wanted_stages(every, until="pseudo", redo=["train"])
    assert wanted_stages(every, until="train", redo=["train"])


def test_reranking_is_scored_by_its_report(tmp_path):
    (stage,) = (each for each in plan(RECIPE, BOOK, Options(work_dir=tmp_path)) if each.command == "rerank")
    assert score_record(stage) is None
    stage.folder.mkdir(parents=True)
    scores = [{"name": "BLEU", "value": 12.5, "signature": "nrefs:1"}]
    winners = {"l2r": 0.5, "r2l": 0.25, "both": 0.25}
    content = {"lines": 100, "seconds": 4.0, "winners": winners, "scores": {"reranked": scores}}
    stage.output.write_text(json.dumps(content))
    record = score_record(stage)
    assert (record.scores, record.lines, record.seconds) == ({"BLEU_cased": 12.5}, 100, 4.0)
    figures = {figure.name: figure for figure in results.collect(BOOK.recipe("cldr_synchronous_rerank"), [stage])}
    assert (figures["test"].mean, figures["sentences_per_second"].mean) == (12.5, 25.0)
    stage.output.write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        score_record(stage)


def test_a_report_of_beams_puts_systems_side_by_side(tmp_path):
    recipe = BOOK.recipe("synchronous_pipeline")
    options = Options(work_dir=tmp_path, beams=(2, 8))
    stages = plan(recipe, BOOK, options)
    values = iter((30.0, 31.0, 28.0, 29.5, 27.0, 26.0))
    for stage in stages:
        if stage.command == "translate-all":
            ScoreTable(stage.output).add(
                ScoreRecord(
                    step=10, checkpoint="model.ckpt-10", weights="", search="", scoring="", translations="x.txt",
                    lines=10, seconds=2.0, scores={"BLEU_cased": next(values)}, signatures={"BLEU_cased": "nrefs:1"},
                )
            )  # fmt: skip
    figures = results.collect(recipe, stages)
    beside = {name: results.collect(BOOK.recipe(name), stages) for name in recipe.beside}
    rows = {name: BOOK.recipe(name).row for name in recipe.beside}
    text = report.write_report(recipe, BOOK.paper(recipe), figures, stages, options, beside, rows)
    assert "NOT the recipe's setting: --beams=2,8" in text  # nothing is published
    lines = [line.split() for line in text.partition("Side by side")[2].splitlines()]
    rows = {cells[0]: cells[1:3] for cells in lines if cells and cells[0].startswith("synchronous_pipeline")}
    assert rows == {
        "synchronous_pipeline_l2r": ["28.00", "29.50"], "synchronous_pipeline_r2l": ["27.00", "26.00"],
        "synchronous_pipeline_rerank": ["-", "-"], "synchronous_pipeline": ["30.00", "31.00"],
    }  # fmt: skip
    assert (tmp_path / recipe.name / "report.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / recipe.name / "report.json").read_text())
    assert [figure["mean"] for figure in stored["beside"]["synchronous_pipeline_l2r"]][:2] == [28.0, 29.5]


@pytest.mark.parametrize("host", ["here", "elsewhere", None, "another run's"])
def test_what_a_killed_experiment_left_running_is_ended_on_this_machine(stages, host):
    stage = stages["train", "_l2r"]
    content = json.loads(stage.marker.read_text())
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", "t2t_ext.bin.trainer"]
    command += ["--output_dir=another"] if host == "another run's" else stage.arguments
    with subprocess.Popen(command, stdout=subprocess.PIPE) as left:
        left.stdout.readline()
        more = {} if host is None else {"host": "elsewhere" if host == "elsewhere" else socket.gethostname()}
        stage.marker.write_text(json.dumps({**content, "status": "begun", "pid": left.pid, **more}))
        threading.Thread(target=left.wait, daemon=True).start()
        _end_orphan(stage, print)
        if host in ("elsewhere", "another run's"):  # there, the process id belongs to another process
            left.kill()
            assert left.wait(10) == -signal.SIGKILL
        else:
            assert left.wait(10) == -signal.SIGTERM


def test_a_command_ends_with_the_experiment_that_cannot_note_it(tmp_path, monkeypatch):
    started = []
    popen = subprocess.Popen

    def sleeper(command, **options):
        started.append(popen([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        return started[0]

    def full(stage, status, **notes):
        raise UserError("Cannot write it: the disk is full.")

    monkeypatch.setattr(subprocess, "Popen", sleeper)
    monkeypatch.setattr("t2t_ext.experiments.stages._write_marker", full)
    with pytest.raises(UserError, match="the disk is full"):
        run_stage(make(tmp_path)["data", ""], "1/1", lambda text: None)
    assert started[0].poll() == -signal.SIGTERM
