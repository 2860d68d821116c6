"""Tests that standard error shows the messages of the commands, but no log lines of the C++ libraries."""

import os
import re
import subprocess
import sys

import pytest

MODEL = """\
import tensorflow as tf
from t2t_ext import registry
from t2t_ext.config.hyperparameters import HParams

@registry.register_hparams
def set_of_a_module_with_tensorflow():
    return HParams()
"""


def run(*arguments, **environment):
    """Runs Python in its own process, which must succeed, and returns its standard error."""
    quiet = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, *arguments], env={**quiet, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_command(tiny_run, tmp_path):
    (tmp_path / "in.txt").write_text("ein Satz\nnoch einer\n")
    flags = [f"--output_dir={tiny_run.path}", f"--decode_from_file={tmp_path / 'in.txt'}"]
    told = run("-m", "t2t_ext.bin.decoder", *flags, f"--decode_to_file={tmp_path / 'out.txt'}")
    # On a slow machine the command also reports its progress.
    assert re.fullmatch(r"(Translating: .*\n)*Translated 2 lines in .* -> .*out\.txt\n", told)


PYTHON = """\
import sys
from t2t_ext import Translator

path, export_dir = sys.argv[1:]
print(Translator.load(path)(["ein Satz"]))
print("Now an export that is loaded again", file=sys.stderr)
Translator.can_constrain = Translator.can_force_prefix = False  # saves their graphs
from t2t_ext.bin import exporter
sys.exit(exporter.main([f"--output_dir={path}", f"--export_dir={export_dir}"]))
"""


@pytest.mark.slow
def test_python_and_an_export_that_is_loaded_again(tiny_run, tmp_path):
    first, *told = run("-c", PYTHON, str(tiny_run.path), str(tmp_path / "export")).splitlines()
    assert first == "Now an export that is loaded again"
    assert len(told) == 1, told
    assert told[0].startswith("Exporting step "), told  # it takes long enough to say so


@pytest.mark.slow
def test_a_users_module_that_imports_tensorflow(tmp_path):
    (tmp_path / "my_model_with_tensorflow.py").write_text(MODEL)
    flags = [f"--t2t_usr_dir={tmp_path}", "--hparams_set=set_of_a_module_with_tensorflow", "--explain"]
    assert run("-m", "t2t_ext.bin.trainer", *flags) == ""


def test_whatever_is_imported_first():
    """Modules of t2t_ext that import TensorFlow are quiet, and so is TensorFlow itself once t2t_ext is imported."""
    assert run("-c", "import t2t_ext.runs.averaging") == ""
    assert run("-c", "import t2t_ext, tensorflow as tf; print(tf.constant(1) + tf.constant(2, tf.int32))") == ""
