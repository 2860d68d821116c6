"""Runs the stages of an experiment: each command in a process of its own, logged and recorded in a marker file.

A stage is done if its marker says so and was written for the same settings, and if its output exists. An interrupted
stage is started again; the commands themselves resume where they stopped. So does a training that is to be longer now.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from t2t_ext.errors import UserError
from t2t_ext.evaluation.score_table import RECORDS_NAME, ScoreRecord, ScoreTable
from t2t_ext.evaluation.scorer import label_with_case
from t2t_ext.experiments import raw_text, run_hparams
from t2t_ext.experiments.plan import Stage, requirements
from t2t_ext.experiments.sweep import training_is_over
from t2t_ext.io import files, locks, stored
from t2t_ext.runs import checkpoints
from t2t_ext.runs.run_directory import RunDirectory

Say = Callable[[str], None]
_INTERRUPTED = (130, 143, -signal.SIGINT, -signal.SIGTERM)
_SECONDS_BETWEEN_LINES = 20.0
_SECONDS_TO_END = 300.0
_HOST = socket.gethostname()
_DEAR = ("data", "pseudo", "train")  # kinds whose results are removed only at the user's request


class Interrupted(BaseException):
    """SIGTERM or Ctrl-C was received while a stage was running; the stage has ended in an orderly way.

    Attributes:
      exit_status: The exit status for the command.
    """

    def __init__(self, exit_status: int) -> None:
        """Stores the status."""
        super().__init__()
        self.exit_status = exit_status


@dataclasses.dataclass(frozen=True)
class State:
    """The progress of a stage.

    Attributes:
      word: ``done``, ``to do``, ``begun`` (interrupted, or a training that is to be longer now; it can be resumed) or
        ``changed`` (made with other settings, from other text, or before a stage that it depends on was made again).
      differences: Descriptions of the differences if it is ``changed``.
    """

    word: str
    differences: tuple[str, ...] = ()


def state_of(stage: Stage) -> State:
    """Returns the progress of a stage.

    Raises:
      UserError: The marker is damaged.
    """
    marker = _read_marker(stage)
    if marker is None:
        return State("to do")
    longer = run_hparams.is_only_longer(stage, marker["key"], marker["flags"])
    if marker["key"] != stage.key and not longer:
        stored, given = marker["flags"], stage.counted_flags()
        differences = tuple(
            f"--{name}: {stored.get(name, 'not given')!r} was used, {given.get(name, 'not given')!r} is asked for"
            for name in sorted({*stored, *given})
            if stored.get(name) != given.get(name)
        )
        return State("changed", differences or ("a stage before it",))
    if differences := _changes_of_text(stage, marker) or _changes_of_hparams(stage):
        return State("changed", differences)
    if marker["status"] != "done" and stage.kind != "score":  # unfinished scores may belong to earlier weights
        return State("begun")
    origins = _origins(stage) if stage.kind in _DEAR else [need for need in stage.needs if need.kind != "data"]
    needs = [(need.title, _read_marker(need)) for need in origins]
    newer = [title for title, own in needs if own and own["status"] == "done" and own["time"] > marker["time"]]
    if newer:
        return State("changed", tuple(f"'{title}' was made again since" for title in newer))
    return State("done" if marker["status"] == "done" and not longer and _is_complete(stage) else "begun")


def _origins(stage: Stage) -> list[Stage]:
    """Returns the stages that make an expensive result of a stage another one if they are made again.

    Data from the same text are the same, and so is the average of the same run, no matter when they were made.
    """
    found = dict[pathlib.Path, Stage]()
    for need in stage.needs:
        origins = _origins(need) if need.kind == "average" else [] if need.kind == "data" else [need]
        found |= {origin.marker: origin for origin in origins}
    return list(found.values())


def _changes_of_text(stage: Stage, marker: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns descriptions of the raw text or data that have changed since a result was made from them."""
    if stage.kind == "data":
        return tuple(raw_text.changes(stage, marker["time"])) if marker["status"] == "done" else ()
    now, then = raw_text.data_made_from(stage), marker.get("text", {})
    return (
        *(f"'{name}' was made again since, from other text" for name in now if now[name] != then.get(name, now[name])),
        *raw_text.own_text_changes(stage, marker["time"], then),
    )


def _changes_of_hparams(stage: Stage) -> tuple[str, ...]:
    return tuple(run_hparams.changes(stage)) if stage.kind == "train" and RunDirectory.exists(stage.output) else ()


