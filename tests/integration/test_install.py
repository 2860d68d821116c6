"""Tests of ``pip install .`` in a fresh environment: the base install runs the demo and names a missing extra."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOT_COPIED = (".git", ".venv", "build", "dist", "demo", "*.egg-info", "__pycache__", ".*_cache")

pytestmark = pytest.mark.slow  # downloads TensorFlow


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Returns the ``bin`` folder of an environment that has only the base install."""
    folder = tmp_path_factory.mktemp("install")
    source = shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    commands = folder / "venv" / "bin"
    subprocess.run([commands / "python", "-m", "pip", "install", "--quiet", source], check=True, timeout=1500)
    return commands


def run(commands, command, folder, **variables):
    """Runs a command outside the checkout, with only the installed packages, and returns the finished process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": f"{commands}:{environment['PATH']}", **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )


def test_the_demo_runs_on_the_base_install(installed, tmp_path):
    found = run(installed, ["python", "-c", "import t2t_ext.bin, t2t_ext; print(t2t_ext.__file__)"], tmp_path)
    assert str(installed.parent) in found.stdout
    found = run(installed, ["bash", ROOT / "examples" / "demo.sh"], tmp_path, DEMO_STEPS="6")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "BLEU" in found.stdout
    assert found.stdout.count("(score") == 3


def test_everything_registered_is_installed(installed, tmp_path):
    found = run(installed, ["t2t_ext-trainer", "--registry_help"], tmp_path)
    for name in ("translate_ende_wmt14", "composed_transformer", "transformer_big_zhou2019"):
        assert name in found.stdout
    found = run(installed, ["t2t_ext-experiment", "--list"], tmp_path)
    assert "he2018_table1_deen_baseline" in found.stdout


def test_a_missing_extra_is_named(installed, tmp_path):
    (tmp_path / "a").write_text("你好\n")
    files = [f"--{split}_{side}=a" for split in ("train", "dev") for side in ("source", "target")]
    languages = ["--source_language=zh", "--target_language=zh", "--text_steps=jieba"]
    command = ["t2t_ext-datagen", "--problem=translate_parallel_text", "--data_dir=D", *files, *languages]
    found = run(installed, command, tmp_path)
    assert found.returncode == 2
    assert "pip install 't2t_ext[zh]'" in found.stderr
