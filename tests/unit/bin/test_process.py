"""Tests of a command's process: closed or full standard streams, Ctrl-C at any time, exit statuses."""

import os
import pathlib
import subprocess
import sys

import pytest

from t2t_ext.bin._flags import run_main


def _in_a_process(code, redirect=""):
    """Runs code in its own process, after importing run_main, and returns its status and standard error."""
    code = f"from t2t_ext.bin._flags import run_main\nimport os, signal, sys\n{code}"
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_standard_output_that_takes_nothing(redirect):
    status, said = _in_a_process("sys.exit(run_main(lambda: print('x'), is_process=True))", redirect)
    assert (status, said.count("\n")) == (2, 1), said
    assert said.startswith("error: Standard output")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
@pytest.mark.parametrize(
    "main",
    [
        "def main(): raise UserError('x')",
        "def main(): open('/no/such/file')",
        "def main(): print('said', file=sys.stderr, flush=True)",
    ],
)
def test_standard_error_that_takes_nothing(main):
    code = f"from t2t_ext.errors import UserError\n{main}\nsys.exit(run_main(main, is_process=True))"
    assert _in_a_process(code, "2>/dev/full") == (2, "")


def test_a_closed_standard_input_is_empty():
    code = "from t2t_ext.data.corpora import text_lines; sys.exit(len(text_lines.read('-').lines))"
    assert _in_a_process(code, "<&-") == (0, "")


def test_a_closed_standard_error_is_no_file(tmp_path):
    """Output to a closed standard error does not go to the next opened file, which gets its descriptor."""
    code = f"file = open({str(tmp_path / 'file')!r}, 'w'); print('said', file=sys.stderr); os.write(2, b'said')"
    assert _in_a_process(code, "2>&-") == (0, "")
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize(
    "code",
    [
        "signal.raise_signal(signal.SIGINT)",  # during the imports
        "def main():\n signal.raise_signal(signal.SIGINT)\nsys.exit(run_main(main, is_process=True))",
        # A second interrupt while the process waits for a thread that the command has started.
        "import threading, time\n"
        "def main():\n"
        " threading.Thread(target=time.sleep, args=[60]).start()\n"
        " threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
        " signal.raise_signal(signal.SIGINT)\n"
        "sys.exit(run_main(main, is_process=True))",
        # In a destructor, where Python cannot raise an exception.
        "import time\n"
        "class Held:\n"
        " def __del__(self): signal.raise_signal(signal.SIGINT)\n"
        "def main():\n"
        " Held()\n"
        " time.sleep(60)\n"
        "sys.exit(run_main(main, is_process=True))",
    ],
)
def test_an_interrupt_at_any_time_is_130_without_a_traceback(code):
    assert _in_a_process(code) == (130, "interrupted\n")


def test_an_interrupt_while_tensorflow_is_imported(tmp_path):
    """An interrupt while TensorFlow is imported gives status 130, even if C modules turn it into other errors."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(
        "import signal\n"
        "try:\n signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n raise ImportError('of C')\n"
    )
    code = (
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from t2t_ext.bin._flags import start_tensorflow\n"
        "sys.exit(run_main(start_tensorflow, is_process=True))"
    )
    assert _in_a_process(code) == (130, "interrupted\n")
    # Standard output is flushed, and no private copy of piped input remains.
    kept = "from t2t_ext.io import inputs\nprint(inputs._private_folder())\nsys.exit"
    status, _ = _in_a_process(code.replace("sys.exit", kept), f"> {tmp_path / 'out'}")
    assert status == 130
    assert not pathlib.Path((tmp_path / "out").read_text().strip()).exists()
    # In a notebook the exception stays as it is.
    status, said = _in_a_process(code.replace("is_process=True", "is_process=False"))
    assert (status, "ImportError: of C" in said) == (1, True)


@pytest.mark.parametrize(("is_process", "said"), [(True, "done"), (False, "done collected")])
def test_a_process_ends_without_collecting_what_the_command_left(is_process, said):
    code = (
        "class Left:\n def __init__(self): self.itself = self\n def __del__(self): os.write(2, b' collected')\n"
        "def main():\n Left()\n os.write(2, b'done')\n"
        f"sys.exit(run_main(main, is_process={is_process}))"
    )
    assert _in_a_process(code) == (0, said)


def test_what_the_system_refuses_is_said_in_one_line(tmp_path, capsys):
    assert run_main(lambda: open(tmp_path / "missing").close()) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'missing'}: No such file or directory.\n"
    assert run_main(lambda: open(tmp_path / ("x" * 5000)).close()) == 2
    said = capsys.readouterr().err
    assert said.endswith(": File name too long.\n")
    assert len(said) < 1000

    def no_memory():
        raise MemoryError("Unable to allocate 1 PiB")

    assert run_main(no_memory) == 2
    assert "Unable to allocate 1 PiB" in capsys.readouterr().err
