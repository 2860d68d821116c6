"""Tests of the records of a sweep: how they are kept and replaced, and how damage is treated."""

import json
import pathlib

import pytest

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import ScoreRecord, ScoreTable
from t2t_ext.experiments.sweep import folder_name


def record(step, value, **changes):
    values = {
        "step": step, "checkpoint": f"model.ckpt-{step}", "weights": "w", "search": "s", "scoring": "p",
        "translations": f"{step}.txt", "lines": 3, "seconds": 1.5, "scores": {"BLEU": value},
        "signatures": {"BLEU": "sig"},
    }  # fmt: skip
    return ScoreRecord(**(values | changes))


def test_records_come_back_by_step_and_the_best_is_the_first_of_equals(tmp_path):
    table = ScoreTable(tmp_path / "x")
    for step, value in ((20, 3.0), (10, 5.0), (30, 5.0)):
        table.add(record(step, value))
    again = ScoreTable(tmp_path / "x")
    assert [each.step for each in again.records] == [10, 20, 30]
    assert again.records == table.records
    assert again.best().step == 10
    assert again.get(11) is None
    table.add(record(10, 1.0))  # replaces the older record
    assert ScoreTable(tmp_path / "x").get(10).scores == {"BLEU": 1.0}
    assert len((tmp_path / "x" / "scores.jsonl").read_text().splitlines()) == 3
    (tmp_path / "x" / "20.txt").write_text("a\n")
    table.drop([20])
    assert not (tmp_path / "x" / "20.txt").exists()
    assert [each.step for each in ScoreTable(tmp_path / "x").records] == [10, 30]


def test_a_drop_that_is_interrupted_leaves_no_record_without_translations(tmp_path, monkeypatch):
    table = ScoreTable(tmp_path)
    table.add(record(10, 1.0))
    (tmp_path / "10.txt").write_text("a\n")

    def interrupted(path, missing_ok):
        raise KeyboardInterrupt

    monkeypatch.setattr(pathlib.Path, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.drop([10])
    monkeypatch.undo()
    assert not ScoreTable(tmp_path).records


def test_of_error_rates_the_lowest_is_best(tmp_path):
    table = ScoreTable(tmp_path)
    for step, value in ((10, 60.0), (20, 50.0), (30, 55.0)):
        table.add(record(step, 0.0, scores={"ter.TER_uncased": value}))
    assert table.best().step == 20


def test_a_half_written_last_line_is_dropped_and_a_damaged_one_refused(tmp_path):
    table = ScoreTable(tmp_path)
    table.add(record(10, 1.0))
    table.add(record(20, 2.0))
    path = tmp_path / "scores.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-30])
    assert [each.step for each in ScoreTable(tmp_path).records] == [10]
    assert path.read_text().endswith("\n")
    path.write_text("nonsense\n" + whole)
    with pytest.raises(UserError, match=r"scores\.jsonl, line 1 is damaged"):
        ScoreTable(tmp_path)
    path.write_text(json.dumps({"step": 3}) + "\n")
    with pytest.raises(UserError, match="line 1 is damaged"):
        ScoreTable(tmp_path)


def test_a_last_line_without_its_end_is_completed(tmp_path):
    """A last line without a line feed, as some editors leave it, is completed before the next record is appended."""
    ScoreTable(tmp_path).add(record(10, 1.0))
    path = tmp_path / "scores.jsonl"
    path.write_text(path.read_text().rstrip("\n"))
    ScoreTable(tmp_path).add(record(20, 2.0))
    assert [each.step for each in ScoreTable(tmp_path).records] == [10, 20]


def test_what_stands_beside_translations_goes_with_them(tmp_path):
    table = ScoreTable(tmp_path / "x")
    table.add(record(10, 1.0, translations="model.ckpt-00000010.txt"))
    for ending in (".txt", ".prepared.txt", ".directions.txt"):
        (tmp_path / "x" / f"model.ckpt-00000010{ending}").write_text("a\n")
    assert table.move_aside() == tmp_path / "x.old"
    assert not table.records
    ScoreTable(tmp_path / "x.old").drop([10])
    assert [path.name for path in (tmp_path / "x.old").iterdir()] == ["scores.jsonl"]
    assert table.move_aside() == tmp_path / "x.old2"


def test_table_with_different_scores_has_empty_cells(tmp_path):
    table = ScoreTable(tmp_path)
    table.add(record(10, 1.0))
    table.add(record(20, 2.0, scores={"chrF2": 40.0}))
    rows = [line.split("\t") for line in table.write_table().read_text().splitlines()]
    assert rows[0] == ["step", "BLEU", "chrF2", "lines", "seconds", "translations"]
    assert rows[1][1:3] == ["1.00", ""]
    assert rows[2][1:3] == ["", "40.00"]


def test_folder_names_tell_searches_apart():
    names = [
        folder_name("dev", "checkpoints", DecodeHParams(beam_size=4, alpha=1.1)),
        folder_name("dev", "checkpoints", DecodeHParams(beam_size=4, alpha=1.1, length_penalty="len_power")),
        folder_name("dev", "averaged", DecodeHParams(beam_size=4, alpha=1.1)),
        folder_name("test", "checkpoints", DecodeHParams(beam_size=4, alpha=1.1)),
    ]
    assert names[0] == "dev.beam4.alpha1.1"
    assert len(set(names)) == 4
    # The batch size does not change the translations.
    assert folder_name("dev", "checkpoints", DecodeHParams(beam_size=4, alpha=1.1, batch_size=7)) == names[0]
