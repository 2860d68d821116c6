"""Makes one table of all models in the garden: parameters, BLEU with the same data and budget, and speeds.

``t2t_ext-experiment`` trains, translates and scores the rows of a recipe, and resumes where it was stopped. Then the
speeds of the runs are measured in turns, in this process: whole training steps on batches of the development set (real
tokens per second, of the source and of every target), and translation of its lines with the runs' own weights. Each
translation has as many tokens as the source, because when a model ends a sentence is a matter of its quality, not its
speed, and one sentence that never ends would delay all others.
"""

import argparse
import functools
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _report
import _speed

_SPLIT = "dev"
_AS_LONG_AS_THE_SOURCE = {
    "length_limit": "ratio",
    "min_length": 0,
    "min_length_ratio": 1.0,
    "max_length_ratio": 1.0,
    "max_length_offset": 1,
}


def make(args: argparse.Namespace, others: Sequence[str]) -> None:
    """Carries out the recipe, measures its runs, and writes ``RECIPE.{md,json,png}`` into ``args.table``.

    Args:
      args: Has ``table``, ``recipe``, ``rounds``, ``batches``, ``lines`` and TensorFlow's numbers of threads.
      others: Flags of t2t_ext-experiment.
    """
    from t2t_ext.bin._flags import start_tensorflow

    command = [sys.executable, "-m", "t2t_ext.bin.experiment", f"--recipe={args.recipe}", f"--work_dir={args.table}"]
    print(" ".join(["t2t_ext-experiment", *command[3:], *others]), flush=True)
    report_path = args.table / args.recipe / "report.json"
    before = _written(report_path)
    status = subprocess.run([*command, *others], check=False).returncode
    if status:
        raise SystemExit(f"t2t_ext-experiment ended with {status}; the same command resumes where it stopped.")
    if _written(report_path) == before:  # --dry_run, --until or --stage
        print("Nothing is measured: t2t_ext-experiment has written no report.")
        return
    report = json.loads(report_path.read_text(encoding="utf-8"))
    systems = {name: next(iter(report["runs"][name].values())) for name in _order(report)}
    start_tensorflow(args.inter_op_parallelism_threads, args.intra_op_parallelism_threads)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # no warnings about retracing: one function has many graphs on purpose
    decoding = _decode_hparams(report)
    alone = {name: pathlib.Path(runs[0]) for name, runs in systems.items() if len(runs) == 1}
    if not alone:
        raise SystemExit(f"--recipe={args.recipe}: no row has a run of its own, whose speed could be measured.")
    print(f"Measuring the training of {len(alone)} models in turns", flush=True)
    speeds = {"training": _training(alone, args.batches, args.rounds)}
    print("Measuring their decoding", flush=True)
    speeds["decoding"] = _decoding(alone, decoding, args.lines, args.rounds)
    rows = [_row(name, report, speeds) for name in systems]
    text = f"{markdown(rows)}\np: approximate randomization. 95 %: bootstrap over the lines.\n"
    if len(seeds := [*report["runs"][report["recipe"]]]) > 1:
        text += (
            f"\nOf seed {seeds[0]} alone. `{args.recipe}/report.json` has means over the seeds {', '.join(seeds)}.\n"
        )
    content = _report.report({"recipe": args.recipe, "decode_hparams": decoding, "rows": rows, "speeds": speeds})
    path = args.table / args.recipe  # a folder; the files go beside it
    _report.write_report(path.with_suffix(".json"), content | {"commands": report["commands"]})
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    if importlib.util.find_spec("matplotlib"):
        _draw(rows, path.with_suffix(".png"))
    print(f"{text}\n{args.recipe}.md, .json and .png are in {args.table}")


def _written(path: pathlib.Path) -> int | None:
    """Returns when a file was last written, in nanoseconds; None if it does not exist."""
    return path.stat().st_mtime_ns if path.exists() else None


def _order(report: Mapping[str, Any]) -> list[str]:
    """Returns the systems in the table's order: those beside the recipe, then the recipe itself."""
    return [*report["beside"], report["recipe"]]


def _decode_hparams(report: Mapping[str, Any]) -> str:
    """Returns the decoding settings of the rows, as given in the report's commands."""
    for command in report["commands"]:
        if not command.startswith("t2t_ext-translate-all "):  # teachers have their own search settings
            continue
        for part in command.split():
            if part.strip("'").startswith("--decode_hparams="):
                return part.strip("'").split("=", 1)[1]
    return ""


def _training(runs: Mapping[str, pathlib.Path], count: int, rounds: int) -> dict[str, Any]:
    """Measures whole training steps of every run's model."""
    import numpy as np

    from t2t_ext import registry
    from t2t_ext.data.datasets.example_store import ExampleStore
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.models.seq2seq import build_model
    from t2t_ext.runs.run_directory import RunDirectory
    from t2t_ext.training.gradient_norms import fixed_batches

    work, tokens = {}, {}
    for name, run in runs.items():
        directory = RunDirectory.open(run)
        hparams = directory.hparams()
        model_class = registry.model(directory.config.model)
        target_sides = model_class.sides(hparams).target_sides
        problem = registry.problem(directory.config.problem, **directory.config.problem_options)
        store = ExampleStore.load(GeneratedData.open(problem, directory.config.data_dir), _SPLIT)
        batches = fixed_batches(store, hparams, hparams.batch_size, count, target_sides)
        model = build_model(
            model_class, hparams, *directory.text_encoders(), source_feature_size=store.source_feature_size
        )
        work[name] = _speed.trainer(model, *batches)
        ids = [np.asarray(batch[side]) for batch in batches for side in ("inputs", "targets")]
        tokens[name] = sum(int(np.count_nonzero(each)) for each in ids)
    return _speed.take_turns(work, tokens, rounds)