def check_unchanged(stages: Sequence[Stage], redo: Sequence[str]) -> None:
    """Refuses to replace data or runs that were made with other settings or text, unless ``redo`` names their kind.

    Raises:
      UserError: Data, pseudo references or a run were made with other settings, from other text, from something that
        is no longer complete, or from something that ``redo`` makes again.
    """
    for stage in stages:
        if stage.kind not in _DEAR or is_redone(stage, redo) or not stage.output.exists():
            continue
        _check_own(stage, state_of(stage))
        needed = [need for need in requirements(stage.needs) if need.kind in _DEAR and not is_redone(need, redo)]
        lost = [need for need in needed if need.kind != "data" and state_of(need).word in ("to do", "begun")]
        if lost:
            raise UserError(
                f"{stage.output} ({stage.title}) was made from '{lost[0].title}', whose result, {lost[0].output}, is "
                "missing or not complete. It would be made again, and what was made from it with it. Restore it, "
                f"choose another --work_dir, or have {stage.output} removed and made again {_how_to_redo(stage)}."
            )
        renewed = [need for need in requirements(stage.needs) if is_redone(need, redo)]
        renewed = [need for need in renewed if need.kind != "data" or state_of(need).word == "changed"]
        if renewed:
            raise UserError(
                f"{stage.output} ({stage.title}) was made from what --redo={','.join(redo)} makes again "
                f"({renewed[0].title}). Add {stage.kind} to --redo, or choose another --work_dir."
            )


def _check_own(stage: Stage, state: State) -> None:
    """Checks that an expensive result, if there is one, was made with the settings and from the text of now.

    Raises:
      UserError: It was not.
    """
    if state.word == "changed" and stage.kind in _DEAR and stage.output.exists():
        raise UserError(
            f"{stage.output} ({stage.title}) was made with other settings or text: {'; '.join(state.differences)}. "
            "Keep those that it was made with, choose another --work_dir, or have it removed and made again "
            f"{_how_to_redo(stage)}."
        )


def _how_to_redo(stage: Stage) -> str:
    if not stage.owner:
        return f"with --redo={stage.kind}"
    return f"by t2t_ext-experiment --recipe={stage.owner} --redo={stage.kind}"


def is_redone(stage: Stage, redo: Sequence[str]) -> bool:
    """Returns whether a stage's result is to be removed and made again; other recipes' results are never redone."""
    return stage.kind in redo and not stage.owner


def run_stage(
    stage: Stage,
    number: str,
    say: Say,
    *,
    redo: bool = False,
    again: bool = False,
    removed: Callable[[Stage], None] = lambda stage: None,
) -> bool:
    """Runs a stage unless it is done.

    Args:
      stage: The stage.
      number: The stage's number for messages, such as ``3/12``.
      say: Called with each progress message, line by line.
      redo: Remove the existing output and make it again.
      again: Run it even if it is done, because a stage that it depends on has just been run. Existing output is kept,
        except for scores, which belong to other weights.
      removed: Called after ``redo`` has removed the output, before it is made again.

    Returns:
      Whether it was run.

    Raises:
      UserError: The command failed, or another process is running it; the message names the stage and what to do.
      Interrupted: SIGTERM or Ctrl-C was received; the command was signaled and has ended.
    """
    title = f"[{number}] {stage.title}"
    if state_of(stage).word == "done" and not redo and not again:
        say(f"{title}: done already")
        return False
    try:
        stage.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make {stage.folder}: {error.strerror}. Choose another --work_dir.") from error
    advice = "Wait until it has ended, or choose another --work_dir."
    with locks.held(stage.marker.with_suffix(".lock"), f"is running the stage '{stage.title}'", advice=advice):
        return _run_alone(stage, title, say, redo=redo, again=again, removed=removed)


