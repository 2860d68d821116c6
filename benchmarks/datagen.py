"""How fast ``t2t_ext-datagen`` turns text into shards: pairs/s, tokens/s, peak memory, on a generated corpus.

    python benchmarks/datagen.py                               # 300,000 pairs, about half a minute
    python benchmarks/datagen.py --pairs=5000000 --out=datagen.json

The corpus is a function of the seed: sentences of invented words with the frequencies of a natural language (Zipf's
law), about 15 subwords a side. The command that users run is measured twice, in processes of its own: as it is
(reading, training the subword model on at most 500,000 pairs, encoding, shuffling, compressing, writing), and with a
ready subword model. Tokens are those that are stored, both sides, EOS included.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import _report
import numpy as np

_BLOCK = 50_000
_PROBLEM = "translate_parallel_text"


def write_corpus(directory: pathlib.Path, pairs: int, seed: int, words: int = 6_000) -> dict[str, pathlib.Path]:
    """Writes a parallel text and returns its files by flag name.

    Args:
      directory: Where to.
      pairs: Lines of the training text; the development text has 1,000.
      seed: The text is a function of it.
      words: Different words of each language.
    """
    paths = {
        f"{split}_{side}": directory / f"{split}.{side}" for split in ("train", "dev") for side in ("source", "target")
    }
    for number, side in enumerate(("source", "target")):
        rng = np.random.default_rng([seed, number])
        lexicon = _lexicon(rng, words)
        for split, count in (("train", pairs), ("dev", 1000)):
            with open(paths[f"{split}_{side}"], "w", encoding="utf-8") as file:
                for start in range(0, count, _BLOCK):
                    # Both sides of a pair have the same number of words: drawn from one generator a block.
                    lengths = np.random.default_rng([seed, 7, start]).integers(5, 15, min(_BLOCK, count - start))
                    file.write(_sentences(rng, lexicon, lengths))
    return paths


def _lexicon(rng: np.random.Generator, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns words (str [words], frequent ones shorter) and their cumulated probabilities."""
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
    """Runs the command once; returns seconds, rates and memory."""
    flags = [f"--problem={_PROBLEM}", *(f"--{name}={path}" for name, path in paths.items()), f"--data_dir={data_dir}"]
    command = [sys.executable, "-m", "t2t_ext.bin.datagen", *flags, *more]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    with _report.peak_memory(process.pid) as memory:
        status = process.wait()
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    manifest = json.loads((data_dir / f"{_PROBLEM}.manifest.json").read_text(encoding="utf-8"))
    train = manifest["splits"]["train"]
    tokens = sum(train["tokens"].values())
    return {
        "seconds": seconds,
        "pairs_per_second": train["samples"] / seconds,
        "tokens_per_second": tokens / seconds,
        "tokens_a_side": tokens / 2 / train["samples"],
        "peak_memory_mb": memory.megabytes,
        "shard_megabytes": sum(manifest["files"][name]["bytes"] for name in train["shards"]) / 1e6,
        "subword_model": str(data_dir / manifest["vocab"]["source"]["file"]),
    }


def main() -> None:
    """Makes the corpus, measures, prints and stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300_000, help="lines of the training text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num_processes", type=int, default=0, help="as the command's flag; 0: one per core")
    parser.add_argument("--tmp_dir", type=pathlib.Path, help="where the corpus and the data go for a while")
    parser.add_argument("--only", choices=("all", "ready_model"), default="", help="one of the two measurements")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("datagen.json"), help="the report")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=args.tmp_dir) as name:
        directory = pathlib.Path(name)
        paths = write_corpus(directory, args.pairs, args.seed)
        processes = f"--num_processes={args.num_processes}"
        runs = {}
        if args.only != "ready_model":
            runs["all"] = measure(directory / "data", paths, processes)
            model = runs["all"]["subword_model"]
        else:
            sample = {**paths, **write_corpus(_made(directory / "sample"), 50_000, args.seed)}
            model = measure(directory / "sample_data", sample, processes)["subword_model"]
        if args.only != "all":
            runs["ready_model"] = measure(directory / "ready", paths, processes, f"--subword_model={model}")
    for run in runs.values():
        del run["subword_model"]  # gone by now
    _report.print_table(
        [
            ("command", "seconds", "pairs/s", "tokens/s", "tokens a side", "peak MB"),
            *(
                (title, *(run[k] for k in ("seconds", "pairs_per_second", "tokens_per_second", "tokens_a_side",
                                           "peak_memory_mb")))
                for title, run in runs.items()
            ),
        ]
    )  # fmt: skip
    _report.write_report(args.out, _report.report({"pairs": args.pairs, "runs": runs}))
    print(f"written to {args.out}")


def _made(directory: pathlib.Path) -> pathlib.Path:
    directory.mkdir()
    return directory


if __name__ == "__main__":
    main()
