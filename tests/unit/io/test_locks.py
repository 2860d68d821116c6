"""Tests of locks: a lock has one owner, names it, and is free exactly when the owner has ended."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from t2t_ext.errors import UserError
from t2t_ext.io import locks

HOLDER = """
import sys, time
from t2t_ext.io import locks
with locks.in_directory(sys.argv[1], "trains"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_lives_as_long_as_its_owner(tmp_path):
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(run)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "held\n"
        found = locks.owner_of(run)
        assert (found.host, found.pid) == (socket.gethostname(), owner.pid)
        expected = rf"Another process trains {run} \(process {owner.pid} on this machine, since .*\)\. Wait"
        with pytest.raises(UserError, match=expected), locks.in_directory(run, "trains"):
            pytest.fail("the block must not be entered")
        owner.send_signal(signal.SIGKILL)
    assert locks.owner_of(run) is None
    assert os.listdir(run) == [".lock"]  # left behind by the killed process
    with locks.in_directory(run, "trains"):
        assert locks.owner_in(run).pid == os.getpid()
    assert os.listdir(run) == []


def test_directories_made_for_a_lock_go_with_it_unless_used(tmp_path):
    with locks.in_directory(tmp_path / "a" / "b", "trains"):
        assert os.listdir(tmp_path / "a" / "b") == [".lock"]
    assert os.listdir(tmp_path) == []
    with locks.in_directory(tmp_path / "a" / "b", "trains"):
        (tmp_path / "a" / "c").touch()
    assert os.listdir(tmp_path / "a") == ["c"]


def test_a_removal_that_is_refused_once_is_tried_again(tmp_path, monkeypatch):
    unlink, calls = os.unlink, []

    def refuse_once(path, *args, **kwargs):
        calls.append(path)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        unlink(path, *args, **kwargs)

    with locks.in_directory(tmp_path / "run", "trains"):
        monkeypatch.setattr(os, "unlink", refuse_once)
    assert len(calls) == 2
    assert not (tmp_path / "run").exists()


def test_who_waits_is_told_for_whom_and_comes_next(tmp_path):
    told, order = [], []

    def second():
        with locks.held(tmp_path / "lock", "is at it", wait=told.append):
            order.append("second")

    with locks.held(tmp_path / "lock", "is at it"):
        thread = threading.Thread(target=second)
        thread.start()
        while not told:
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert told[0].startswith(f"Another process is at it (process {os.getpid()} on this machine, since ")
    assert os.listdir(tmp_path) == []


def test_shared_and_exclusive_owners(tmp_path):
    lock = tmp_path / "lock"
    with locks.held(lock, "is at it", shared=True), locks.held(lock, "is at it", shared=True):
        with pytest.raises(UserError, match=r"^Another process is at it\. Share the work\.$"):
            locks.held(lock, "is at it", advice="Share the work.").__enter__()
    with locks.held(lock, "is at it"), pytest.raises(UserError, match="Another process is at it "):
        locks.held(lock, "is at it", shared=True).__enter__()


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("kind", ["another machine", "no locks"])
def test_owner_that_cannot_be_seen_is_watched(tmp_path, monkeypatch, alive, kind):
    monkeypatch.setattr(locks, "WATCH_SECONDS", 0.5)
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    lock = tmp_path / ".lock"
    host = "far-away" if kind == "another machine" else socket.gethostname()
    if kind == "no locks":

        def no_locks(*arguments):
            raise OSError(37, "No locks available")

        monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    lock.write_text(json.dumps({"host": host, "pid": os.getppid(), "since": "yesterday"}))
    done = threading.Event()
    if alive:
        descriptor = os.open(lock, os.O_RDWR)
        threading.Thread(target=locks._beat, args=(descriptor, done)).start()
        where = "on the machine far-away" if kind == "another machine" else "on this machine"
        with pytest.raises(UserError, match=f"process {os.getppid()} {where}, since yesterday"):
            locks.in_directory(tmp_path, "trains").__enter__()
        done.set()
    else:
        with locks.in_directory(tmp_path, "trains"):
            assert json.loads(lock.read_text())["pid"] == os.getpid()


def test_a_damaged_lock_or_a_link_in_its_place(tmp_path):
    (tmp_path / ".lock").write_bytes(b"\xff[[[")
    with locks.in_directory(tmp_path, "trains"):
        pass
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".lock").symlink_to("mine")
    with pytest.raises(UserError, match="cannot be written to"):
        locks.in_directory(tmp_path, "trains").__enter__()
    assert (tmp_path / "mine").read_text() == "mine"
