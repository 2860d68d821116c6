"""Runs commands on a folder of stored files, in this process, and checks what must hold after every case."""

import contextlib
import dataclasses
import importlib
import io
import pathlib
import re
import shutil
import tarfile
import tempfile
import traceback

STORED = pathlib.Path(__file__).parents[1] / "compatibility" / "data" / "stored.tar.xz"
RUN, DATA = "runs/transformer", "data"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a command.

    Attributes:
      status: The exit status.
      out: The standard output.
      err: The standard error.
      defect: The traceback of an unhandled exception, or the temporary files left behind; empty if there is none.
    """

    status: int
    out: str
    err: str
    defect: str = ""

    def fault(self) -> str:
        """Returns what is wrong with the result; "" if the command did its work or named the obstacle in one line."""
        if self.defect:
            return f"traceback: {self.defect}"
        if "Traceback" in self.err + self.out:
            return f"traceback: {self.err[-1500:]}"
        errors = re.findall(r"(?m)^error: .*", self.err)
        if self.status == 0 or (self.status == 2 and len(errors) == 1 and len(errors[0]) < 3000):
            return ""
        return f"status {self.status}, {len(errors)} errors: {self.err[-1500:]}"


class World:
    """A folder with a run, its data, an export and all other files that commands read; no case may change it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        with tarfile.open(STORED) as packed:
            wanted = (f"{RUN}/", f"{DATA}/", "exports/transformer/", "train.", "dev.")
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
            packed.extractall(folder, [m for m in packed if m.name.startswith(wanted)])
        for name, content in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        config = folder / RUN / "config.json"
        text = config.read_text("utf-8")
        text = re.sub(r'"data_dir": "[^"]*"', f'"data_dir": "{folder / DATA}"', text)
        for name in ("train.source", "train.target", "dev.source", "dev.target"):
            text = text.replace(f'": "{name}"', f'": "{folder / name}"')
        config.write_text(text, "utf-8")
        self._before = self.files()

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Returns {name: (size, modification time in ns, inode)}; directories have (0, 0, 0)."""
        found = {}
        for path in self.folder.rglob("*"):
            status = path.lstat()
            found[str(path.relative_to(self.folder))] = (0, 0, 0) if path.is_dir() else (
                status.st_size, status.st_mtime_ns, status.st_ino,
            )  # fmt: skip
        return found

    @contextlib.contextmanager
    def damaged(self, name: str, content: bytes | None):
        """Replaces the content of a file, or removes it if ``content`` is None, and restores it afterwards."""
        path = self.folder / name
        saved = path.with_name(f"{path.name}.saved")
        path.rename(saved)
        try:
            if content is not None:
                path.write_bytes(content)
            yield
        finally:
            path.unlink(missing_ok=True)
            saved.rename(path)

    def run(self, command: str, *flags: str) -> Outcome:
        """Runs a command; in its flags WORLD means the folder and OUT a new folder, which is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="hostile-") as out:
            words = [flag.replace("WORLD", str(self.folder)).replace("OUT", out) for flag in flags]
            outcome = run(command, words)
            left = [path.name for path in pathlib.Path(out).rglob("*") if ".tmp" in path.name]
        return dataclasses.replace(outcome, defect=f"left behind: {left}") if left else outcome

    def fault(self, outcome: Outcome, but: tuple[str, ...] = ()) -> str:
        """Returns what is wrong with an outcome or with the folder after it, or "".

        The command may write files whose names start with one of ``but``; new ones among them are removed.
        """
        after = self.files()
        changed = [name for name in {**self._before, **after} if self._before.get(name) != after.get(name)]
        for name in [name for name in changed if name.startswith(but)] if but else []:
            changed.remove(name)
            path = self.folder / name
            if name not in self._before and path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return outcome.fault() or (f"changed: {changed[:5]}" if changed else "")


def run(command: str, words: list[str]) -> Outcome:
    """Runs a command in this process and returns its outcome."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    module = importlib.import_module(f"t2t_ext.bin.{command.replace('-', '_')}")
    status, defect = 1, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = module.main(words)
        except SystemExit as exit:
            status = exit.code or 0
        except BaseException:
            defect = traceback.format_exc()[-1500:]
    said, told = (stream.buffer.getvalue().decode(errors="replace") for stream in (out, err))
    return Outcome(status, said, told, defect)


FILES = {
    "text.txt": "ein Satz .\nnoch ein Satz .\n",
    "long.txt": "Wort " * 20_000 + "\n",
    "empty.txt": "",
    "not_utf8.txt": b"\xff\xfe\n\x80\n",
    "nul.txt": b"a\0b\nc\n",
    "list.jsonl": '{"line": 1, "source": "a", "hypotheses": [{"text": "b", "length": 1, "score": -0.5}]}\n'
    '{"line": 2, "source": "c", "hypotheses": [{"text": "d", "length": 1, "score": -0.5}]}\n',
    "translations/scores.jsonl": '{"step": 10, "checkpoint": "model.ckpt-10", "weights": "a", "search": "b", '
    '"scoring": "c", "translations": "model.ckpt-10.txt", "lines": 2, "seconds": 1.5, "scores": {"BLEU": 20.0}, '
    '"signatures": {"BLEU": "x"}, "confidence": {}, "directions": {"l2r": {"share": 1.0}}}\n',
    "translations/model.ckpt-10.txt": "b\nd\n",
    "recipes/own.toml": """\
[papers.own]
citation = "A. Author. 2020. A paper."
short = "Author 2020"

[own]
paper = "own"
table = "Table 1"
row = "ours"
problem = "translate_ende_cldr"
model = "transformer"
hparams_set = "transformer_test"
hparams = { hidden_size = 32, label_smoothing = 0.1 }
train = { train_steps = 10, keep_checkpoint_max = 4 }
decode = { beam_size = 4 }
scoring = "sacrebleu"
published = { test = 20.5 }
checkpoint = "averaged"
average = 2
seeds = 1
splits = ["test"]
notes = ["a note"]
""",
    "twice.sgm": '<tstset setid="x" srclang="any" trglang="de"><doc docid="d" sysid="r"><seg id="1">a</seg>'
    '<seg id="1">b</seg></doc></tstset>',
}
