"""Tests that files and directories are written atomically: completely or not at all."""

import errno
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from t2t_ext.errors import UserError
from t2t_ext.io import files


def _write_then(act, context):
    with context as temporary:
        target = temporary / "x" if temporary.is_dir() else temporary
        target.write_bytes(b"new")
        act()


def test_written_file_holds_exactly_the_bytes_and_nothing_else_is_there(tmp_path):
    files.write_bytes_atomically(tmp_path / "a", b"\x00\r\n\xff")
    files.write_text_atomically(tmp_path / "b", "ä\r\n\u2028\n")
    assert (tmp_path / "a").read_bytes() == b"\x00\r\n\xff"
    assert (tmp_path / "b").read_bytes() == "ä\r\n\u2028\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o022)
    try:
        files.write_bytes_atomically(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_failure_while_writing_leaves_the_old_file(tmp_path):
    files.write_bytes_atomically(tmp_path / "a", b"old")
    with pytest.raises(ZeroDivisionError):
        _write_then(lambda: 1 / 0, files.atomic_file(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_full_disk_is_explained_and_nothing_left(tmp_path, monkeypatch):
    def full(self, data):
        self.open("wb").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"vocab\.model: 12\.3 kB are needed"):
        files.write_bytes_atomically(tmp_path / "vocab.model", bytes(12_345))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_full_disk_by_the_operating_system(tmp_path):
    with pytest.raises(UserError, match=r"Cannot write .*more is needed"):
        _write_then(lambda: pathlib.Path("/dev/full").write_bytes(b"x"), files.atomic_file(tmp_path / "a"))
    assert os.listdir(tmp_path) == []


def test_directory_that_does_not_fit_is_not_begun(tmp_path):
    context = files.atomic_directory(tmp_path / "model.ckpt-1", needed_bytes=10**18)
    with pytest.raises(UserError, match=r"model\.ckpt-1: 1000000\.0 TB are needed, .* are left on the disk"):
        _write_then(lambda: pytest.fail("the block must not be entered"), context)
    assert os.listdir(tmp_path) == []


def test_missing_parent_is_explained(tmp_path):
    with pytest.raises(UserError, match="is not a directory"):
        files.write_bytes_atomically(tmp_path / "no" / "a", b"x")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="Linux only")
def test_directory_that_takes_no_new_names_is_explained():
    with pytest.raises(UserError, match=r"Cannot write /proc/a: .* Choose a directory that you may write to"):
        files.write_bytes_atomically("/proc/a", b"x")


def test_directory_appears_whole_and_replaces(tmp_path):
    final = tmp_path / "deep" / "dir"
    for content in (b"1", b"2"):
        with files.atomic_directory(final) as temporary:
            (temporary / "sub").mkdir()
            (temporary / "sub" / "x").write_bytes(content)
            assert temporary.parent == final.parent
        assert (final / "sub" / "x").read_bytes() == content
    assert os.listdir(final.parent) == ["dir"]


def test_the_current_directory_can_be_replaced_and_removed(tmp_path, monkeypatch):
    for remove in (False, True):
        here = tmp_path / "here" / "below"
        here.mkdir(parents=True)
        monkeypatch.chdir(here if remove else here.parent)
        if remove:
            files.remove_directory("..")
            assert list(tmp_path.iterdir()) == []
            continue
        with files.atomic_directory(".") as temporary:
            (temporary / "new").touch()
        assert [path.name for path in (tmp_path / "here").iterdir()] == ["new"]
        assert list(tmp_path.iterdir()) == [tmp_path / "here"]


def test_failed_directory_leaves_the_old_one(tmp_path):
    with files.atomic_directory(tmp_path / "dir") as temporary:
        (temporary / "x").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        _write_then(lambda: 1 / 0, files.atomic_directory(tmp_path / "dir"))
    assert (tmp_path / "dir" / "x").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["dir"]


def test_killed_writer_leaves_only_leftovers_that_are_found(tmp_path):
    program = textwrap.dedent(f"""
        import os, signal
        from t2t_ext.io import files
        with files.atomic_directory({str(tmp_path / "dir")!r}) as temporary:
            (temporary / "x").write_bytes(b"half")
            with files.atomic_file({str(tmp_path / "file")!r}) as name:
                name.write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
    """)
    result = subprocess.run([sys.executable, "-c", program], check=False)
    assert result.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2
    assert not (tmp_path / "dir").exists()
    assert not (tmp_path / "file").exists()
    (tmp_path / ".hidden").write_bytes(b"the user's own")
    assert len(files.remove_leftovers(tmp_path)) == 2
    assert os.listdir(tmp_path) == [".hidden"]


def test_leftovers_of_living_processes_and_other_machines_stay(tmp_path):
    with files.atomic_file(tmp_path / "a") as temporary:
        temporary.write_bytes(b"x")
        assert files.remove_leftovers(tmp_path, sole_writer=True) == []
    elsewhere = tmp_path / ".a.tmp-another-machine_1_00000000"
    elsewhere.write_bytes(b"x")
    assert files.remove_leftovers(tmp_path) == []
    assert files.remove_leftovers(tmp_path, sole_writer=True) == [elsewhere.name]


def test_other_containers_of_this_host_name_lose_only_what_is_old(tmp_path):
    host = socket.gethostname()[:40]
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    other = tmp_path / f".a.tmp-{host}_{dead.pid}_0123456789abcdef"  # of a live process over there, perhaps
    other.write_bytes(b"x")
    assert files.remove_leftovers(tmp_path) == []
    os.utime(other, (0, 0))
    assert files.remove_leftovers(tmp_path) == [other.name]


def test_a_host_name_may_have_an_underscore(tmp_path, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "my_host")
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    name = files._temporary_beside(tmp_path / "a").name.replace(f"_{os.getpid()}_", f"_{dead.pid}_")
    (tmp_path / name).write_bytes(b"x")
    assert files.remove_leftovers(tmp_path) == [name]


@pytest.mark.parametrize("refused", ["unlink", "rmdir"])
def test_a_removal_that_is_refused_once_is_tried_again(tmp_path, monkeypatch, refused):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "x").write_bytes(b"x")
    calls, remove = [], getattr(os, refused)

    def refuse_first(*args, **kwargs):
        calls.append(args)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        remove(*args, **kwargs)

    monkeypatch.setattr(os, refused, refuse_first)
    files.remove_directory(tmp_path / "old")
    assert len(calls) == 2
    assert os.listdir(tmp_path) == []


def test_long_names_of_several_bytes_a_letter(tmp_path):
    name = "\N{LATIN SMALL LETTER A}" + "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 84  # 253 bytes
    files.write_text_atomically(tmp_path / name, "x")
    assert os.listdir(tmp_path) == [name]


def test_sha256_of_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert files.sha256_of_file(tmp_path / "a").startswith("ba7816bf8f01cfea")
