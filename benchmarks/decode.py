"""Measures how fast a run translates: sentences/s, tokens/s, latency of one sentence, start-up, peak memory.

    python benchmarks/decode.py RUN --input=test.de                                # everything, about 3 minutes
    python benchmarks/decode.py RUN --input=test.de --parts=translator --precision=bfloat16,float32
    python benchmarks/decode.py RUN --input=test.de --parts=saved_model --callers=1,4
    python benchmarks/decode.py RUN --input=test.de --compare=decode.json          # ratios against a stored report
    python benchmarks/decode.py RUN --input=test.de --device=gpu --decode_hparams=batch_size=256

The same lines are translated in three ways, each in a separate process:

    command      t2t_ext-decoder as users run it, including start-up and warm-up; its start-up is the wall time of
                 translating one line, including start and end of the process
    translator   Translator.translate in a process that is warm, then single lines (p50, p95)
    saved_model  the exported graph with one intra-op thread and several callers, which send batches of similar lengths

The run must be trained, because the length of translations decides the speed and an untrained model's translations have
no sensible length. Tokens are the translations' subwords with EOS. Rates are the best of ``--rounds`` passes; the
report has all of them.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _report

_PARTS = ("command", "translator", "saved_model")


def main() -> None:
    """Measures, prints the results and stores them."""
    args = _parser().parse_args()
    if args.worker:
        print(json.dumps(_WORKERS[args.worker](args)), file=sys.stdout)
        return
    _report.check_names("--parts", args.parts, _PARTS)
    before = _report.read_report(args.compare) if args.compare else None
    lines = _lines(args.input)[: args.lines]
    configurations: dict[str, dict[str, Any]] = {}
    with _report.temporary_directory("--work_dir", args.work_dir) as name:
        work = pathlib.Path(name)
        args.input = work / "lines.txt"
        args.input.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for precision in args.precision.split(","):
            args.hparams = ",".join(filter(None, (args.decode_hparams, precision and f"precision={precision}")))
            for part in args.parts.split(","):
                title = f"{part} {precision or 'of the run'}"
                print(title, flush=True)
                configurations[title] = _MEASURES[part](args, work)
                print("  " + _line(configurations[title]), flush=True)
    stored = {"run": str(args.run), "lines": len(lines), "configurations": configurations}
    if before is not None:
        stored["ratios"] = _ratios(configurations, before)
        _report.print_table([("ratio to " + args.compare.name, "")] + [list(row) for row in stored["ratios"].items()])
    _report.write_report(args.out, _report.report(stored))
    print(f"written to {args.out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    count = _report.whole_number()
    parser.add_argument("run", type=pathlib.Path, help="directory of a trained run")
    parser.add_argument("--input", type=pathlib.Path, required=True, help="lines to translate")
    parser.add_argument("--lines", type=count, default=1000, help="so many of them")
    parser.add_argument("--parts", default=",".join(_PARTS), help="which ways to translate")
    parser.add_argument("--checkpoint_path", default="", help="as the decoder's flag")
    parser.add_argument("--decode_hparams", default="", help="as the decoder's flag")
    parser.add_argument("--precision", default="", help="A,B: several [the run's]")
    parser.add_argument("--parallel_batches", default="", help="A,B: several of the translator [its default]")
    parser.add_argument("--callers", default="1,4", help="A,B: several of the SavedModel")
    parser.add_argument("--intra_op_parallelism_threads", type=int, default=1)
    parser.add_argument("--inter_op_parallelism_threads", type=int, default=0, help="[TensorFlow's choice]")
    parser.add_argument("--export", type=pathlib.Path, help="version directory of a SavedModel [exported for this]")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--alone", type=count, default=50, help="lines translated alone for the waiting time")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"), help="auto: GPUs if there are any")
    parser.add_argument("--work_dir", type=pathlib.Path, help="where files are put for a while")
    parser.add_argument("--compare", type=pathlib.Path, help="a stored report; ratios to it are printed")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("decode.json"), help="the report")
    parser.add_argument("--worker", default="", choices=("", *_PARTS[1:]), help=argparse.SUPPRESS)
    parser.add_argument("--hparams", default="", help=argparse.SUPPRESS)
    return parser


def _lines(path: pathlib.Path) -> list[str]:
    """Returns the lines of the input; raises SystemExit if there are none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"--input={path} cannot be read: {error}. Name a text file in UTF-8.") from None
    if not lines:
        raise SystemExit(f"--input={path} has no lines: there is nothing to translate.")
    return lines


