"""Tests that messages of libraries that users can do nothing about are suppressed, but errors are shown."""

import logging
import os

import pytest

from t2t_ext.io import chatter

NOTES = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795408844.001987     813 port.cc:153] oneDNN custom operations are on.
2026-01-01 10:00:00.000000: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized
E0000 00:00:1795408850.309700     813 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
normalizer.cc(51) LOG(INFO) precompiled_charsmap is empty. use identity normalization.
E0000 00:00:1795408671.633671   30206 util.cc:131] oneDNN supports DT_INT64 only on platforms with AVX-512.
"""
ERRORS = """\
E0000 00:00:1795408850.309700     813 cuda_dnn.cc:456] Loaded runtime CuDNN library: 8.9, but compiled with 9.1
normalizer.cc(60) LOG(ERROR) the model is damaged
something else
"""


def test_errors_are_passed_on(capfd):
    with chatter.left_out():
        os.write(2, NOTES.encode())
        os.write(2, ERRORS.encode())
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == ERRORS


def test_errors_are_passed_on_when_the_block_fails(capfd):
    def fail():
        with chatter.left_out(), chatter.left_out():
            os.write(2, ERRORS.encode())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == ERRORS + "after\n"


def test_retracing_is_not_told_where_it_is_expected():
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    tensorflow = logging.getLogger("tensorflow")
    tensorflow.addHandler(handler)
    try:
        with chatter.retracing_expected():
            tensorflow.warning("%d of %d calls triggered tf.function retracing", 5, 9)
            tensorflow.warning("something else")
        tensorflow.warning("6 calls triggered tf.function retracing")
    finally:
        tensorflow.removeHandler(handler)
    assert told == ["something else", "6 calls triggered tf.function retracing"]


def test_without_a_folder_for_temporary_files_everything_is_passed_on(capfd, monkeypatch):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(chatter.tempfile, "TemporaryFile", none)
    with chatter.left_out():
        os.write(2, ERRORS.encode())
    assert capfd.readouterr().err == ERRORS
