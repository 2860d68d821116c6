"""Tests whether commands recover when they are killed at random moments or when the disk is full.

    python benchmarks/kills.py --work_dir=W --kills=100 --out=kills.json          # hours on two cores
    python benchmarks/kills.py --work_dir=W --jobs=train,datagen --kills=20 --faults=20 --out=kills.json

For each job (training, training with two workers, data generation, pseudo references, an export, an experiment) it
makes the inputs and carries out the job once undisturbed. Then it kills the job at random moments of its duration,
at most ``--streak`` times in a row, starts it again each time, finally lets it end, and compares the results. With
``--faults`` it carries out the job on a disk that is full at one change of its files (opening for writing, renaming,
removing, making directories), and then again on one that is not. The first must succeed or end with one line that names
the error, and must leave no temporary file; another worker may end with status 75. The second must give the same result
as an undisturbed job.

All files of the result are compared byte for byte, except: seconds in logs and ``scores.tsv`` (``scores.jsonl`` is
compared), dates and command lines in ``config.json``, TensorBoard's files, and an export's graph, which TensorFlow
writes with new names and numbers each time. Children are forked from a process that has imported TensorFlow but not
used it, which saves the time of importing. An experiment starts its commands as users do. Linux only.
"""

import argparse
import collections
import contextlib
import dataclasses
import errno
import hashlib
import importlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import _report

_CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_PRELOADED = ("t2t_ext.training.loop", "t2t_ext.models.transformer", "t2t_ext.translation.translator",
              "t2t_ext.serving.export", "t2t_ext.pseudo.generate", "tensorboard.summary.v2")  # fmt: skip