# === Processes ===


def _environment(device: str) -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else dict(os.environ)


def _finish(command: Sequence[str], args: argparse.Namespace) -> tuple[str, float, float]:
    """Runs a command to its end; returns its standard output, seconds and peak memory in MB.

    Raises:
      SystemExit: The command failed.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=_environment(args.device), stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with _report.peak_memory(process.pid) as memory:
            output, _ = process.communicate()
        seconds = time.monotonic() - started
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}:\n{errors.read()}")
    return output, seconds, memory.megabytes


def _run_flags(args: argparse.Namespace) -> list[str]:
    flags = [f"--output_dir={args.run}", f"--decode_hparams={args.hparams}"]
    return flags + ([f"--checkpoint_path={args.checkpoint_path}"] if args.checkpoint_path else [])


def _measure_command(args: argparse.Namespace, work: pathlib.Path) -> dict[str, Any]:
    """Runs ``t2t_ext-decoder`` on one line and on all lines; returns the measurements."""
    one = work / "one.txt"
    one.write_text(args.input.read_text(encoding="utf-8").split("\n", 1)[0] + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "t2t_ext.bin.decoder", *_run_flags(args)]
    command += [f"--intra_op_parallelism_threads={args.intra_op_parallelism_threads}"]
    command += [f"--inter_op_parallelism_threads={args.inter_op_parallelism_threads}"]

    def run(path: pathlib.Path) -> tuple[float, float]:
        return _finish([*command, f"--decode_from_file={path}", f"--decode_to_file={path}.out"], args)[1:]

    starts = [run(one)[0] for _ in range(args.rounds)]
    seconds, megabytes = run(args.input)
    count = sum(1 for _ in args.input.open(encoding="utf-8"))
    return {
        "startup_seconds": min(starts),
        "sentences_per_second": count / seconds,
        "peak_memory_mb": megabytes,
        "all_startup_seconds": starts,
    }


def _measure_worker(args: argparse.Namespace, part: str, *flags: str) -> dict[str, Any]:
    names = ("input", "rounds", "alone", "device", "parallel_batches", "callers", "checkpoint_path", "hparams")
    names += ("intra_op_parallelism_threads", "inter_op_parallelism_threads")
    command = [sys.executable, __file__, str(args.run), f"--worker={part}", *flags]
    output, _, megabytes = _finish([*command, *(f"--{name}={getattr(args, name)}" for name in names)], args)
    return {**json.loads(output.splitlines()[-1]), "peak_memory_mb": megabytes}


def _measure_translator(args: argparse.Namespace, work: pathlib.Path) -> dict[str, Any]:
    del work
    return _measure_worker(args, "translator")


def _measure_saved_model(args: argparse.Namespace, work: pathlib.Path) -> dict[str, Any]:
    export = args.export
    if export is None:
        base = pathlib.Path(tempfile.mkdtemp(dir=work))
        _finish([sys.executable, "-m", "t2t_ext.bin.exporter", *_run_flags(args), f"--export_dir={base}"], args)
        (export,) = base.iterdir()
    return _measure_worker(args, "saved_model", f"--export={export}")


_MEASURES: dict[str, Callable[[argparse.Namespace, pathlib.Path], dict[str, Any]]] = {
    "command": _measure_command,
    "translator": _measure_translator,
    "saved_model": _measure_saved_model,
}


# === Inside the processes ===


def _start_tensorflow(args: argparse.Namespace) -> None:
    from t2t_ext.bin._flags import start_tensorflow

    start_tensorflow(args.inter_op_parallelism_threads, args.intra_op_parallelism_threads)
    if args.device == "gpu":
        import tensorflow as tf

        if not tf.config.list_physical_devices("GPU"):
            raise SystemExit("--device=gpu, but TensorFlow finds no GPU here.")


def _rates(translate: Callable[[], int], lines: int, rounds: int) -> dict[str, Any]:
    """Translates everything ``rounds`` times; returns the rates. ``translate`` returns its number of tokens, or 0."""
    seconds, tokens = [], 0
    for _ in range(rounds):
        started = time.monotonic()
        tokens = translate()
        seconds.append(time.monotonic() - started)
    found = {"sentences_per_second": lines / min(seconds), "all_seconds": seconds}
    return {**found, "tokens_per_second": tokens / min(seconds)} if tokens else found


def _waiting_times(translate: Callable[[str], Any], lines: Sequence[str]) -> dict[str, float]:
    """Returns the latencies of single lines in milliseconds; every line is translated once before, unmeasured."""
    times = []
    for measured in (False, True):
        for line in lines:
            started = time.monotonic()
            translate(line)
            if measured:
                times.append(1000 * (time.monotonic() - started))
    longest = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    return {"alone_p50_ms": statistics.median(times), "alone_p95_ms": longest}


def _translator_worker(args: argparse.Namespace) -> dict[str, Any]:
    lines = args.input.read_text(encoding="utf-8").splitlines()
    _start_tensorflow(args)
    from t2t_ext import Translator

    translator = Translator.load(args.run, args.checkpoint_path or None, args.hparams)
    translator.translate(lines)
    found: dict[str, Any] = {}
    for number in args.parallel_batches.split(","):
        if number:
            translator.parallel_batches = int(number)

        def everything() -> int:
            return sum(hypotheses[0].length for hypotheses in translator.translate(lines))

        found[f"parallel_batches={translator.parallel_batches}"] = _rates(everything, len(lines), args.rounds)
    return {**found, **_waiting_times(lambda line: translator([line]), lines[: args.alone])}


def _saved_model_worker(args: argparse.Namespace) -> dict[str, Any]:
    lines = args.input.read_text(encoding="utf-8").splitlines()
    _start_tensorflow(args)
    import tensorflow as tf

    from t2t_ext.serving.export import load

    loaded = load(args.export)
    translate = loaded.signatures["serving_default"]
    order = sorted(lines, key=len, reverse=True)
    size = _batch_size(args.hparams)
    batches = [order[start : start + size] for start in range(0, len(order), size)]

    def request(batch: Sequence[str]) -> Any:
        return translate(inputs=tf.constant(batch))["outputs"].numpy()

    found: dict[str, Any] = {}
    for callers in map(int, args.callers.split(",")):
        with concurrent.futures.ThreadPoolExecutor(callers) as pool:
            list(pool.map(request, batches))

            def everything(pool: concurrent.futures.Executor = pool) -> int:
                list(pool.map(request, batches))
                return 0

            found[f"callers={callers}"] = _rates(everything, len(lines), args.rounds)
    return {**found, **_waiting_times(lambda line: request([line]), lines[: args.alone])}


def _batch_size(decode_hparams: str) -> int:
    from t2t_ext.config.decode import resolve_decode_hparams

    return resolve_decode_hparams(decode_hparams).batch_size


_WORKERS = {"translator": _translator_worker, "saved_model": _saved_model_worker}


# === Reports ===


def _figures(found: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Returns the numbers in nested results by dotted names."""
    flat: dict[str, float] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            flat.update(_figures(value, f"{prefix}{name}."))
        elif isinstance(value, int | float):
            flat[prefix + name] = value
    return flat


def _line(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in _figures(found).items())


def _ratios(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, float]:
    """Returns the ratio of new to old for every figure that both reports have."""
    old = _figures(before["configurations"])
    return {name: value / old[name] for name, value in _figures(now).items() if old.get(name)}


if __name__ == "__main__":
    main()
