"""Tests of the command t2t_ext-datagen as a user calls it, including a kill while it works."""

import gzip
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from t2t_ext.bin import datagen

USER_MODULE = """
from t2t_ext import registry
from t2t_ext.problem import TranslationProblem

@registry.register_problem
class TranslateMine(TranslationProblem):
    approx_vocab_size = 330
    splits = ("train", "dev")

    def samples(self, split, tmp_dir):
        for i in range(50):
            yield {"inputs": f"{split} word {i}", "targets": f"Wort {i} {split}"}
"""


@pytest.fixture
def run(tmp_path, capsys):
    """Returns t2t_ext-datagen as a function (flags...) -> (exit status, standard output, standard error)."""

    def call(*flags):
        status = datagen.main([f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path}", *flags])
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


@pytest.fixture
def corpus_flags(toy_corpus):
    sides = ("train_source", "train_target", "dev_source", "dev_target")
    return ["--problem=translate_parallel_text", *(f"--{side}={getattr(toy_corpus, side)}" for side in sides)]


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_own_text(run, corpus_flags, tmp_path):
    status, output, _ = run(*corpus_flags, "--vocab_size=340", "--num_shards=2", "--num_processes=1")
    assert status == 0
    assert "train: 600 samples in 2 shards" in output
    assert names(tmp_path / "data") == [
        "translate_parallel_text-dev-00000-of-00001.npz",
        "translate_parallel_text-dev.inputs.txt",
        "translate_parallel_text-dev.targets.txt",
        "translate_parallel_text-train-00000-of-00002.npz",
        "translate_parallel_text-train-00001-of-00002.npz",
        "translate_parallel_text.manifest.json",
        "vocab.translate_parallel_text.340.model",
    ]
    status, output, _ = run("--problem=translate_parallel_text_rev")
    assert (status, "nothing to do" in output) == (0, True)
    status, _, error = run(*corpus_flags, f"--train_target={tmp_path / 'typo.en'}")
    assert (status, f"there is no {tmp_path / 'typo.en'}" in error) == (2, True)
    status, _, error = run(*corpus_flags, "--vocab_size=350")
    assert status == 2
    assert error.startswith("error: The data of translate_parallel_text")
    assert "vocab_size was 340, now 350" in error
    assert run(*corpus_flags, "--vocab_size=350", "--overwrite", "--num_processes=1")[0] == 0
    assert "vocab.translate_parallel_text.340.model" not in names(tmp_path / "data")


def test_raw_files_that_are_gone_are_not_compared(run, toy_corpus, tmp_path):
    """Also if their names ended in .gz, which only the files themselves can say."""
    for split, count in (("train", 200), ("valid", 5), ("test", 5)):
        for number, language in enumerate(("de", "en")):
            lines = "".join(f"{pair[number]}\n" for pair in toy_corpus.train[:count])
            (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(lines.encode()))
    flags = ["--problem=translate_deen_iwslt14", "--problem_options=layout=plain", "--vocab_size=340"]
    assert run(*flags, f"--tmp_dir={tmp_path}", "--num_processes=1")[0] == 0
    status, output, error = run(*flags, f"--tmp_dir={tmp_path / 'elsewhere'}")
    assert (status, "nothing to do" in output) == (0, True), error


def test_a_users_own_problem(run, corpus_flags, tmp_path):
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "datagen_test_problem.py").write_text(USER_MODULE)
    usr_dir = f"--t2t_usr_dir={tmp_path / 'usr'}"
    status, _, error = run(usr_dir, "--problem=translate_mine", *corpus_flags[1:])
    assert (status, "does not take" in error) == (2, True)  # options of another problem are not ignored
    status, output, _ = run("--problem=translate_mine", "--separate_vocab", "--num_processes=1", usr_dir)
    assert status == 0
    assert "50 samples in 1 shard" in output
    assert re.search(r"\d+ source and \d+ target subwords", output)
    status, output, _ = run("--problem=translate_mine, translate_mine_rev")
    assert (status, output.count("nothing to do")) == (0, 2)
    assert "vocab.translate_mine." in " ".join(names(tmp_path / "data"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--registry_help lists all names"),
        (["--problem=translate_deen_multi3k"], "Did you mean 'translate_deen_multi30k'"),
        (["--problem=translate_parallel_text"], "--train_source=FILE"),
        (["--problem=translate_parallel_text", "--train_source=/no/where.tsv"], "No such file: /no/where.tsv"),
        (["--problem=translate_parallel_text", "--only_list"], "--registry_help"),
    ],
)
def test_mistakes_are_explained_on_one_line(run, tmp_path, flags, message):
    status, _, error = run(*flags)
    assert status == 2
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "data").exists() or not names(tmp_path / "data")


def test_help_is_quick_and_free_of_tensorflow():
    code = (
        "import sys; from t2t_ext.bin import datagen; import t2t_ext.bin._generation, t2t_ext.problem\n"
        "import t2t_ext.problems.parallel_text, t2t_ext.problems.multi30k\n"
        "sys.exit(any(name.split('.')[0] in ('tensorflow', 'keras') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_killed_at_any_moment(corpus_flags, tmp_path):
    """After a SIGKILL a manifest exists only together with all its files, and the next call makes the same bytes.

    This test starts the command as users do. test_kills.py kills it at every step of its work, and at more moments.
    """
    flags = [*corpus_flags, "--vocab_size=340", "--num_shards=3", f"--data_dir={tmp_path / 'data'}"]
    command = [sys.executable, "-m", "t2t_ext.bin.datagen", *flags, "--overwrite", "--num_processes=2"]
    started = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - started
    expected = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.7 * seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    found = set(names(tmp_path / "data"))
    if "translate_parallel_text.manifest.json" in found:
        assert found >= set(expected)
    subprocess.run(command, check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()} == expected


def test_two_at_once_make_one_set(corpus_flags, tmp_path):
    command = [sys.executable, "-m", "t2t_ext.bin.datagen", *corpus_flags, "--vocab_size=340", "--num_processes=1"]
    command.append(f"--data_dir={tmp_path / 'data'}")
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum("nothing to do" in output for output in outputs) == 1
    assert not [name for name in names(tmp_path / "data") if name.startswith(".")]