def _run_alone(
    stage: Stage, title: str, say: Say, *, redo: bool, again: bool, removed: Callable[[Stage], None]
) -> bool:
    """Does the work of ``run_stage`` while this experiment holds the stage's lock."""
    files.remove_leftovers(stage.folder)  # markers left half-written by a killed experiment
    state = state_of(stage)
    if state.word == "done" and not redo and not again:
        say(f"{title}: done meanwhile by another experiment")
        return False
    if state.word == "changed" and not redo:
        _check_own(stage, state)  # something may have changed since the command began
        say(f"{title}: settings or text have changed ({'; '.join(state.differences)}); made again")
    _end_orphan(stage, say)
    if redo or _is_of_other_weights(stage, state, again=again):
        beside = stage.output.with_name(f".{stage.output.name}.lock")  # that of a translate-all, which writes into it
        if owner := locks.owner_in(stage.output) or locks.owner_of(beside):
            raise UserError(
                f"{stage.output} is to be made again, but {owner} is at work there. Wait until it has ended."
            )
        stage.marker.unlink(missing_ok=True)
        if stage.kind == "data":
            # Only the manifest, as for pseudo references below: other recipes' output beside the data is kept.
            raw_text.manifest_of(stage).unlink(missing_ok=True)
        elif stage.output.is_dir():
            files.remove_directory(stage.output)
        elif stage.kind == "pseudo":
            stage.output.unlink(missing_ok=True)  # the manifest: files without one are written again
        if redo:
            removed(stage)
    say(f"{title}{': resumes' if state.word == 'begun' else ''}\n    {stage.command_line}")
    started = time.monotonic()
    try:
        status, last = _run(stage, say)
    except OSError as error:  # a full disk and the like
        raise UserError(
            f"Cannot continue the stage '{stage.title}': {error.strerror} ({error.filename or stage.log}). Fix it, "
            "then run the same command again: what is done stays done."
        ) from error
    if status in _INTERRUPTED:
        raise Interrupted(abs(status) + 128 if status < 0 else status)
    if status != 0:
        why = f"{status} (killed, perhaps for lack of memory)" if status == -signal.SIGKILL else status
        what = last.removeprefix("error: ") or "it printed nothing."
        raise UserError(
            f"The stage '{stage.title}' failed with status {why}: {what} Its output is in {stage.log}. Fix what "
            "it says, then run the same command again: what is done stays done."
        )
    if not _is_complete(stage):
        raise UserError(
            f"The stage '{stage.title}' ended well, but {stage.output} is not complete. Its output is in {stage.log}."
        )
    _write_marker(stage, "done", seconds=round(time.monotonic() - started, 1))
    return True


def _is_of_other_weights(stage: Stage, state: State, *, again: bool) -> bool:
    """Returns whether existing scores belong to other weights and must be removed.

    Otherwise they would be taken for scores of the new run at the same steps. If only the scoring protocol has changed,
    the translations are kept.
    """
    changed = [each for each in state.differences if not each.startswith("--scoring:")]
    return stage.kind == "score" and (again or bool(changed))


def _run(stage: Stage, say: Say) -> tuple[int, str]:
    """Runs the command of a stage; returns its exit status and the last nonempty line that it printed."""
    command = [sys.executable, "-m", _module(stage), *stage.arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    shown = _Shown(say)
    last = ""
    with open(stage.log, "ab", buffering=0) as log:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        log.write(f"# {now}\n# {stage.command_line}\n".encode())
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches only this process, which forwards it once
        )
        with _handing_on(process) as stopped:  # also ends the process if the marker cannot be written
            _write_marker(stage, "begun", pid=process.pid, host=_HOST)
            for line in process.stdout or ():
                log.write(line)
                text = line.decode("utf-8", errors="replace").rstrip()
                if text:
                    last = text
                    shown.line(text)
            status = process.wait()
    shown.end(whole=status == 0)
    return (stopped[0] if stopped and status != 0 else status), last


@contextlib.contextmanager
def _handing_on(process: subprocess.Popen) -> Iterator[list[int]]:
    """Forwards SIGINT and SIGTERM to a process so that it can end in an orderly way; yields a list of exit statuses."""
    stopped: list[int] = []

    def hand_on(number: int, frame: Any) -> None:
        stopped.append(128 + number)
        with contextlib.suppress(ProcessLookupError):
            # A second signal means that the user does not want to wait.
            process.send_signal(number if len(stopped) == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:  # this process had an error, such as a full disk
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_END)
            process.kill()


