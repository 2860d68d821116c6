"""Translates millions of hostile lines in one process, and meanwhile reports lines/s, CPU time and memory.

    python benchmarks/soak.py --lines=10000000 --out=soak.json               # the decoder command, then a served model
    python benchmarks/soak.py --ways=decoder --lines=100000 --output_dir=RUN

The seed determines the lines: bytes that are not UTF-8, emoji, control characters, the model's own control symbols, one
word repeated, empty lines, and in every thousand a line of 100,000 characters. They go through a pipe, and every line
must get a translation. Without ``--output_dir`` the model is as small as possible, so that most of the time is spent on
reading, tokenizing, batching and writing. The served model is an export behind a local server with TensorFlow Serving's
REST API (``_rest_server.py``), and ``t2t_ext-query-server`` sends the requests; the memory is that of both processes.
Progress goes to standard output, a line of JSON for every ``--every`` lines. Linux only.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import _report
import datagen

_CONTROLS = ("<pad>", "</s>", "<unk>", "<l2r>", "<r2l>", "\x00", "\x1b[2J", "\u202e", "\ufeff", "\u2028", "\ud7ff")
_EMOJI = [chr(code) for code in range(0x1F300, 0x1FAFF)]
_SYMBOLS = [chr(code) for code in range(32, 0x3000)]
_LONG = 100_000
_BLOCK = 1000  # lines written at once; one of them is long
_SEARCH = "beam_size=1,batch_size=2048,max_input_length=8,length_limit=extra,extra_length=0"
_HPARAMS = "num_hidden_layers=1,hidden_size=8,filter_size=8,num_heads=1,batch_size=400"
_WAYS = ("decoder", "served")


def blocks(count: int, seed: int) -> Iterator[bytes]:
    """Yields ``count`` lines in blocks of a thousand."""
    rng = random.Random(seed)

    def line(number: int) -> bytes:
        kind = rng.randrange(6)
        if number % _BLOCK == _BLOCK - 1:
            return (rng.choice(("a", "word ", "\U0001f600")) * _LONG)[:_LONG].encode()
        if kind == 0:
            return rng.randbytes(rng.randrange(60)).replace(b"\n", b" ")
        if kind == 1:
            return "".join(rng.choices(_EMOJI, k=rng.randrange(30))).encode()
        if kind == 2:
            return " ".join(rng.choices(_CONTROLS, k=rng.randrange(10))).encode()
        if kind == 3:
            return b"word " * rng.randrange(50)
        return "".join(rng.choices(_SYMBOLS, k=rng.randrange(60))).encode()

    for start in range(0, count, _BLOCK):
        yield b"".join(line(number) + b"\n" for number in range(start, min(start + _BLOCK, count)))


def make_run(folder: pathlib.Path) -> pathlib.Path:
    """Trains the smallest model for one step and returns the folder of its run."""
    corpus = datagen.write_corpus(folder, pairs=600, seed=1, words=60)
    own = ["--problem=translate_parallel_text", *(f"--{name}={path}" for name, path in corpus.items())]
    data = f"--data_dir={folder / 'data'}"
    _command("datagen", *own, data, "--vocab_size=340", "--num_processes=1")
    model = ["--model=transformer", "--hparams_set=transformer_test", f"--hparams={_HPARAMS}", "--train_steps=1"]
    _command("trainer", *own, *model, data, f"--output_dir={folder / 'run'}", "--eval_bleu_sentences=0")
    return folder / "run"


def _command(name: str, *flags: str) -> None:
    done = subprocess.run([sys.executable, "-m", f"t2t_ext.bin.{name}", *flags], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: status {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")


@contextlib.contextmanager
def served(run: str, folder: pathlib.Path, search: str) -> Iterator[tuple[list[str], int]]:
    """Yields the command that translates standard input through a served model, and the server's process id."""
    _command("exporter", f"--output_dir={run}", f"--export_dir={folder / 'export'}", f"--decode_hparams={search}")
    server = [sys.executable, str(pathlib.Path(__file__).with_name("_rest_server.py")), str(folder / "export")]
    with subprocess.Popen(server, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().decode().strip()
            client = [sys.executable, "-m", "t2t_ext.bin.query_server", f"--server={address}", "--rest"]
            yield [*client, "--batch_size=2000", "--timeout_secs=3600"], process.pid
        finally:
            process.kill()


def soak(way: str, command: Sequence[str], pids: Sequence[int], args: argparse.Namespace) -> dict[str, Any]:
    """Sends the lines through a command's pipes and returns the figures; ``pids`` are further processes to measure."""
    began, marks, done = time.monotonic(), [], 0
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        )
        peaks = [stack.enter_context(_report.peak_memory(pid, every=1.0)) for pid in (process.pid, *pids)]
        assert process.stdin
        assert process.stdout
        threading.Thread(target=_feed, args=[process.stdin, args.lines, args.seed], daemon=True).start()
        while block := process.stdout.read1(1 << 20):
            before, done = done, done + block.count(b"\n")
            if done // args.every > before // args.every:
                marks.append(
                    {
                        "way": way,
                        "lines": done,
                        "seconds": round(time.monotonic() - began, 1),
                        "cpu_seconds": round(sum(map(_cpu_seconds, (process.pid, *pids))), 1),
                        "memory_mb": round(sum(map(_report.tree_memory, (process.pid, *pids)))),
                    }
                )
                print(json.dumps(marks[-1]), flush=True)
        if process.wait() or done != args.lines:
            said.seek(0)
            words = said.read().decode(errors="replace")[-2000:]
            raise SystemExit(f"{way}: status {process.returncode}, {done} translations of {args.lines} lines: {words}")
    seconds = round(time.monotonic() - began, 1)
    peak = round(sum(each.megabytes for each in peaks))
    return {"way": way, "lines": done, "seconds": seconds, "peak_memory_mb": peak, "on_the_way": marks}


def _feed(pipe: Any, count: int, seed: int) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        for block in blocks(count, seed):
            pipe.write(block)


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def main() -> None:
    """Translates and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", default="", help="The run; by default the smallest one is made.")
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--every", type=int, default=250_000, help="So many lines come between two lines of progress.")
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=_WAYS)
    parser.add_argument("--decode_hparams", default=_SEARCH)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="soak.json")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = pathlib.Path(name)
        run = args.output_dir or str(make_run(folder))
        for way in args.ways:
            if way == "decoder":
                flags = [f"--output_dir={run}", "--decode_from_file=-", f"--decode_hparams={args.decode_hparams}"]
                rows.append(soak(way, [sys.executable, "-m", "t2t_ext.bin.decoder", *flags], [], args))
            else:
                with served(run, folder, args.decode_hparams) as (command, pid):
                    rows.append(soak(way, command, [pid], args))
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "on_the_way"}), flush=True)
            _report.write_report(args.out, _report.report({"translations": rows}))


if __name__ == "__main__":
    main()
