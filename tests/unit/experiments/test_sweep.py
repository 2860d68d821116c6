"""Tests of sweeps: which texts count as the same, and that two sweeps do not disturb each other."""

import json
import pathlib
import socket
import types

import numpy as np
import pytest

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.features.sources import FeatureSource
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import ScoreRecord, digest
from t2t_ext.experiments.sweep import Sweep, SweepConfig
from t2t_ext.io import locks


def sweep(tmp_path, sources, said=print, parent=None, **search):
    config = SweepConfig(
        name="in",
        sources=sources,
        scorer=types.SimpleNamespace(settings=lambda: {}),
        decode_hparams=DecodeHParams(**search),
        parent=parent,
    )
    return Sweep(types.SimpleNamespace(path=tmp_path / "run"), config, said)


def features(value):
    return [FeatureSource("1", np.full([2, 3], value, np.float32))]


def record_of(made):
    return ScoreRecord(
        step=10, checkpoint="model.ckpt-10", weights="w", search=made._search, scoring="p", translations="10.txt",
        lines=1, seconds=1.0, scores={"BLEU": 1.0}, signatures={},
    )  # fmt: skip


def test_other_feature_vectors_of_the_same_name_are_another_text(tmp_path):
    first = sweep(tmp_path, features(1.0))
    first.table.add(record_of(first))
    assert sweep(tmp_path, features(1.0))._search == first._search
    said = []
    with pytest.raises(UserError, match="not a run directory"):  # no run exists that could translate the text
        sweep(tmp_path, features(2.0), said.append).run()
    assert "step 10 was translated from another text" in said[0]
    assert (first.table.folder.parent / "in.beam4.alpha0.6.old" / "scores.jsonl").exists()
    wider = [FeatureSource("1", np.full([3, 2], 1.0, np.float32))]
    assert sweep(tmp_path, wider)._search != first._search


def test_the_digest_of_a_text_is_that_of_its_lines(tmp_path):
    settings = {**DecodeHParams().to_dict(), "class": "t2t_ext.hyperparameters:DecodeHParams"}
    del settings["batch_size"]
    assert sweep(tmp_path, ["a", "b"])._search == digest([settings, ["a", "b"]])


def test_two_processes_do_not_work_on_one_folder(tmp_path):
    made = sweep(tmp_path, ["a"])
    lock = made.table.folder.parent / ".in.beam4.alpha0.6.lock"
    assert not lock.exists()
    with locks.held(lock, "is another"):
        with pytest.raises(UserError, match=r"Another process translates into .*in\.beam4.* --translations_dir of its"):
            made.run()
        with pytest.raises(UserError, match="Another process translates into"):
            sweep(tmp_path, ["b"])
    # The lock of a killed process is taken over.
    lock.write_text(json.dumps({"host": socket.gethostname(), "pid": 2**22 + 1, "since": ""}))
    again = sweep(tmp_path, ["a"])
    # Records that another process has added since are known.
    made.table.add(record_of(made))
    assert not again.table.records
    again._run_alone = lambda progress: again.table
    assert [record.step for record in again.run().records] == [10]
    assert not lock.exists()


def test_a_shortlist_in_the_home_folder_counts_by_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    found = set()
    for content in (b"a", b"b"):
        (tmp_path / "list.npz").write_bytes(content)
        found.add(sweep(tmp_path, ["a"], shortlist="~/list.npz")._search)
    assert len(found) == 2


def test_sweeps_into_several_folders_have_curves_of_their_own(tmp_path):
    folders = [None, tmp_path / "a", tmp_path / "b"]
    boards = [sweep(tmp_path, ["a"], parent=folder).board_dir for folder in folders]
    assert boards[0] == tmp_path / "run" / "tensorboard" / "translations" / "in.beam4.alpha0.6"
    assert len(set(boards)) == 3
    assert {board.parent for board in boards} == {boards[0].parent}
    assert sweep(tmp_path, ["a"], parent=tmp_path / "a").board_dir == boards[1]


def test_the_picture_names_the_run_even_where_it_is_the_working_directory(tmp_path, monkeypatch):
    made = sweep(tmp_path, ["a"])
    monkeypatch.chdir(tmp_path / "run")
    made._run.path = pathlib.Path()
    titles = []
    monkeypatch.setattr(made.table, "write_picture", titles.append)
    made._write_table()
    assert titles == ["run: in, checkpoints"]
