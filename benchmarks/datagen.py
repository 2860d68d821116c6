"""Measures the throughput of ``t2t_ext-datagen``: pairs/s, CPU time, peak memory, on a generated corpus.

    python benchmarks/datagen.py                               # 300,000 pairs, about a minute
    python benchmarks/datagen.py --pairs=5000000 --compare_pairs=300000 --out=datagen.json

The seed determines the corpus: sentences of invented words with the frequencies of a natural language (Zipf's law),
about 15 subwords a side; every fifth pair repeats an earlier one. The command that users run is measured in separate
processes: first as a whole on ``--pairs`` (reading, training the subword model on at most 500,000 pairs, encoding,
finding duplicates, shuffling, compressing, writing), then on ``--compare_pairs`` with that subword model, with one
process and with all, with and without looking for duplicates. If other programs use the machine, CPU time is more
meaningful than seconds. The rate of the whole command is projected to other sizes: everything except the training of
the subword model grows in proportion to the number of pairs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import _report
import numpy as np

_BLOCK = 50_000
_REPEATED_EVERY = 5  # one of every five blocks repeats the block before it
_PROJECTED = (36_000_000, 1_000_000_000)
_PROBLEM = "translate_parallel_text"


def write_corpus(directory: pathlib.Path, pairs: int, seed: int, words: int = 6_000) -> dict[str, pathlib.Path]:
    """Writes a parallel text and returns its files by the names of the flags that take them.

    Args:
      directory: Where the files go.
      pairs: Number of lines in the training text; the development text has 1,000.
      seed: The seed that determines the text.
      words: Number of different words in each language.
    """
    paths = {
        f"{split}_{side}": directory / f"{split}.{side}" for split in ("train", "dev") for side in ("source", "target")
    }
    for number, side in enumerate(("source", "target")):
        rng = np.random.default_rng([seed, number])
        lexicon = _lexicon(rng, words)
        text = ""
        for split, count in (("train", pairs), ("dev", 1000)):
            with open(paths[f"{split}_{side}"], "w", encoding="utf-8") as file:
                for start in range(0, count, _BLOCK):
                    # One generator per block draws the lengths, so both sides of a pair have equally many words.
                    lengths = np.random.default_rng([seed, 7, start]).integers(5, 15, min(_BLOCK, count - start))
                    repeats = start // _BLOCK % _REPEATED_EVERY == _REPEATED_EVERY - 1 and len(lengths) == _BLOCK
                    text = text if repeats else _sentences(rng, lexicon, lengths)
                    file.write(text)
    return paths


def _lexicon(rng: np.random.Generator, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns words (str [words], the frequent ones shorter) and their cumulative probabilities."""
    letters = np.array(list("etaoinsrhldcumfpgwybvkxjqzäöüß"))
    weights = 1.0 / np.arange(2, len(letters) + 2)
    found: dict[str, None] = {}
    while len(found) < words:
        length = int(rng.integers(2, 4 + min(8, len(found) // 200)))
        found["".join(rng.choice(letters, length, p=weights / weights.sum()))] = None
    frequencies = 1.0 / (np.arange(words) + 2.7)
    return np.array(list(found), dtype=object), np.cumsum(frequencies / frequencies.sum())


def _sentences(rng: np.random.Generator, lexicon: tuple[np.ndarray, np.ndarray], lengths: np.ndarray) -> str:
    words, cumulated = lexicon
    drawn = words[np.searchsorted(cumulated, rng.random(int(lengths.sum()))).clip(max=len(words) - 1)].tolist()
    ends = np.cumsum(lengths).tolist()
    starts = [0, *ends[:-1]]
    return "".join(" ".join(drawn[a:b]).capitalize() + " .\n" for a, b in zip(starts, ends, strict=True))


def measure(data_dir: pathlib.Path, paths: dict[str, pathlib.Path], *more: str) -> dict[str, Any]:
    """Runs the command once; returns seconds, CPU seconds, rates and memory."""
    flags = [f"--problem={_PROBLEM}", *(f"--{name}={path}" for name, path in paths.items()), f"--data_dir={data_dir}"]
    command = [sys.executable, "-m", "t2t_ext.bin.datagen", *flags, *more]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    with _report.peak_memory(process.pid) as memory:
        _, status, used = os.wait4(process.pid, 0)  # includes the usage of its own children
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds, cpu_seconds = time.perf_counter() - began, used.ru_utime + used.ru_stime
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    manifest = json.loads((data_dir / f"{_PROBLEM}.manifest.json").read_text(encoding="utf-8"))
    train = manifest["splits"]["train"]
    tokens = sum(train["tokens"].values())
    return {
        "pairs": train["read"],
        "pairs_written": train["samples"],
        "seconds": seconds,
        "pairs_per_second": train["read"] / seconds,
        "cpu_seconds": cpu_seconds,
        "cpu_microseconds_a_pair": cpu_seconds / train["read"] * 1e6,
        "tokens_a_side": tokens / 2 / train["samples"],
        "peak_memory_mb": memory.megabytes,
        "shard_megabytes": sum(manifest["files"][name]["bytes"] for name in train["shards"]) / 1e6,
        "subword_model": str(data_dir / manifest["vocab"]["source"]["file"]),
    }


def projections(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns projections to other numbers of pairs, at the rate of the whole command."""
    return [
        {
            "pairs": pairs,
            "hours": pairs / whole["pairs_per_second"] / 3600,
            "cpu_hours": pairs * whole["cpu_microseconds_a_pair"] / 1e6 / 3600,
            "shard_gigabytes": pairs * whole["shard_megabytes"] / whole["pairs"] / 1e3,
        }
        for pairs in _PROJECTED
    ]


def measure_all(directory: pathlib.Path, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns every measurement by its title."""
    all_of_them = args.num_processes or len(os.sched_getaffinity(0))
    duplicates = "--cleaning=duplicates=true"
    processes = f"--num_processes={all_of_them}"
    paths = write_corpus(directory, args.pairs, args.seed)
    title = f"everything, duplicates too, {all_of_them} processes"
    runs = {title: measure(directory / "data", paths, processes, duplicates)}
    model = runs[title]["subword_model"]
    if args.compare_pairs:
        paths = write_corpus(_made(directory / "compare"), args.compare_pairs, args.seed)
    for count in dict.fromkeys((1, all_of_them)) if args.compare_pairs else ():
        for more, what in (((), ""), ((duplicates,), ", duplicates too")):
            title = f"ready model{what}, {count} process{'es' if count > 1 else ''}"
            given = (f"--num_processes={count}", f"--subword_model={model}", *more)
            runs[title] = measure(directory / f"data{len(runs)}", paths, *given)
    return runs


def main() -> None:
    """Makes the corpus, measures, prints the results and stores them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=_report.whole_number(), default=300_000, help="lines of the training text")
    parser.add_argument(
        "--compare_pairs",
        type=_report.whole_number(0),
        default=300_000,
        help="lines for the comparisons; 0 leaves them out",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--num_processes", type=_report.whole_number(0), default=0, help="as the command's; 0: one per core"
    )
    parser.add_argument("--tmp_dir", type=pathlib.Path, help="where the corpus and the data go for a while")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("datagen.json"), help="the report")
    args = parser.parse_args()

    with _report.temporary_directory("--tmp_dir", args.tmp_dir) as name:
        runs = measure_all(pathlib.Path(name), args)
    for run in runs.values():
        del run["subword_model"]  # the file no longer exists
    shown = ("pairs", "seconds", "pairs_per_second", "cpu_microseconds_a_pair", "peak_memory_mb")
    heading = ("command", "pairs", "seconds", "pairs/s", "CPU us/pair", "peak MB")
    _report.print_table([heading, *((title, *(run[key] for key in shown)) for title, run in runs.items())])
    projected = projections(next(iter(runs.values())))
    columns = ("pairs", "hours", "cpu_hours", "shard_gigabytes")
    print("\nAt the rate of the whole command:")
    _report.print_table([columns, *(tuple(row[column] for column in columns) for row in projected)])
    _report.write_report(args.out, _report.report({"runs": runs, "projections": projected}))
    print(f"written to {args.out}")


def _made(directory: pathlib.Path) -> pathlib.Path:
    directory.mkdir()
    return directory


if __name__ == "__main__":
    main()