def _decoding(runs: Mapping[str, pathlib.Path], decode_hparams: str, count: int, rounds: int) -> dict[str, Any]:
    """Measures how many lines of the development set every run translates per second, with equal output lengths."""
    from t2t_ext import registry
    from t2t_ext.config.decode import resolve_decode_hparams
    from t2t_ext.data.datasets.generated import GeneratedData
    from t2t_ext.runs.run_directory import RunDirectory
    from t2t_ext.translation.translator import Translator

    work: dict[str, Callable[[], Any]] = {}
    lines: list[str] = []
    equally_long = resolve_decode_hparams(decode_hparams).replace(**_AS_LONG_AS_THE_SOURCE)
    for name, run in runs.items():
        if not lines:
            config = RunDirectory.open(run).config
            data = GeneratedData.open(registry.problem(config.problem, **config.problem_options), config.data_dir)
            lines = data.texts(_SPLIT)[0][:count]
        translator = Translator.load(run, decode_hparams=equally_long)
        work[name] = functools.partial(translator, lines)
    return _speed.take_turns(work, len(lines), rounds)


def _row(name: str, report: Mapping[str, Any], speeds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a system's row of the table."""
    figures = {each["name"]: each for each in report["beside"].get(name, report["figures"])}
    compared = next((each for each in report["comparisons"] if each["split"] != "dev"), {"systems": {}})
    tested = compared["systems"].get(name, {})
    row = {"name": name, "model": report["rows"][name], "parameters": round(figures["parameters"]["mean"])}
    row |= {"score": tested.get("score"), "confidence": tested.get("confidence"), "label": compared.get("label")}
    row |= {"difference": tested.get("difference"), "p": tested.get("p_randomization")}
    for kind, found in speeds.items():
        row[kind] = found["per_second"].get(name)
        row[f"{kind}_ratio"] = found["ratios"].get(name)
        if name in found["seconds"]:
            # per_second is the amount of work over the median time, so each round's speed follows from its time.
            seconds = found["seconds"][name]
            amount = row[kind] * statistics.median(seconds)
            row[f"{kind}_rounds"] = [amount / max(seconds), amount / min(seconds)]
    return row


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table in Markdown; numbers in brackets are the figures divided by those of the first that has them.

    After each speed come the speeds of the slowest and the fastest round; p is that of approximate randomization.

    The JSON file beside it also has the medians of the ratios within rounds.
    """
    label = rows[0]["label"] or "BLEU"
    base = rows[0]["parameters"]
    rates = {kind: next((row[kind] for row in rows if row[kind]), None) for kind in ("training", "decoding")}
    lines = [
        f"| | parameters | {label} (95 %) | difference (p) | training, tokens/s | decoding, sentences/s |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["model"], f"{row['parameters'] / 1e6:.2f}M ({row['parameters'] / base:.2f})"]
        score = "-" if row["score"] is None else f"{row['score']:.2f}"
        cells.append(score if row["confidence"] is None else f"{score} ± {row['confidence']:.2f}")
        cells.append("" if row["difference"] is None else f"{row['difference']:+.2f} ({row['p']:.3f})")
        for kind, first in rates.items():
            rate = row[kind]
            spread = "{:,.0f} to {:,.0f}".format(*row[f"{kind}_rounds"]) if rate else ""
            cells.append("-" if rate is None else f"{rate:,.0f} ({rate / first:.2f}); {spread}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _draw(rows: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Draws the scores with their intervals, and the speeds relative to the first row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    places = range(len(rows))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 1.2 + 0.42 * len(rows)), layout="constrained", sharey=True)
    scored = [(place, row) for place, row in zip(places, rows, strict=True) if row["score"] is not None]
    left.errorbar(
        [row["score"] for _, row in scored],
        [place for place, _ in scored],
        xerr=[row["confidence"] or 0.0 for _, row in scored],
        fmt="o",
        capsize=3,
    )
    left.set(yticks=list(places), yticklabels=[row["model"] for row in rows], xlabel=f"{rows[0]['label']}, 95 %")
    left.invert_yaxis()
    for kind, shift in (("training", -0.18), ("decoding", 0.18)):
        ratios = [row[f"{kind}_ratio"] or 0.0 for row in rows]
        right.barh([place + shift for place in places], ratios, height=0.34, label=kind)
    right.axvline(1.0, color="0.4", linewidth=1)
    measured = next((row["model"] for row in rows if row["training"]), rows[0]["model"])
    right.set(xlabel=f"speed beside {measured}")
    right.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=2, frameon=False)
    for axis in (left, right):
        axis.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=120)
    plt.close(figure)
