"""Measures how fast ``t2t_ext-trainer`` trains: tokens/s, pairs/s, time to the first update, peak memory.

    python benchmarks/train.py                                               # an offline corpus, about 4 minutes
    python benchmarks/train.py --data_dir=D --tmp_dir=T                      # Multi30k, as docs/results/multi30k.md
    python benchmarks/train.py --precision=float32,mixed_bfloat16 --rounds=3 # ratios of configurations in one run
    python benchmarks/train.py --compare=train.json --out=after.json         # ratios against a stored report
    python benchmarks/train.py --device=gpu --precision=mixed_bfloat16 --batch_size=16384

The command that users run is started in a separate process and its RUN/metrics.jsonl is read, so the figures are those
that users get. Flags with commas make several configurations, which take turns (A B A B ...), so that other work on the
machine affects all of them equally. A round ends with SIGTERM after ``--seconds`` of updates.

Tokens are real ones (no padding) of both sides, including EOS. The rates leave out the first update, which builds the
graph. "Best minute" is the best sequence of log windows that lasts 60 s or, in shorter rounds, the best quarter of a
round. "First update" counts from the start of the process. Memory is the trainer's peak resident set, in MB of 10^6
bytes.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import _report

_MULTI30K = "translate_deen_multi30k"
_OFFLINE = "translate_ende_cldr"  # generated without a network
_HPARAMS_SET = "transformer_iwslt_4layer"
# For small updates with this set; other sets may have a schedule that reads neither, or other rates.
_RATE = {"learning_rate_constant": "0.6", "learning_rate_warmup_steps": "800"}
_FIRST_STEP = re.compile(r"\bfirst step after\b")
_ENDLESS = 1_000_000  # steps
_AXES = ("precision", "batch_size", "parallel_slices", "trainer")
_FIGURES = {
    "tokens_per_second_best_minute": "tokens/s best minute",
    "tokens_per_second_median": "median",
    "pairs_per_second_best_minute": "pairs/s best minute",
    "pairs_per_second_median": "median",
    "first_update_seconds": "first update s",
    "peak_memory_mb": "peak MB",
    "fill_rate": "filled",
}


def main() -> None:
    """Measures, prints the results and stores them."""
    args = _parser().parse_args()
    configurations = list(_configurations(args))
    before = _report.read_report(args.compare) if args.compare else None
    if before is not None:
        check_comparable([title for title, _ in configurations], before, str(args.compare))
    with _report.temporary_directory("--work_dir", args.work_dir) as name:
        work = pathlib.Path(name)
        problem, data_dir = _data(args, work)
        rounds: dict[str, list[dict[str, Any]]] = {title: [] for title, _ in configurations}
        for number in range(args.rounds):
            for place, (title, settings) in enumerate(configurations):
                print(f"round {number + 1} of {args.rounds}: {title}", flush=True)
                command = _command(args, settings, problem, data_dir, work / f"run_{number}_{place}")
                rounds[title].append(measure(command, _environment(args), args.seconds, args.show))
                print(f"  {_line(rounds[title][-1])}", flush=True)
    results = {title: summary(found) for title, found in rounds.items()}
    _print(results)
    stored = {"problem": problem, "seconds": args.seconds, "configurations": results, "rounds": rounds}
    if before is not None:
        stored["ratios"] = compare(results, before, str(args.compare))
    _report.write_report(args.out, _report.report(stored))
    print(f"written to {args.out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    count = _report.whole_number()
    parser.add_argument("--model", default="transformer")
    parser.add_argument("--hparams_set", default=_HPARAMS_SET)
    parser.add_argument("--hparams", type=_assignments, default="", help="more of them, as the trainer's flag")
    parser.add_argument("--precision", default="float32", help="A,B: several")
    parser.add_argument("--batch_size", default="2048", help="target tokens a replica a step; A,B: several")
    parser.add_argument("--parallel_slices", default="", help="A,B: several [as many as cores, at most 2; 1 on a GPU]")
    parser.add_argument("--trainer", default="", help="A,B: trainer commands to compare [that of this Python]")
    parser.add_argument(
        "--problem", default="", help=f"[{_MULTI30K} where --data_dir or --tmp_dir is given, else {_OFFLINE}]"
    )
    parser.add_argument("--data_dir", type=pathlib.Path, help="generated data; generated where they are missing")
    parser.add_argument("--tmp_dir", type=pathlib.Path, help="raw text for generating them")
    parser.add_argument("--seconds", type=float, default=90.0, help="length of a round after the first update")
    parser.add_argument(
        "--steps",
        type=_report.whole_number(0),
        default=0,
        help="end of a round by steps, with an evaluation [by seconds]",
    )
    parser.add_argument("--rounds", type=count, default=2)
    parser.add_argument("--log_steps", type=count, default=10, help="steps of a log window")
    parser.add_argument("--intra_op_parallelism_threads", type=int, default=0, help="[the trainer's choice]")
    parser.add_argument("--inter_op_parallelism_threads", type=int, default=0, help="[the trainer's choice]")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"), help="auto: GPUs if there are any")
    parser.add_argument("--distribution", default="auto", help="as the trainer's flag")
    parser.add_argument("--random_seed", type=int, default=1)
    parser.add_argument("--work_dir", type=pathlib.Path, help="where runs are put for a while")
    parser.add_argument("--show", action="store_true", help="pass on what the trainer prints")
    parser.add_argument("--compare", type=pathlib.Path, help="a stored report; ratios to it are printed")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("train.json"), help="the report")
    return parser


def _assignments(text: str) -> dict[str, str]:
    """Returns the names and values of ``a=1,b=x``."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if wrong := [name for name, _, value in pairs if not value]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r} is not of the form name=value")
    if own := [name for name, _, _ in pairs if name in _AXES]:  # which the report's titles and figures go by
        raise argparse.ArgumentTypeError(f"{own[0]} has a flag of its own: --{own[0]}")
    return {name: value for name, _, value in pairs}