_VOLATILE = re.compile(
    r'"(seconds|tokens_per_second|created|train_command|time|pid|parent|command)": ("[^"]*"|[^,}\n]+)'
)
_GRAPH = r"saved_model\.pb|fingerprint\.pb|variables\.index"
_GRAPH_ENTRY = re.compile(rf'"[^"]*(?:{_GRAPH})": \{{[^}}]*\}},?\s*')  # in export.json
_HPARAMS = "num_hidden_layers=1,hidden_size=16,filter_size=32,batch_size=400,learning_rate_warmup_steps=20"
_STEPS = 9
Command = tuple[str, Sequence[str], dict[str, str]]  # name, flags, environment


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that is killed.

    Attributes:
      name: Its name.
      commands: Function from the result's folder to the commands that run side by side.
      left_out: Pattern of the files in the result that are not compared.
      inputs: Folder that is copied to the result's folder first.
    """

    name: str
    commands: Callable[[pathlib.Path], list[Command]]
    left_out: str = r"\.tfevents\.|\.log$|/scores\.tsv$"
    inputs: pathlib.Path | None = None


def jobs(work: pathlib.Path, names: Sequence[str]) -> list[Job]:
    """Makes the inputs of the jobs and returns the named jobs, or all if no name is given."""
    import datagen

    corpus = datagen.write_corpus(work, pairs=600, seed=1, words=60)
    own = ["--problem=translate_parallel_text", *(f"--{name}={path}" for name, path in corpus.items())]
    data = [*own, "--vocab_size=340", "--num_shards=3", "--num_processes=1", "--cleaning=duplicates=true"]
    train = ["--problem=translate_parallel_text", "--model=transformer", "--hparams_set=transformer_test",
             f"--data_dir={work / 'data'}", f"--train_steps={_STEPS}", "--local_eval_frequency=3", "--deterministic",
             "--log_step_count_steps=1", "--keep_checkpoint_max=1", "--eval_bleu_sentences=-1",
             "--best_checkpoint_metric=loss", *own[1:]]  # fmt: skip
    begun = {"data": ("datagen", [*data, f"--data_dir={work / 'data'}"])}
    for direction in ("l2r", "r2l"):
        hparams = f"--hparams={_HPARAMS},target_direction={direction}"
        begun[direction] = ("trainer", [*train, hparams, f"--output_dir={work / direction}"])
    for name, (command, flags) in begun.items():
        if not (work / f"{name}.done").exists():
            status, _ = run([(command, flags, {})], work / "begun.log")
            if status != [0]:
                raise SystemExit(f"{name}: status {status}, see {work / 'begun.log'}")
            (work / f"{name}.done").touch()

    def two_workers(folder: pathlib.Path) -> list[Command]:
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
            for each in sockets:
                each.bind(("localhost", 0))
            addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
        flags = [*train, f"--hparams={_HPARAMS}", f"--output_dir={folder}", "--worker_timeout=10"]
        tasks = ({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in range(2))
        return [("trainer", flags, {"TF_CONFIG": json.dumps(task)}) for task in tasks]

    runs = [f"--l2r={work / 'l2r'}", f"--r2l={work / 'r2l'}", "--problem=translate_parallel_text",
            "--chunk_pairs=100", "--decode_hparams=beam_size=2"]  # fmt: skip
    exported = [f"--output_dir={work / 'l2r'}"]
    for side in ("source", "target"):
        test = corpus[f"test_{side}"] = work / f"test.{side}"
        test.write_text("".join(corpus[f"dev_{side}"].read_text(encoding="utf-8").splitlines(True)[:20]), "utf-8")
    options = ",".join(f"{name}={path}" for name, path in corpus.items())
    experiment = ["--recipe=cldr_ende_transformer_tiny", "--problem=translate_parallel_text", "--until=score",
                  f"--problem_options={options}", "--datagen=vocab_size=340,num_shards=3", "--seeds=1",
                  f"--train_steps={_STEPS}", f"--hparams={_HPARAMS}", "--decode_hparams=beam_size=1",
                  "--train=local_eval_frequency=1,eval_bleu_sentences=-1,deterministic=true",
                  f"--tmp_dir={work / 'tmp'}"]  # fmt: skip
    every = [
        Job("train", lambda folder: [("trainer", [*train, f"--hparams={_HPARAMS}", f"--output_dir={folder}"], {})]),
        Job("train_two_workers", two_workers),
        Job("datagen", lambda folder: [("datagen", [*data, f"--data_dir={folder}"], {})]),
        Job("pseudo_references", lambda folder: [("pseudo_references", [*runs, f"--data_dir={folder}"], {})],
            inputs=work / "data"),
        Job("exporter", lambda folder: [("exporter", [*exported, f"--export_dir={folder}", "--overwrite"], {})],
            left_out=_GRAPH),
        Job("experiment", lambda folder: [("experiment", [*experiment, f"--work_dir={folder}"], {})]),
    ]  # fmt: skip
    found = {job.name: job for job in every}
    if unknown := set(names) - set(found):
        raise SystemExit(f"--jobs: there is no {', '.join(unknown)}; there are {', '.join(found)}.")
    return [found[name] for name in names or found]


# === Processes ===


def run(
    commands: Sequence[Command],
    log: pathlib.Path,
    kill_after: float | None = None,
    watched: pathlib.Path | None = None,
    full_at: int = 0,
) -> tuple[list[int], int]:
    """Runs commands side by side in forked children, and kills them after ``kill_after`` seconds if that is given.

    Returns:
      Their exit statuses, and the number of changes of files below ``watched``; at the ``full_at``-th the disk is full.
    """
    counter = log.with_name("changes")
    counter.unlink(missing_ok=True)
    children = []
    for command, flags, environment in commands:
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            os.environ.update(environment)
            _child(command, flags, log, counter, watched, full_at)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        children.append(pid)
    if kill_after is not None:
        end = time.monotonic() + kill_after
        while time.monotonic() < end and not all(_ended(pid) for pid in children):
            time.sleep(0.01)
        for pid in children:
            os.killpg(pid, signal.SIGKILL)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return statuses, int(counter.read_text()) if counter.exists() else 0


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _child(
    command: str,
    flags: Sequence[str],
    log: pathlib.Path,
    counter: pathlib.Path,
    watched: pathlib.Path | None,
    full: int,
) -> None:
    status, changes = 99, 0

    def on_event(event: str, arguments: tuple) -> None:
        nonlocal changes
        if event not in _CHANGES or not isinstance(arguments[0], str | os.PathLike):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        if str(arguments[0]).startswith(f"{watched}"):
            changes += 1
            if changes == full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))

    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        main = importlib.import_module(f"t2t_ext.bin.{command}").main
        if watched is not None:
            sys.addaudithook(on_event)
        status = main(list(flags))
        watched = None
        if changes:
            counter.write_text(str(changes))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


# === Results ===


def digests(folder: pathlib.Path, left_out: str) -> dict[str, str]:
    """Returns name -> SHA-256 of the content that is compared, for all files that are."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = f"/{path.relative_to(folder)}"
        if path.is_file() and not re.search(left_out, name):
            content = path.read_bytes()
            if path.suffix in (".json", ".jsonl"):
                text = _GRAPH_ENTRY.sub("", content.decode())
                text = _VOLATILE.sub(r'"\1": 0', re.sub(r'"train_command": \[[^]]*\]', "", text))
                content = text.replace(str(folder), "").encode()
            found[name] = hashlib.sha256(content).hexdigest()
    return found


