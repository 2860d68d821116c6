"""Runs commands in forked children and kills them with SIGKILL, after a given time or at a given step.

The parent imports TensorFlow and the toolkit, but never uses TensorFlow: the runtime (threads, devices) starts at the
first operation, in the child. A child is therefore equivalent to a fresh process, without the seconds of importing.
The program reads one job per line (JSON) from standard input and answers each with one line:


    {"command": "trainer" | "datagen", "flags": [...], "log": FILE, "directory": DIR,
     "kill_after": seconds | null, "kill_at": [step, times] | null}
    -> {"status": exit status or minus the signal, "seconds": ..., "steps": [...]}

"Steps" are the changes of files below ``directory`` that Python announces before it makes them (audit events): opening
for writing, renaming, removing, making directories. Numbers and temporary names are masked, so that a step has the
same name in every process. With ``kill_at`` the child kills itself just before it takes ``step`` for the ``times``-th
time.
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

# Modules that a training process would otherwise import only when it needs them.
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
    """Audit hook that records the steps of a process and kills the process at one of them."""

    def __init__(self, directory, kill_at):
        self._directory = os.path.join(os.path.realpath(directory), "")
        self._fatal, self._times = kill_at or (None, 0)
        self.steps = {}

    def __call__(self, event, arguments):
        if event not in _CHANGES or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        # Only shutil.rmtree, which works inside the directory, passes relative names.
        path = os.path.join(self._directory, os.fspath(arguments[0]))
        if not path.startswith(self._directory):
            return
        step = f"{event} {masked(path.removeprefix(self._directory))}"
        self.steps[step] = self.steps.get(step, 0) + 1
        if step == self._fatal and self.steps[step] == self._times:
            os.killpg(0, signal.SIGKILL)


def masked(path):
    """Returns a path with the parts masked that differ from process to process: numbers and temporary names."""
    path = re.sub(r"\.tmp-[^/]*", ".tmp", path)
    return re.sub(r"\d+", "N", path)


def child(job):
    """Runs the command of a job, writes its steps to the job's pipe and ends the process; never returns."""
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
    """Forks a child for a job, kills its process group after ``kill_after`` seconds, and returns the answer."""
    began = time.monotonic()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.close(reading)
        child({**job, "pipe": writing})
    # Parent and child both do this: an immediate kill must find the group, even if the child has not run yet.
    os.setpgid(pid, pid)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        if job["kill_after"] is not None:
            while (left := began + job["kill_after"] - time.monotonic()) > 0 and not ended(pid):
                time.sleep(min(left, 0.02))
            os.killpg(pid, signal.SIGKILL)  # safe: a child that has ended exists until waitpid
        steps = pipe.read()
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - began
    return {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": seconds,
        "steps": [step for step, _ in json.loads(steps or "[]")],
    }


def ended(pid):
    """Returns whether a child has ended, without consuming its exit status."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main():
    """Answers jobs until standard input ends."""
    if "datagen_only" not in sys.argv:
        for name in _PRELOADED:
            importlib.import_module(name)
        # Drawing attention pictures would take half of a short run's time.
        importlib.import_module("t2t_ext.training.monitor").attention_picture = lambda *_: _PICTURE
    threads = len(os.listdir("/proc/self/task"))
    print(json.dumps({"ready": True, "threads": threads}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