def _data(args: argparse.Namespace, work: pathlib.Path) -> tuple[str, pathlib.Path]:
    """Returns the problem and the directory of its data, which are generated if they are missing."""
    problem = args.problem or (_MULTI30K if args.data_dir or args.tmp_dir else _OFFLINE)
    data_dir = args.data_dir or work / "data"
    if not (data_dir / f"{problem.removesuffix('_rev')}.manifest.json").exists():
        print(f"generating {problem}", flush=True)
        command = [sys.executable, "-m", "t2t_ext.bin.datagen", f"--problem={problem}", f"--data_dir={data_dir}"]
        command += [f"--tmp_dir={args.tmp_dir or work / 'text'}"]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)} ended with status {done.returncode}:\n{done.stdout}")
    return problem, data_dir


def _configurations(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields (title, settings) of every combination; a title names the settings that have several values."""
    slices = args.parallel_slices or str(1 if _has_gpu(args) else min(2, len(os.sched_getaffinity(0))))
    values = {**vars(args), "parallel_slices": slices}
    axes = {name: str(values[name]).split(",") for name in _AXES}
    varied = [name for name in _AXES if len(axes[name]) > 1 or name == "precision"]
    for combination in itertools.product(*axes.values()):
        settings = dict(zip(_AXES, combination, strict=True))
        yield (
            " ".join(settings[name] if name == "precision" else f"{name}={settings[name]}" for name in varied),
            settings,
        )


def _has_gpu(args: argparse.Namespace) -> bool:
    """Returns whether the trainer will use a GPU.

    Raises:
      SystemExit: ``--device=gpu``, but TensorFlow finds none.
    """
    if args.device == "cpu":
        return False
    program = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    # A separate process, because this one must not occupy the GPU.
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=False, capture_output=True, text=True, env=_environment(args))
    count = int(found.stdout.split()[-1]) if found.stdout.split() else 0
    if args.device == "gpu" and not count:
        raise SystemExit("--device=gpu: TensorFlow finds no GPU here (its messages: python -c 'import tensorflow').")
    return count > 0


def _environment(args: argparse.Namespace) -> dict[str, str]:
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if args.device == "cpu" else {}
    return {**os.environ, **hidden, "PYTHONUNBUFFERED": "1"}


def _command(
    args: argparse.Namespace, settings: Mapping[str, str], problem: str, data_dir: pathlib.Path, run: pathlib.Path
) -> list[str]:
    hparams = {
        "batch_size": settings["batch_size"],
        "batch_tokens": "target",
        "precision": settings["precision"],
        "parallel_slices": settings["parallel_slices"],
        **(_RATE if args.hparams_set == _HPARAMS_SET else {}),
        **args.hparams,
    }
    trainer = shlex.split(settings["trainer"]) or [sys.executable, "-m", "t2t_ext.bin.trainer"]
    for name in ("intra_op_parallelism_threads", "inter_op_parallelism_threads"):
        if getattr(args, name):
            trainer.append(f"--{name}={getattr(args, name)}")
    return [
        *trainer,
        f"--problem={problem}",
        f"--model={args.model}",
        f"--hparams_set={args.hparams_set}",
        f"--hparams={','.join(f'{name}={value}' for name, value in hparams.items())}",
        f"--data_dir={data_dir}",
        f"--output_dir={run}",
        f"--train_steps={args.steps or _ENDLESS}",
        f"--local_eval_frequency={args.steps or _ENDLESS}",
        f"--log_step_count_steps={args.log_steps}",
        f"--distribution={args.distribution}",
        f"--random_seed={args.random_seed}",
        # Without BLEU: the time of an evaluation is not training time, and its memory would only come at the end.
        "--eval_bleu_sentences=-1",
        "--best_checkpoint_metric=loss",
    ]


def measure(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, show: bool = False
) -> dict[str, Any]:
    """Runs a trainer once.

    Args:
      command: Its command line, which includes ``--output_dir`` and ``--train_steps``.
      environment: The environment of its process.
      seconds: Time after the first update at which it is asked to stop.
      show: Whether to show its output.

    Returns:
      The figures of the round, including its ``windows`` (of metrics.jsonl).

    Raises:
      SystemExit: It failed, or stopped before it logged anything; its output is in the message.
    """
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in command if flag.startswith("--"))
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    first, output, timer = 0.0, [], threading.Timer(seconds, os.kill, [process.pid, signal.SIGTERM])
    try:
        for line in process.stdout:
            if not first and _FIRST_STEP.search(line):
                first = time.monotonic() - began
                if int(flags["train_steps"]) == _ENDLESS:
                    timer.start()
            output.append(line)
            if show:
                print(f"    {line}", end="", flush=True)
    except BaseException:
        process.kill()
        raise
    finally:
        timer.cancel()
        # The kernel records the peak; sampling the memory while the trainer runs would slow it down.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    metrics = pathlib.Path(flags["output_dir"]) / "metrics.jsonl"
    records = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    windows = [record for record in records if record["kind"] == "train"]
    if process.returncode not in (0, 143) or not first or not windows:
        wanted = "" if windows else f" (nothing was logged: more --seconds than {seconds:g}, or fewer --log_steps?)"
        raise SystemExit(
            f"{shlex.join(command)} ended with status {process.returncode}{wanted}:\n{''.join(output[-30:])}"
        )
    return {"first_update_seconds": first, "peak_memory_mb": usage.ru_maxrss * 1024 / 1e6, **rates(windows)}


def rates(windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the rates of a round's log windows.

    Args:
      windows: Records of metrics.jsonl of the kind ``train``, in order.
    """
    rows = []
    for window in windows:
        tokens = window["source_tokens_per_step"] + window["target_tokens_per_step"]
        rows.append(
            {
                "step": window["step"],
                "seconds": window["seconds"],
                "tokens_per_second": window["tokens_per_second"],
                "pairs_per_second": window["tokens_per_second"] * window["examples_per_step"] / max(tokens, 1e-9),
                "fill_rate": window["fill_rate"],
                "loss": window.get("loss"),  # None if all steps were skipped
            }
        )
    result: dict[str, Any] = {
        "steps": rows[-1]["step"],
        "fill_rate": statistics.fmean(row["fill_rate"] for row in rows),
    }
    for name in ("tokens_per_second", "pairs_per_second"):
        result[f"{name}_best_minute"] = best_stretch(rows, name)
        result[f"{name}_median"] = statistics.median(row[name] for row in rows)
    return {**result, "windows": rows}


def best_stretch(rows: Sequence[Mapping[str, float]], name: str, seconds: float = 60.0) -> float:
    """Returns the best mean rate over consecutive windows of 60 s together (a quarter of the time if that is less)."""
    seconds = min(seconds, sum(row["seconds"] for row in rows) / 4)
    best = 0.0
    for begin in range(len(rows)):
        time_so_far, amount = 0.0, 0.0
        for row in rows[begin:]:
            time_so_far += row["seconds"]
            amount += row["seconds"] * row[name]
            if time_so_far >= seconds:
                best = max(best, amount / time_so_far)
                break
    return best


def summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns a summary of a configuration's rounds: best minute, median of windows, median start, maximum memory."""
    windows = [window for found in rounds for window in found["windows"]]
    return {
        "tokens_per_second_best_minute": max(found["tokens_per_second_best_minute"] for found in rounds),
        "tokens_per_second_median": statistics.median(window["tokens_per_second"] for window in windows),
        "pairs_per_second_best_minute": max(found["pairs_per_second_best_minute"] for found in rounds),
        "pairs_per_second_median": statistics.median(window["pairs_per_second"] for window in windows),
        "first_update_seconds": statistics.median(found["first_update_seconds"] for found in rounds),
        "peak_memory_mb": max(found["peak_memory_mb"] for found in rounds),
        "fill_rate": statistics.fmean(found["fill_rate"] for found in rounds),
    }


def check_comparable(titles: Sequence[str], stored: Mapping[str, Any], name: str) -> None:
    """Checks, before anything is measured, that a stored report has one of the configurations.

    Raises:
      SystemExit: It has none of them.
    """
    if not set(titles) & set(stored["configurations"]):
        raise SystemExit(f"{name} has none of these configurations, only {', '.join(stored['configurations'])}")


def compare(results: Mapping[str, Any], stored: Mapping[str, Any], name: str) -> dict[str, dict[str, float]]:
    """Prints and returns the ratios of the figures to a stored report's, for configurations that both have."""
    ratios = {}
    for title, now in results.items():
        before = stored["configurations"].get(title)
        if before:
            ratios[title] = {figure: now[figure] / before[figure] for figure in _FIGURES if before.get(figure)}
    print(f"ratios to {name} of {stored.get('date', 'an unknown date')}:")
    _report.print_table(
        [
            ("configuration", *_FIGURES.values()),
            *((title, *(f"{row.get(figure, 0):.3f}" for figure in _FIGURES)) for title, row in ratios.items()),
        ]
    )
    return ratios


def _line(found: Mapping[str, Any]) -> str:
    return (
        f"{found['tokens_per_second_median']:,.0f} tokens/s (median of {len(found['windows'])} windows), first update "
        f"after {found['first_update_seconds']:.1f} s, {found['peak_memory_mb']:,.0f} MB"
    )


def _print(results: Mapping[str, Mapping[str, float]]) -> None:
    _report.print_table(
        [
            ("configuration", *_FIGURES.values()),
            *((title, *(round(row[name], 3) for name in _FIGURES)) for title, row in results.items()),
        ]
    )
    titles = list(results)
    for other in titles[1:]:
        ratio = results[other]["tokens_per_second_median"] / results[titles[0]]["tokens_per_second_median"]
        print(f"{other} against {titles[0]}: {ratio:.3f} x the median tokens/s")


if __name__ == "__main__":
    main()
