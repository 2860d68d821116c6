"""Draws a run's curves from its metrics.jsonl: training loss and dev BLEU over minutes of training.

python benchmarks/plot_run.py RUN [RUN ...] --out=curve.png
"""

import argparse
import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def curves(run: pathlib.Path) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Returns (minutes, training loss) and (minutes, dev BLEU) of a run.

    Minutes are of training only, without evaluations and start-up.
    """
    losses, scores, minutes = [], [], 0.0
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] == "train":
            minutes += record["seconds"] / 60
            if record.get("loss") is not None:  # None if all steps were skipped or the loss was not a number
                losses.append((minutes, record["loss"]))
        elif record["kind"] == "eval" and "bleu" in record:
            scores.append((minutes, record["bleu"]))
    return losses, scores


def main() -> None:
    """Reads the runs and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    for run in args.runs:
        if not (run / "metrics.jsonl").is_file():
            raise SystemExit(f"{run} has no metrics.jsonl: name run directories.")

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for run in args.runs:
        losses, scores = curves(run)
        left.plot(*zip(*losses, strict=True), label=run.name)
        right.plot(*zip(*scores, strict=True), marker="o", label=run.name)
        for minutes, bleu in scores:
            print(f"{run.name}: {minutes:6.1f} min  dev BLEU {bleu:5.2f}")
    left.set(xlabel="minutes of training", ylabel="training loss (nats a target token, smoothed)")
    right.set(xlabel="minutes of training", ylabel="dev BLEU")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        if len(args.runs) > 1:
            axis.legend()
    figure.suptitle(args.title)
    figure.savefig(args.out, dpi=120)


if __name__ == "__main__":
    main()
