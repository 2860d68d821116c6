"""Tests of the scratch files of data generation: samples survive unchanged, and files written by others are refused."""

import os
import pickle

import numpy as np
import pytest

from t2t_ext.data.corpora.weighting import WeightedSample
from t2t_ext.data.features.types import TARGET, Ids, Text
from t2t_ext.data.generation import workers
from t2t_ext.data.generation.raw_samples import RawSamples, load_prepared, load_samples
from t2t_ext.errors import UserError
from t2t_ext.problem import Problem


class Mixed(Problem):
    def features(self):
        return {"inputs": Text(), "targets": Text(side=TARGET, multiple=True), "ids": Ids(size=1 << 40)}

    def samples(self, split, tmp_dir):
        yield {"inputs": "\ufeff \U0001f642\0\u2028", "targets": ["a", "b"], "ids": np.array([1, 1 << 33])}
        weighted = WeightedSample(inputs="", targets=["c"], ids=range(3))
        weighted.times = 7
        yield weighted


def test_samples_are_kept_as_they_are(tmp_path):
    samples = RawSamples(Mixed(name="mixed"), "train", tmp_path, tmp_path / "scratch")
    given = list(samples.keep())
    kept = list(samples)
    assert [getattr(each, "times", None) for each in kept] == [None, 7]
    for one, other in zip(given, kept, strict=True):
        assert (one["inputs"], one["targets"], list(one["ids"])) == (other["inputs"], other["targets"], other["ids"])
    samples.keep_prepared([1], {"inputs": ["x"], "targets": ["y"]})
    (file,) = samples.files()
    assert load_prepared(file) == {"inputs": {1: "x"}, "targets": {1: "y"}}


class Bomb:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickles_of_others_are_not_opened(tmp_path):
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    (tmp_path / "samples").write_bytes(bomb)
    with pytest.raises(UnicodeDecodeError):
        load_samples(tmp_path / "samples")
    key = bytes(32)
    for folder in ("tasks", "results"):
        (tmp_path / "001" / folder).mkdir(parents=True)
    (tmp_path / "001" / "tasks" / "0").write_bytes(bytes(32) + bomb)
    with pytest.raises(UserError, match=r"tasks/0 was not written by this data generation"):
        workers.run_task(0, str(tmp_path / "001"), key)
    assert not (tmp_path / "exploded").exists()


def test_tasks_and_results_are_authentic(tmp_path):
    key = bytes(range(32))
    for folder in ("tasks", "results"):
        (tmp_path / "001" / folder).mkdir(parents=True)
    for number, task in enumerate(([3, 1, 2], [5, 4], 3)):
        workers._put(tmp_path / "001" / "tasks" / str(number), (sorted, task), key)
        workers.run_task(number, str(tmp_path / "001"), key)
    results = tmp_path / "001" / "results"
    found = [workers._get(results / str(number), key) for number in range(3)]
    assert found[:2] == [(False, [1, 2, 3]), (False, [4, 5])]
    assert isinstance(found[2][1], TypeError)
    os.rename(results / "1", results / "0")  # now under the name of another task's result
    for path, other in ((results / "0", key), (results / "2", bytes(32))):
        with pytest.raises(UserError, match="was not written by this data generation"):
            workers._get(path, other)