class Trial:
    """A job and its result when it is not disturbed."""

    def __init__(self, job: Job, work: pathlib.Path, rng: random.Random) -> None:
        self.job, self._work, self._rng = job, work / job.name, rng
        self._work.mkdir(exist_ok=True)
        self._log = self._work / "output.log"
        self._numbers = iter(range(1, 10**6))
        began = time.monotonic()
        folder = self._new("undisturbed")
        self._end(folder)
        self.seconds = time.monotonic() - began
        self._expected = digests(folder, job.left_out)
        again = self._new("again")
        self._end(again)
        self.unequal = sorted(set(digests(again, job.left_out).items()) ^ set(self._expected.items()))
        shutil.rmtree(again)

    def kills(self, count: int, streak: int, seconds: float) -> dict[str, Any]:
        """Kills the job ``count`` times, at most ``streak`` times before it may end; returns the outcome.

        After ``seconds``, nothing is killed any more.
        """
        killed = ends = 0
        differ: list[str] = []
        until = time.monotonic() + seconds
        while killed < count and time.monotonic() < until:
            folder = self._new(f"killed{next(self._numbers)}")
            for _ in range(min(streak, count - killed)):
                moment = self._rng.uniform(0, self.seconds)
                statuses, _ = run(self.job.commands(folder), self._log, kill_after=moment)
                killed += any(status == -signal.SIGKILL for status in statuses)
                if time.monotonic() > until:
                    break
            differ += self._faults_of_end(folder)
            ends += 1
        return {"kills": killed, "ends": ends, "differences": differ}

    def full_disks(self, most: int) -> dict[str, Any]:
        """Carries out the job with a full disk at one change of its files, for at most ``most`` different changes."""
        folder = self._new("counted")
        _, changes = run(self.job.commands(folder), self._log, watched=folder)
        shutil.rmtree(folder)
        places = sorted(self._rng.sample(range(1, changes + 1), min(most, changes)))
        outcomes: collections.Counter[str] = collections.Counter()
        faults = []
        for place in places:
            folder = self._new(f"full{place}")
            start = self._log.stat().st_size
            statuses, _ = run(self.job.commands(folder), self._log, watched=folder, full_at=place)
            said = self._log.read_bytes()[start:].decode(errors="replace")
            outcomes.update(str(status) for status in statuses)
            left = [path.name for path in folder.rglob("*") if ".tmp" in path.name] if folder.exists() else []
            allowed = (0, 2, 75) if 2 in statuses else (0, 2)  # 75: the other worker was lost
            if "Traceback" in said or any(status not in allowed for status in statuses) or left:
                faults.append(f"change {place}: status {statuses}, left {left}, {said[-300:]}")
            faults += self._faults_of_end(folder)
        return {"changes": changes, "full_disks": len(places), "statuses": dict(outcomes), "faults": faults}

    def _new(self, name: str) -> pathlib.Path:
        folder = self._work / name
        shutil.rmtree(folder, ignore_errors=True)
        if self.job.inputs is not None:
            shutil.copytree(self.job.inputs, folder)
        return folder

    def _end(self, folder: pathlib.Path) -> None:
        statuses, _ = run(self.job.commands(folder), self._log)
        if any(statuses):
            raise SystemExit(f"{self.job.name} does not end: status {statuses}, see {self._log}")

    def _faults_of_end(self, folder: pathlib.Path) -> list[str]:
        """Lets a disturbed job end; returns the faults of its result."""
        statuses, _ = run(self.job.commands(folder), self._log)
        if any(statuses):
            return [f"{folder.name}: does not end: status {statuses}, see {self._log}"]
        found = digests(folder, self.job.left_out)
        always = dict(self.unequal)  # files that differ between two undisturbed jobs as well
        names = {name for name, _ in {*found.items()} ^ {*self._expected.items()} if name not in always}
        if not names:
            shutil.rmtree(folder)
        return [f"{folder.name}: {', '.join(sorted(names)[:5])}"] if names else []


def main() -> None:
    """Kills the jobs and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work_dir", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", default="", help="Names, separated by commas; by default all.")
    parser.add_argument("--kills", type=int, default=100, help="Of each job.")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="No more kills of a job after so many.")
    parser.add_argument("--streak", type=int, default=4, help="Most kills in a row before a job may end.")
    parser.add_argument("--faults", type=int, default=0, help="Full disks of each job, at most one for each change.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="kills.json")
    args = parser.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # forked children would lose OpenBLAS's threads
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    for name in _PRELOADED:
        importlib.import_module(name)
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        raise SystemExit(f"There are {threads} threads: forking a process with threads proves nothing.")
    work = args.work_dir.resolve()
    work.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for job in jobs(work, [name for name in args.jobs.split(",") if name]):
        trial = Trial(job, work, random.Random(args.seed))
        always = sorted(dict(trial.unequal))
        row = {"job": job.name, "seconds": round(trial.seconds, 1), "files_that_always_differ": always}
        row |= trial.kills(args.kills, args.streak, 60 * args.minutes)
        row |= trial.full_disks(args.faults) if args.faults else {}
        rows.append(row)
        print(json.dumps(row), flush=True)
        _report.write_report(args.out, _report.report({"jobs": rows, "seed": args.seed}))
    table = [("job", "seconds", "kills", "ends", "different ends", "full disks", "faults")]
    for row in rows:
        bad = len(row["differences"]), row.get("full_disks", 0), len(row.get("faults", []))
        table.append((row["job"], row["seconds"], row["kills"], row["ends"], *bad))
    _report.print_table(table)


if __name__ == "__main__":
    main()
