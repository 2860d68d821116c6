"""Tests of the number of cores that this process may use."""

import os

from t2t_ext.config.cores import usable_cores


def test_cores_that_others_have_do_not_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7}, raising=False)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 128
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
