"""Tests of text lines: they are read and written in windows, and notes about them stay bounded."""

import contextlib
import errno
import gzip
import io
import os
import pty
import subprocess
import sys

import pytest

from t2t_ext.data.corpora import text_lines
from t2t_ext.errors import UserError
from t2t_ext.io import inputs


def test_windows_are_bounded_by_lines_and_characters(monkeypatch):
    monkeypatch.setattr(text_lines, "WINDOW_LINES", 3)
    monkeypatch.setattr(text_lines, "WINDOW_CHARACTERS", 10)
    lines = iter(["a", "b", "c", "d", "e" * 9, "f" * 20, "g"])
    windows = text_lines.windows(lines)
    assert next(windows) == ["a", "b", "c"]
    assert next(lines) == "d"  # the next window has not been read yet
    assert list(windows) == [["e" * 9, "f" * 20], ["g"]]
    assert list(text_lines.windows([])) == []
    assert list(text_lines.windows([1, 2, 3, 4])) == [[1, 2, 3], [4]]


def test_numbers_of_lines_are_counted_and_some_are_kept():
    numbers = text_lines.LineNumbers([3])
    assert str(numbers) == "1 line (3)"
    numbers.add(range(4, 100_004))
    assert numbers.count == 100_001
    assert numbers.first == list(range(3, 1003))
    assert str(numbers) == "100001 lines (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ...)"


@pytest.mark.parametrize("content", [b"", b"one", b"one\n", b"\xef\xbb\xbf", b"\xef\xbb\xbfone\r\ntwo", b"\n\n\xff"])
def test_as_many_lines_are_counted_as_are_read(tmp_path, monkeypatch, content):
    (tmp_path / "in").write_bytes(content)
    lines = list(text_lines.stream(str(tmp_path / "in")))
    assert text_lines.count(str(tmp_path / "in")) == len(lines)
    assert text_lines.count("-") is None
    monkeypatch.setattr(text_lines, "MOST_LINES", 0)
    if lines:
        with pytest.raises(UserError, match="in has more than 0 lines"):
            text_lines.count(str(tmp_path / "in"))


def test_stored_lines_are_read_again_and_again(tmp_path, monkeypatch, capsys):
    content = b"\xef\xbb\xbfone\r\ntwo\n\xff"
    (tmp_path / "in").write_bytes(content)
    expected = text_lines.read(str(tmp_path / "in"))
    capsys.readouterr()
    found = text_lines.stored(str(tmp_path / "in"))
    assert (found.name, len(found.lines)) == (expected.name, 3)
    assert [list(found.lines), list(found.lines)] == [expected.lines] * 2
    assert capsys.readouterr().err.count("not UTF-8") == 1
    (tmp_path / "in").write_bytes(b"one\n")
    with pytest.raises(UserError, match="in had 3 lines, then 1: it changed meanwhile"):
        list(found.lines)


def test_stored_lines_of_standard_input(monkeypatch):
    with open(os.memfd_create("in"), "w+b") as file:
        file.write(b"\xef\xbb\xbfone\n\xff\n\ntwo")
        file.seek(0)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdin", io.TextIOWrapper(file, "utf-8"))
            found = text_lines.stored("-")
        try:
            assert (found.name, len(found.lines)) == ("standard input", 4)
            assert [list(found.lines), list(found.lines)] == [["one", "\ufffd", "", "two"]] * 2
        finally:
            inputs.forget_pipes()


def test_a_byte_order_mark_is_no_text_of_a_pipe(monkeypatch):
    content = io.BytesIO("\ufeffone\r\n\ufefftwo\nq\nthree\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content, "utf-8"))
    assert list(text_lines.typed_lines()) == ["one", "\ufefftwo"]


def test_whoever_reads_a_pipe_gets_lines_as_they_come(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with text_lines.writer(str(tmp_path / "pipe")) as add:
        add(["one"])
        assert os.read(reader, 100) == b"one\n"
        add(["two"])
    assert os.read(reader, 100) == b"two\n"
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_pipe_that_nobody_reads_any_more(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def write():
        with text_lines.writer(str(tmp_path / "pipe")) as add:
            os.close(reader)
            add(["one"])

    with pytest.raises(UserError, match="process that read the pipe has ended"):
        write()


def test_standard_input_is_read_as_files_are(monkeypatch):
    def read(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
        return list(text_lines.stream("-"))

    assert read(gzip.compress("eins\nzwei ü\n".encode())) == ["eins", "zwei ü"]
    assert read(b"a\rb\n") == ["a\rb"]
    assert read(b"") == []
    with pytest.raises(UserError, match="one line with 6 carriage returns"):
        read(b"a\r" * 6)
    with pytest.raises(UserError, match="damaged or incomplete gzip"):
        read(gzip.compress(b"eins\n" * 1000)[:30])


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_file_is_compressed_as_its_name_says(tmp_path, ending):
    lines = [f"Zeile {number} " + "ä" * 100 for number in range(2000)]
    paths = [tmp_path / f"{name}.{ending}" for name in ("first", "second")]
    for path in paths:
        with text_lines.writer(str(path)) as add:
            add(lines[:1])
            add(lines[1:])
    assert text_lines.read(str(paths[0])).lines == lines
    assert paths[0].stat().st_size < 50_000
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_of_several_files_the_full_one_is_named(tmp_path):
    def full():
        yield "line"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_both():
        with text_lines.writer(str(tmp_path / "first")) as add, text_lines.writer(str(tmp_path / "second")) as other:
            other(["kept back"])
            add(full())

    with pytest.raises(UserError, match=r"Cannot write .*first: "):
        write_both()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("locale", "through_readline"), [("C", True), ("C.UTF-8", False)])
def test_what_is_typed_and_is_not_utf8_does_not_end_the_session(locale, through_readline):
    code = "from t2t_ext.data.corpora.text_lines import typed_lines; print(ascii(list(typed_lines())))"
    here, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=terminal,
        stdout=terminal if through_readline else subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": locale, "TERM": "dumb", "INPUTRC": os.devnull},
    )
    os.close(terminal)
    os.write(here, "Stra\u00dfe\n".encode() + b"caf\xe9 x\nq\n")
    with process, open(here, "rb", buffering=0, closefd=True) as shown:
        found = b""
        with contextlib.suppress(OSError):  # reading fails when the terminal is closed at the end
            while part := (shown if through_readline else process.stdout).read(4096):
                found += part
    assert process.returncode == 0, found
    assert b"['Stra\\xdfe', 'caf\\ufffd x']" in found
