"""Runs commands in forked children and kills them with SIGKILL, at a moment or at a step of their work on the disk.

One process imports TensorFlow and the toolkit, but never uses TensorFlow: its runtime (threads, devices) starts at the
first operation, in the child, so a child is what a fresh process is, without the seconds of importing. Reads one job a
line (JSON) from standard input and answers each with one line:

    {"command": "trainer" | "datagen", "flags": [...], "log": FILE, "directory": DIR,
     "kill_after": seconds | null, "kill_at": [step, times] | null}
    -> {"status": exit status or minus the signal, "seconds": ..., "steps": [...]}

"Steps" are the changes of files below ``directory``, which Python announces before it makes them (audit events):
opening for writing, renaming, removing, making directories; numbers and temporary names are masked, so that they mean
the same in every process. With ``kill_at`` the child kills itself before it takes a step for the given time.
"""

import base64
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback

# What a training process imports late.
_PRELOADED = (
    "t2t_ext.training.loop",
    "t2t_ext.bin.trainer",
    "t2t_ext.models.transformer",
    "tensorboard.plugins.hparams.api",
)
_PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


class StepWatch:
    """Notes the steps of a process and ends it at one of them."""

    def __init__(self, directory, kill_at):
        self._directory = os.path.join(os.path.realpath(directory), "")
        self._fatal, self._times = kill_at or (None, 0)
        self.steps = {}

    def __call__(self, event, arguments):
        if event not in _CHANGES or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        # Relative names are those of shutil.rmtree, which works inside the directory.
        path = os.path.join(self._directory, os.fspath(arguments[0]))
        if not path.startswith(self._directory):
            return
        step = f"{event} {masked(path.removeprefix(self._directory))}"
        self.steps[step] = self.steps.get(step, 0) + 1
        if step == self._fatal and self.steps[step] == self._times:
            os.killpg(0, signal.SIGKILL)


def masked(path):
    """A path without what differs from process to process."""
    path = re.sub(r"\.tmp-[^/]*", ".tmp", path)
    return re.sub(r"\d+", "N", path)


def child(job):
    """Does a job and ends the process."""
    status = 99
    try:
        descriptor = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        watch = StepWatch(job["directory"], job["kill_at"])
        sys.addaudithook(watch)
        status = importlib.import_module(f"t2t_ext.bin.{job['command']}").main(job["flags"])
        os.write(job["pipe"], json.dumps(list(watch.steps.items())).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(job):
    """Forks a child for a job, kills its process group in time, returns how it ended."""
    began = time.monotonic()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.close(reading)
        child({**job, "pipe": writing})
    # Here, too: a kill at once must find the group, even if the child has not run yet.
    os.setpgid(pid, pid)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        if job["kill_after"] is not None:
            while (left := began + job["kill_after"] - time.monotonic()) > 0 and not ended(pid):
                time.sleep(min(left, 0.02))
            os.killpg(pid, signal.SIGKILL)  # a child that has ended is still there to be waited for
        steps = pipe.read()
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - began
    return {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": seconds,
        "steps": [step for step, _ in json.loads(steps or "[]")],
    }


def ended(pid):
    """Says whether a child has ended, without taking its status away."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main():
    """Answers jobs until standard input ends."""
    if "datagen_only" not in sys.argv:
        for name in _PRELOADED:
            importlib.import_module(name)
        # Drawing attention takes half of a short run's time.
        importlib.import_module("t2t_ext.training.monitor").attention_picture = lambda *_: _PICTURE
    threads = len(os.listdir("/proc/self/task"))
    print(json.dumps({"ready": True, "threads": threads}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