class _Shown:
    """Shows a command's output: on one line of a terminal that is overwritten, elsewhere a line now and then."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._terminal = sys.stdout.isatty()
        self._last = time.monotonic()
        self._pending = ""

    def line(self, text: str) -> None:
        """Receives a line that the command has printed."""
        if self._terminal:
            width = shutil.get_terminal_size((100, 24)).columns - 5
            sys.stdout.write(f"\r\x1b[K    {text[:width]}")
            sys.stdout.flush()
            return
        self._pending = text
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._say(f"    {text}")
            self._pending = ""

    def end(self, *, whole: bool) -> None:
        """Shows the last line if it is not shown yet, unless the command failed: then the error includes that line."""
        if self._terminal:
            sys.stdout.write("\n")
        elif self._pending and whole:
            self._say(f"    {self._pending}")


def _is_complete(stage: Stage) -> bool:
    """Returns whether the output of a successful stage is complete."""
    if stage.kind == "data":
        return raw_text.manifest_of(stage).exists()
    if stage.kind == "train":
        return RunDirectory.exists(stage.output) and training_is_over(stage.output)
    if stage.kind == "average":
        return bool(checkpoints.list_checkpoints(stage.output))
    if stage.kind in ("pseudo", "compare"):
        return stage.output.exists()
    return score_record(stage) is not None


class _Score(TypedDict):
    name: str
    value: float
    signature: str


class _RerankedScores(TypedDict):
    reranked: list[_Score]


class Reranked(TypedDict):
    """The fields that are read from the report of t2t_ext-rerank."""

    winners: dict[str, float]
    lines: stored.Count
    seconds: float
    scores: _RerankedScores


def score_record(stage: Stage) -> ScoreRecord | None:
    """Returns the scores of a scoring stage: those of its last checkpoint, or of reranking; None if there are none.

    Raises:
      UserError: The file with the scores is damaged.
    """
    if stage.command != "rerank":
        records = ScoreTable(stage.output).records if (stage.output / RECORDS_NAME).exists() else []
        return records[-1] if records else None
    if not stage.output.exists():
        return None
    found = read_output(stage, Reranked)
    scores = {label_with_case(stage.flags["scoring"], each["name"]): each for each in found["scores"]["reranked"]}
    return ScoreRecord(
        step=0,
        checkpoint=stage.flags.get("checkpoint_path", "latest"),
        weights="",
        search="",
        scoring="",
        translations=stage.flags["nbest_file"],
        lines=found["lines"],
        seconds=found["seconds"],
        scores={name: each["value"] for name, each in scores.items()},
        signatures={name: each["signature"] for name, each in scores.items()},
    )


def read_output(stage: Stage, schema: Any) -> Any:
    """Returns the content of a stage's JSON output.

    Raises:
      UserError: The file cannot be read or is damaged.
    """
    try:
        return stored.read(stage.output, schema)
    except (OSError, stored.Damaged) as error:
        raise UserError(f"{stage.output} is damaged ({error}). Remove it: it is then made again.") from error


def _end_orphan(stage: Stage, say: Say) -> None:
    """Ends the process of this stage that a killed experiment left running on this machine.

    Raises:
      UserError: The process does not end.
    """
    marker = _read_marker(stage)
    if marker is None or marker["status"] != "begun" or marker.get("host", _HOST) != _HOST:
        return
    pid = marker.get("pid", 0)
    # The command line as it was started: flags that do not affect the result, such as speed, may have changed.
    begun = shlex.split(marker["command"])[1:] if "command" in marker else stage.arguments
    command = [_module(stage), *begun]
    if not _is_running(pid, command):
        return
    say(f"    ending process {pid}, which an experiment that was killed has left running")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _SECONDS_TO_END
    while _is_running(pid, command):
        if time.monotonic() > until:
            raise UserError(f"The stage '{stage.title}' is still running, as process {pid}. End it: kill -9 {pid}.")
        time.sleep(0.2)


def _module(stage: Stage) -> str:
    return f"t2t_ext.bin.{stage.command.replace('-', '_')}"


def _is_running(pid: int, command: Sequence[str]) -> bool:
    """Returns whether the process with this id runs this command with its arguments (ids are reused)."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        running = os.fsdecode(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return sys.platform != "linux"  # elsewhere there is no /proc, so the id must be trusted
    return running[-len(command) :] == list(command)


class _Marker(TypedDict):
    """The fields that are read from a stage's marker file."""

    status: str
    key: str
    flags: dict[str, Any]
    time: str
    command: NotRequired[str]
    text: NotRequired[dict[str, str]]
    pid: NotRequired[stored.Count]
    parent: NotRequired[stored.Count]


def _read_marker(stage: Stage) -> dict[str, Any] | None:
    try:
        return stored.read(stage.marker, _Marker)
    except FileNotFoundError:
        return None
    except (OSError, stored.Damaged) as error:
        raise UserError(
            f"{stage.marker} is damaged ({error}). Restore it, or remove it: the stage is then begun again, and what "
            "was made from its result has to be made again, too."
        ) from error


def _write_marker(stage: Stage, status: str, **more: Any) -> None:
    content = {
        "status": status,
        "key": stage.key,
        "command": stage.command_line,
        "flags": stage.counted_flags(),
        "text": raw_text.made_from(stage),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **more,
    }
    files.write_text_atomically(stage.marker, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
