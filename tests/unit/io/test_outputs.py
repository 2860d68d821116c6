"""Tests of outputs: links stay, pipes and devices are written to directly, and inputs are not overwritten."""

import os
import sys
import threading
import time

import pytest

from t2t_ext.errors import UserError
from t2t_ext.io import files, outputs


def _atomically(path, data):
    with files.atomic_file(path) as temporary:
        temporary.write_bytes(data)


WRITERS = pytest.mark.parametrize("write", [files.write_bytes_atomically, _atomically])


@WRITERS
@pytest.mark.parametrize("is_there", [True, False])
def test_link_stays_and_its_file_is_replaced(tmp_path, write, is_there):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    if is_there:
        (tmp_path / "there" / "file").write_bytes(b"old")
    outputs.check(str(tmp_path / "link"))
    write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_bytes() == b"new"
    assert (sorted(os.listdir(tmp_path)), os.listdir(tmp_path / "there")) == (["link", "there"], ["file"])


def test_the_names_of_standard_output(tmp_path):
    assert all(map(outputs.is_standard, ("-", "/dev/stdout", "/dev/fd/1")))
    assert not any(map(outputs.is_standard, ("", "/dev/null", "/dev/stderr", str(tmp_path / "-"))))


@WRITERS
def test_pipe_is_written_through(tmp_path, write, capfd):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    outputs.check(str(pipe))
    writer = threading.Thread(target=write, args=(pipe, b"one\ntwo\n"))
    writer.start()
    said, end = "", time.monotonic() + 20
    while "waiting for a process that reads the pipe" not in said and time.monotonic() < end:
        writer.join(0.01)
        said += capfd.readouterr().err
    assert pipe.read_bytes() == b"one\ntwo\n"  # read it even if the message is missing, so that the writer ends
    writer.join()
    assert "waiting for a process that reads the pipe" in said
    assert (pipe.is_fifo(), os.listdir(tmp_path)) == (True, ["pipe"])


@WRITERS
def test_terminal_is_written_through(write):
    ours, theirs = os.openpty()
    name = os.ttyname(theirs)
    write(name, b"text")
    assert (os.read(ours, 9), os.ttyname(theirs)) == (b"text", name)
    os.close(ours)
    os.close(theirs)


@WRITERS
def test_own_open_file_gets_the_bytes_where_it_stands(tmp_path, write):
    """Writing to the name of an open file (as in a shell's ``>(...)`` or ``/dev/stdout``) continues at its position."""
    with open(tmp_path / "file", "wb") as file:
        file.write(b"before ")
        file.flush()
        inode = os.fstat(file.fileno()).st_ino
        outputs.check(f"/dev/fd/{file.fileno()}")
        write(f"/dev/fd/{file.fileno()}", b"new ")
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"before new after"
    assert (tmp_path / "file").stat().st_ino == inode


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
@WRITERS
def test_full_device_is_explained(write):
    with pytest.raises(UserError, match="Cannot write /dev/full: "):
        write("/dev/full", bytes(1 << 16))


@WRITERS
def test_a_reader_that_leaves_is_told_of(tmp_path, write):
    reading, writing = os.pipe()
    os.close(reading)
    for name, expected in ((writing, "the process that read the pipe has ended"), (999, "no such file is open")):
        with pytest.raises(UserError, match=rf"Cannot write .*/dev/fd/{name}: {expected}"):
            write(f"/dev/fd/{name}", bytes(100))
    os.close(writing)
    with open(tmp_path / "read", "w+b") as made, open(tmp_path / "read", "rb") as file:
        with pytest.raises(UserError, match="is open for reading only"):
            write(f"/dev/fd/{file.fileno()}", b"x")
        assert made.read() == b""


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dead").symlink_to("no/file")
    for name, expected in (("", "is a directory"), ("loop", "point to each other"), ("dead", r"no directory .*/no\.")):
        with pytest.raises(UserError, match=expected):
            outputs.check(str(tmp_path / name))
    with pytest.raises(UserError, match="point to each other"):
        files.write_bytes_atomically(tmp_path / "loop", b"")


def test_directory_of_a_link_is_replaced_and_no_other_thing_is(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with files.atomic_directory(tmp_path / "link") as temporary:
        (temporary / "x").touch()
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "there") == ["x"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="something else has that name"), files.atomic_directory(tmp_path / "pipe"):
        pytest.fail("the block must not be entered")
    files.remove_directory(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["pipe", "there"]


def test_no_output_over_an_input_or_another_output(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.touch()
    (tmp_path / "link").symlink_to("a")
    os.link(first, tmp_path / "same")
    for name in ("a", "link", "same", "../" + tmp_path.name + "/a"):
        with pytest.raises(UserError, match="is read and would be written over"):
            outputs.check_all([str(tmp_path / name)], ["", None, str(first)])
    with pytest.raises(UserError, match="given for two outputs"):
        outputs.check_all([str(second), "", str(tmp_path / "." / "b")], [str(first)])
    with pytest.raises(UserError, match="given for two outputs"):
        outputs.check_all(["-", "-"], [])
    outputs.check_all([str(second), "-", os.devnull], [str(first), "-", os.devnull])
    assert sorted(os.listdir(tmp_path)) == ["a", "link", "same"]


def test_redirected_standard_input_is_an_input(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"text")
    with open(tmp_path / "a", "rb") as file:
        real = os.fstat
        monkeypatch.setattr(os, "fstat", lambda number: real(file.fileno() if number == 0 else number))
        with pytest.raises(UserError, match=r"written over \(it is -\)"):
            outputs.check_all([str(tmp_path / "a")], ["-"])


@pytest.mark.parametrize("terminal", [True, False])
def test_control_characters_are_shown_to_a_terminal_only(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    outputs.show("z \x1b]0;owned\a\tc\nsecond")
    shown = "z \\x1b]0;owned\\x07\tc" if terminal else "z \x1b]0;owned\a\tc"
    assert capsys.readouterr().out == f"{shown}\nsecond\n"
