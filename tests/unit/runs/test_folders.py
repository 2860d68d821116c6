"""Tests of the folders that may or may not become run directories."""

import pytest

from t2t_ext.errors import UserError
from t2t_ext.runs.folders import check_new, data_in


def make(folder, *names):
    """Makes the named files, and folders for names that end with a slash; returns the path of the parent folder."""
    for name in names:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("{}")
    return str(folder)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("train.log", "slurm-17.out", "events.out.tfevents.1.host", "tensorboard/", ".nfs0", "train.sh", "notes.md"),
        ("vocab.source.model", "vocab.target.model", "t2t_usr_dir/", "checkpoints/", "train/", "eval/", "lost+found/"),
        ("work/data/translate_x.manifest.json",),  # the folder contains the data folder
    ],
)
def test_folders_that_may_become_runs(tmp_path, names):
    check_new(make(tmp_path, *names), str(tmp_path / "work" / "data"))
    check_new(str(tmp_path / "missing"), "")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (
            ("a.manifest.json", "b_synchronous.manifest.json"),
            r"holds generated data \(a, b_synchronous\) and is no run",
        ),
        (
            ("one/config.json", "two/config.json"),
            r"holds other runs \(one, two\). To resume a run, name it: .*/one\. Name",
        ),
        (("train.de", "train.en"), r"is no run and not empty \(train.de, train.en\)"),
        (("1/", "2/", "3/", "4/"), r"not empty \(1, 2, 3, \.\.\.\)"),
    ],
)
def test_folders_of_something_else_are_refused(tmp_path, names, told):
    with pytest.raises(UserError, match=told) as caught:
        check_new(make(tmp_path, *names), str(tmp_path / "elsewhere"))
    assert str(caught.value).startswith(f"--output_dir={tmp_path} ")
    assert f"--output_dir={tmp_path / 'run'}" in str(caught.value)


@pytest.mark.parametrize("folder", ["checkpoints", "best", "averaged"])
def test_checkpoints_of_a_run_without_its_configuration_are_not_taken_over(tmp_path, folder):
    with pytest.raises(UserError, match=rf"checkpoints \({folder}/model.ckpt-00000004\), but not the config.json"):
        check_new(make(tmp_path, f"{folder}/model.ckpt-00000004/", "metrics.jsonl"), "")


def test_data_and_run_need_a_folder_each(tmp_path):
    with pytest.raises(UserError, match=r"is the --data_dir and is no run"):
        check_new(str(tmp_path), f"{tmp_path}/")
    assert data_in(tmp_path) == data_in(tmp_path / "missing") == ""
