"""Reports what every benchmark needs in addition to its figures: machine, versions, command line, memory.

    with peak_memory(pid) as memory:      # of a process and all its descendants; os.getpid() for this one
        ...
    write_report("out.json", report({"tokens_per_second": 1234.5, "peak_memory_mb": memory.megabytes}))

Imports neither TensorFlow nor the toolkit. Linux only: it reads /proc.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import secrets
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

# The CPU features that determine how fast matrix products are.
_NOTED_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8")
_PACKAGES = ("t2t_ext", "tensorflow", "keras", "tensorflow-text", "sentencepiece", "numpy", "sacrebleu")
_SAMPLE_SECONDS = 0.1


def machine() -> dict[str, Any]:
    """Returns a description of the machine, on which the figures depend.

    Keys: ``cpu`` (model), ``cores`` (that this process may use), ``cpu_flags`` (vector extensions for matrix products),
    ``gpus`` (names), ``memory_mb``, ``system``, ``load_average`` (of the last minute; about 0 if the machine was idle).
    """
    cpu = _proc_fields("/proc/cpuinfo")
    flags = set(cpu.get("flags", cpu.get("Features", "")).split())
    return {
        "cpu": cpu.get("model name", platform.processor() or platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "cpu_flags": [flag for flag in _NOTED_FLAGS if flag in flags],
        "gpus": _gpus(),
        "memory_mb": round(int(_proc_fields("/proc/meminfo").get("MemTotal", "0 kB").split()[0]) / 1000),
        "system": platform.platform(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _gpus() -> list[str]:
    """Returns the names of NVIDIA GPUs as reported by the driver's tool; empty if there is no such tool."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        return [line.strip() for line in found.splitlines() if line.strip()]
    return []


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """Returns the versions of Python and of the given packages, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def command() -> str:
    """Returns this process's command line as a user would type it."""
    return shlex.join(["python", *sys.argv])


def report(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the figures, preceded by date, command, machine and versions."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"date": now, "command": command(), "machine": machine(), "versions": versions(), **figures}


def write_report(path: str | os.PathLike, content: Mapping[str, Any]) -> None:
    """Writes a report as JSON; the file appears complete or not at all. Missing folders are created."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_report(path: str | os.PathLike) -> dict[str, Any]:
    """Returns a report with ``configurations`` that an earlier call of a benchmark has stored (``--compare``).

    Raises:
      SystemExit: The file cannot be read, or is no such report.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"--compare={path} cannot be read: {error}. Name the --out of an earlier call.") from None
    if not isinstance(content, dict) or not isinstance(content.get("configurations"), dict):
        raise SystemExit(f"--compare={path} is no report of this benchmark. Name the --out of an earlier call.")
    return content


def check_names(flag: str, text: str, known: Sequence[str]) -> None:
    """Checks the comma-separated names that a flag gives.

    Raises:
      SystemExit: A name is unknown.
    """
    for name in text.split(","):
        if name not in known:
            raise SystemExit(f"{flag}={text}: {name!r} is none of {', '.join(known)}")


def whole_number(least: int = 1) -> Callable[[str], int]:
    """Returns the ``type`` of a flag of argparse whose value is a whole number from ``least`` on."""

    def parse(text: str) -> int:
        if text.isdecimal() and int(text) >= least:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")

    return parse


def temporary_directory(flag: str, parent: pathlib.Path | None) -> tempfile.TemporaryDirectory:
    """Returns a folder for a while, in the one that a flag names, or where the system keeps such folders.

    Raises:
      SystemExit: The named folder does not exist or cannot be written to.
    """
    try:
        return tempfile.TemporaryDirectory(dir=parent)
    except OSError as error:
        raise SystemExit(f"{flag}={parent}: {error.strerror}. Name a folder that is there, or leave it out.") from None


def print_table(rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows in aligned columns, numbers to the right; the first row is the heading."""
    table = list(rows)
    cells = [[_formatted(cell) for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row, texts in zip(table, cells, strict=True):
        print(
            "  ".join(
                text.rjust(width) if isinstance(value, int | float) else text.ljust(width)
                for value, text, width in zip(row, texts, widths, strict=True)
            ).rstrip()
        )


class Memory:
    """Memory of a process tree while it is watched.

    Attributes:
      megabytes: The maximum that all its processes held at one time, in MB of 10^6 bytes (proportional set size: a
        page that n processes share counts 1/n in each).
    """

    def __init__(self) -> None:
        self.megabytes = 0.0


@contextlib.contextmanager
def peak_memory(pid: int, every: float = _SAMPLE_SECONDS) -> Iterator[Memory]:
    """Samples the memory of a process and its descendants; peaks shorter than ``every`` s can be missed.

    Args:
      pid: The root of the process tree.
      every: Seconds between two samples.

    Yields:
      The peak so far; final after the block.
    """
    memory, done = Memory(), threading.Event()

    def watch() -> None:
        while True:
            memory.megabytes = max(memory.megabytes, tree_memory(pid))
            if done.wait(every):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        memory.megabytes = max(memory.megabytes, tree_memory(pid))
        done.set()
        thread.join()


def tree_memory(pid: int) -> float:
    """Returns the memory that a process and its descendants hold now, in MB; 0 if the process has ended."""
    return sum(_process_memory(member) for member in process_tree(pid))


def process_tree(pid: int) -> list[int]:
    """Returns a process and all its living descendants."""
    tree = [pid]
    for member in tree:  # the list grows during the iteration
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{member}/task").iterdir():
                tree += map(int, (task / "children").read_text().split())
    return tree


def _process_memory(pid: int) -> float:
    for file, field in (("smaps_rollup", "Pss"), ("status", "VmRSS")):
        with contextlib.suppress(OSError):
            if size := _proc_fields(f"/proc/{pid}/{file}").get(field):
                return int(size.split()[0]) * 1024 / 1e6
    return 0.0


def _proc_fields(path: str) -> dict[str, str]:
    """Returns the values in ``name: value`` lines; if a name is repeated, its first line counts."""
    fields: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip(), value.strip())
    return fields


def _formatted(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}" if abs(cell) < 1000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
