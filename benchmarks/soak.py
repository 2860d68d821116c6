"""Translates many hostile lines with a run, in a process of its own, and reports seconds and peak memory.

    python benchmarks/soak.py --output_dir=RUN --lines=10000000 --out=soak.json
    python benchmarks/soak.py --output_dir=RUN --lines=20000 --compare_lines=5000     # how memory grows with the lines

The lines are a function of the seed: bytes that are no UTF-8, emoji, control characters, the model's own control
symbols, one word repeated, empty ones, and a line of 100,000 characters in every thousand. Every line must have its
translation. Linux only.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import Any

import _report

_CONTROLS = ("<pad>", "</s>", "<unk>", "<l2r>", "<r2l>", "\x00", "\x1b[2J", "\u202e", "\ufeff", "\u2028", "\ud7ff")
_LONG = 100_000


def write_lines(path: pathlib.Path, count: int, seed: int) -> None:
    """Writes the lines."""
    rng = random.Random(seed)

    def line(number: int) -> bytes:
        kind = rng.randrange(6)
        if number % 1000 == 999:
            return (rng.choice(("a", "word ", "\U0001f600")) * _LONG)[:_LONG].encode()
        if kind == 0:
            return rng.randbytes(rng.randrange(60)).replace(b"\n", b" ")
        if kind == 1:
            return "".join(chr(rng.randrange(0x1F300, 0x1FAFF)) for _ in range(rng.randrange(30))).encode()
        if kind == 2:
            return " ".join(rng.choice(_CONTROLS) for _ in range(rng.randrange(10))).encode()
        if kind == 3:
            return ("word " * rng.randrange(50)).encode()
        return "".join(chr(rng.randrange(32, 0x3000)) for _ in range(rng.randrange(60))).encode()

    with open(path, "wb") as file:
        file.writelines(line(number) + b"\n" for number in range(count))


def translate(run: str, lines: int, seed: int, decode_hparams: str) -> dict[str, Any]:
    """Translates so many lines and returns the figures."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "in.txt"), pathlib.Path(folder, "out.txt")
        write_lines(source, lines, seed)
        command = [sys.executable, "-m", "t2t_ext.bin.decoder", f"--output_dir={run}", f"--decode_from_file={source}",
                   f"--decode_to_file={target}", f"--decode_hparams={decode_hparams}"]  # fmt: skip
        began = time.monotonic()
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process, _report.peak_memory(process.pid) as memory:
            _, said = process.communicate()
        if process.returncode:
            raise SystemExit(f"status {process.returncode}: {said.decode(errors='replace')[-2000:]}")
        translated = target.read_bytes().count(b"\n")
        if translated != lines:
            raise SystemExit(f"{translated} translations of {lines} lines")
        megabytes = source.stat().st_size / 1e6
    seconds = round(time.monotonic() - began, 1)
    return {"lines": lines, "input_mb": megabytes, "seconds": seconds, "peak_memory_mb": memory.megabytes}


def main() -> None:
    """Translates and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", required=True, help="The run.")
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--compare_lines", type=int, default=0, help="Also translate so many, to compare the memory.")
    parser.add_argument("--decode_hparams", default="beam_size=1,batch_size=64,max_input_length=128")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="soak.json")
    args = parser.parse_args()
    rows = []
    for count in filter(None, (args.compare_lines, args.lines)):
        rows.append(translate(args.output_dir, count, args.seed, args.decode_hparams))
        print(json.dumps(rows[-1]), flush=True)
    _report.write_report(args.out, _report.report({"translations": rows}))


if __name__ == "__main__":
    main()
