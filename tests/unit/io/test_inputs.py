"""Tests of inputs: a pipe works wherever a file does, can be read repeatedly, and waiting for it is reported."""

import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

from t2t_ext.bin import bleu
from t2t_ext.data.corpora import formats, readers, text_lines
from t2t_ext.data.features.sources import read_sources
from t2t_ext.data.generation import raw_inputs
from t2t_ext.data.generation.shards import npz_bytes
from t2t_ext.errors import UserError
from t2t_ext.io import inputs


@pytest.fixture
def pipe(tmp_path):
    """Returns a function that makes a named pipe, writes bytes to it in a thread after a delay, returns its path."""
    threads = []

    def make(name, content, *, after=0.0):
        def write():
            time.sleep(after)
            with open(tmp_path / name, "wb") as file:
                file.write(content)

        os.mkfifo(tmp_path / name)
        threads.append(threading.Thread(target=write, daemon=True))
        threads[-1].start()
        return tmp_path / name

    yield make
    for thread in threads:
        thread.join(5)
    inputs.forget_pipes()


def test_a_pipe_is_read_as_often_as_it_takes(pipe, tmp_path):
    path = pipe("pipe", b"one\ntwo\n")
    readers.require_files([path], "Give it.")
    assert formats.format_of(path) == formats.PLAIN
    assert readers.count_lines(path) == 2
    assert [list(readers.read_lines(path)) for _ in range(2)] == [[b"one", b"two"]] * 2
    kept = inputs.on_disk(path)
    assert kept.stat().st_mode & 0o077 == 0 or kept.parent.stat().st_mode & 0o077 == 0
    inputs.forget_pipes()
    assert not kept.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]  # the user's files are still there


def test_raw_text_of_a_pipe_is_compared_by_what_it_delivered(pipe):
    made_from = [{"name": "63", "bytes": 4, "sha256": hashlib.sha256(b"one\n").hexdigest()}]
    assert raw_inputs.changed_inputs("train", [pipe("same", b"one\n")], made_from) == []
    other = pipe("other", b"two\n")
    assert raw_inputs.changed_inputs("train", [other], made_from) == [f"{other} is not the 63 that train was made from"]


def test_who_waits_for_a_writer_is_told(pipe, monkeypatch, capfd):
    monkeypatch.setattr(inputs, "_WAIT_SECONDS", 0.05)
    path = pipe("late", b"text\n", after=0.3)
    assert text_lines.read(str(path)).lines == ["text"]
    assert f"waiting for a process that writes to the pipe {path}" in capfd.readouterr().err
    assert text_lines.read(str(path)).lines == ["text"]
    assert capfd.readouterr().err == ""


def test_scores_of_pipes(pipe, capsys):
    sgml = b'<refset setid="s" srclang="de" trglang="en"><doc docid="d"><seg id="1">one two three four</seg></doc>'
    sgml += b"</refset>"
    translation, reference = pipe("translation", b"one two three four\n"), pipe("reference", sgml)
    assert bleu.main([f"--translation={translation}", f"--reference={reference}"]) == 0
    assert "BLEU_uncased = 100.00" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["npz", "table"])
def test_features_of_pipes(pipe, kind):
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    content = (
        npz_bytes({"feat": rows})
        if kind == "npz"
        else b"\t".join([b"a", b"1", b"1", b"2", b"", base64.b64encode(rows.tobytes())])
    )
    (found,) = read_sources(str(pipe("features", content)))
    np.testing.assert_array_equal(found.rows, rows)


def test_what_a_killed_command_has_kept_is_removed_by_the_next(tmp_path, monkeypatch):
    code = "from t2t_ext.io import inputs; inputs.keep_standard_input(); print(1, flush=True)"

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", f"import time; {code}; time.sleep(60)"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        process.stdin.write(b"text\n")
        process.stdin.close()
        assert process.stdout.readline() == b"1\n"
        return process

    monkeypatch.setattr(inputs, "_NEW_SECONDS", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with start() as killed:
        killed.terminate()
    assert [path.read_text() for path in tmp_path.glob("*/*/*")] == ["text\n"]
    (abandoned,) = tmp_path.iterdir()
    (tmp_path / f"{inputs._PREFIX}file").touch()
    users = [tmp_path / "t2t_ext-0.1.0", tmp_path / f"{inputs._PREFIX}mine"]
    for folder in users:
        folder.mkdir(mode=0o755)
    with start() as running:
        inputs._remove_abandoned()
        assert not abandoned.exists()
        assert len(list(tmp_path.glob("*/*/*"))) == 1  # of the command that runs
        running.terminate()
    assert (tmp_path / f"{inputs._PREFIX}file").exists()
    assert all(folder.is_dir() for folder in users)


def test_what_is_a_file(tmp_path):
    assert inputs.is_file(__file__)
    assert not inputs.is_file(tmp_path)
    assert not inputs.is_file(tmp_path / "nowhere")
    assert inputs.on_disk(__file__) == inputs.pathlib.Path(__file__)


def test_lines_are_read_and_written_as_they_come(tmp_path, monkeypatch):
    """Lines are streamed without waiting for the last one, and a failing output keeps the old file."""
    (tmp_path / "in").write_bytes(b"".join(b"%d\r\n" % number for number in range(5000)) + b"\xff")
    seen = []

    def noted(lines):
        for line in lines:
            seen.append(len(list(tmp_path.glob(".out*"))))
            yield line

    text_lines.write(str(tmp_path / "out"), noted(text_lines.stream(str(tmp_path / "in"))))
    assert set(seen) == {1}
    assert (tmp_path / "out").read_text().splitlines() == [*map(str, range(5000)), "\N{REPLACEMENT CHARACTER}"]

    def failing():
        yield from ["new"] * 2000
        raise UserError("damaged")

    with pytest.raises(UserError, match="damaged"):
        text_lines.write(str(tmp_path / "out"), failing())
    assert (tmp_path / "out").read_text().startswith("0\n1\n")
    monkeypatch.setattr(text_lines, "MOST_LINES", 5000)
    with pytest.raises(UserError, match="in has more than 5,000 lines"):
        text_lines.read(str(tmp_path / "in"))
    monkeypatch.setattr(text_lines, "MOST_LINES", 5001)
    assert len(text_lines.read(str(tmp_path / "in")).lines) == 5001
