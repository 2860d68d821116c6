"""Tests of the WMT problems through the real tensorflow-datasets, which downloads from a local server."""

import functools
import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading

import pytest
import wmt_files
from wmt_files import PAIRS

from t2t_ext import registry
from t2t_ext.bin import datagen
from t2t_ext.errors import UserError
from t2t_ext.problems._tfds_pairs import TfdsDataset

ARCHIVES = {  # subset of tensorflow-datasets -> name of its archive in these tests
    "europarl_v7": "europarl",
    "commoncrawl": "commoncrawl",
    "newscommentary_v9": "news-commentary",
    "newscommentary_v13": "news-commentary",
    "paracrawl_v1_ru": "paracrawl",
    "newstest2012": "dev",
    "newstest2013": "dev",
    "newstest2014": "dev",
    "newstest2017": "dev",
    "newstest2018": "dev",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Yields the URL of a server of archives, `PROBLEM/NAME.tgz`, in the format of statmt.org's archives."""
    root = tmp_path_factory.mktemp("served")
    for problem in ("ende_wmt14", "ruen_wmt18"):
        (root / problem).mkdir()
        training = wmt_files.training_files(problem)
        for archive in sorted(set(ARCHIVES.values()) - {"dev"}):
            chosen = {name: content for name, content in training.items() if archive in name}
            wmt_files.write_tar(root / problem / f"{archive}.tgz", chosen)
        # tensorflow-datasets reads all sets from the folder dev of one archive, and needs quoted ids.
        sets = {f"dev/{pathlib.Path(name).name}": text for name, text in wmt_files.evaluation_sets(problem).items()}
        for language in ("de", "en"):
            for kind, part in (("srcset", "src"), ("refset", "ref")):
                rows = wmt_files.lines(language, "2014", 6, " A & B")
                sets[f"dev/newstest2014-deen-{part}.{language}.sgm"] = wmt_files.sgml(kind, rows, language)
        quoted = {name: re.sub(r"<seg id=(\d+)>", r'<seg id="\1">', text) for name, text in sets.items()}
        wmt_files.write_tar(root / problem / "dev.tgz", quoted)
    handler = functools.partial(Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


@pytest.fixture
def serve(server, monkeypatch):
    """Returns a function (problem) that makes tensorflow-datasets download from the server."""
    from tensorflow_datasets.translate import wmt

    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def choose(problem):
        for subset, archive in ARCHIVES.items():
            monkeypatch.setattr(wmt.DATASET_MAP[subset], "_urls", (f"{server}{problem}/{archive}.tgz",))

    return choose


@pytest.fixture
def run(tmp_path, capsys):
    """Returns t2t_ext-datagen as a function (problem, flags...) -> (exit status, standard output, standard error)."""

    def call(problem, *flags, options=""):
        chosen = [f"--problem_options={options}"] if options else []
        places = [f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path / 'raw'}"]
        status = datagen.main(
            [f"--problem=translate_{problem}", *places, "--num_merges=60", "--num_processes=1", *chosen, *flags]
        )
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


def splits(tmp_path, problem):
    return json.loads((tmp_path / "data" / f"translate_{problem}.manifest.json").read_text())["splits"]


def lines(tmp_path, problem, split, side="inputs"):
    return (tmp_path / "data" / f"translate_{problem}-{split}.{side}.txt").read_text().splitlines()


def test_a_data_set_of_tensorflow_datasets(run, serve, tmp_path):
    serve("ende_wmt14")
    status, _, error = run("ende_wmt14")
    assert status == 0, error
    train = splits(tmp_path, "ende_wmt14")["train"]
    assert train["samples"] == 3 * PAIRS
    assert list(train["corpora"]) == ["wmt14_translate"]
    # Entities are decoded; the order differs from the original set.
    assert set(lines(tmp_path, "ende_wmt14", "test")) == set(wmt_files.lines("en", "2014", 6, " A & B"))
    assert set(lines(tmp_path, "ende_wmt14", "dev", "targets")) == set(wmt_files.lines("de", "2013", 6, " A & B"))
    serve("nowhere")  # the set is prepared, so nothing is downloaded
    status, _, error = run("ende_wmt14_rev", "--overwrite", "--num_processes=2")
    assert status == 0, error
    # Sets that exist as files in tmp_dir keep their order.
    wmt_files.write(tmp_path / "raw", wmt_files.evaluation_sets("ende_wmt14"))
    assert run("ende_wmt14", "--overwrite")[0] == 0
    assert lines(tmp_path, "ende_wmt14", "test") == wmt_files.lines("en", "2014", 6, " A & B")
    # Errors name the damaged file.
    (records,) = (tmp_path / "raw").rglob("wmt14_translate-train.tfrecord*")
    whole = records.read_bytes()
    for damaged in (whole[:-3], whole[:5], whole[:12] + b"\xff" * 40 + whole[52:], b"\xff" * len(whole)):
        records.write_bytes(damaged)
        status, _, error = run("ende_wmt14", "--overwrite")
        assert (status, f"{records} is damaged or incomplete" in error) == (2, True)
    records.write_bytes(whole)
    (info,) = (tmp_path / "raw").rglob("wmt14_translate/*/*/dataset_info.json")
    info.write_text("{")
    status, _, error = run("ende_wmt14", "--overwrite")
    assert (status, "is damaged" in error, str(info.parent) in error) == (2, True, True)


def test_corpora_apart_by_subsets(run, serve, tmp_path):
    serve("ruen_wmt18")
    status, _, error = run("ruen_wmt18")
    assert (status, "1mcorpus.zip" in error, "corpus.en_ru.1m.ru" in error) == (2, True, True)
    training = wmt_files.training_files("ruen_wmt18")
    (tmp_path / "raw").mkdir()
    wmt_files.write_zip(tmp_path / "raw" / "1mcorpus.zip", {n: text for n, text in training.items() if "1m" in n})
    status, output, error = run("ruen_wmt18_rev", options="tags=yandex:<ya>,weights=paracrawl_v1:2")
    assert status == 0, error
    train = splits(tmp_path, "ruen_wmt18_rev")["train"]
    assert list(train["corpora"]) == ["paracrawl_v1", "commoncrawl", "newscommentary_v13", "yandex"]
    assert train["samples"] == 5 * PAIRS
    assert "yandex: 30 pairs, tag <ya>" in output
    assert set(lines(tmp_path, "ruen_wmt18_rev", "dev")) == set(wmt_files.lines("en", "2017", 6, " A & B"))


def test_weights_take_the_whole_data_set_apart(serve, tmp_path):
    serve("ende_wmt14")
    problem = registry.problem("translate_ende_wmt14_he2018", layout="tfds", weights="commoncrawl:0")
    problem.prepare(tmp_path)
    samples = list(problem.samples("train", tmp_path))
    assert len(samples) == 2 * PAIRS == problem.count("train", tmp_path)
    assert sorted(problem.reading.corpora) == ["europarl_v7", "newscommentary_v9"]
    assert problem.count("dev", tmp_path) == 12  # newstest2012 is in no data set; one is built from subsets
    assert all(path.is_file() for path in problem.source_files("dev", tmp_path))


def test_prepared_data_are_read_without_tensorflow(serve, tmp_path):
    serve("ende_wmt14")
    problem = registry.problem("translate_ende_wmt14", layout="tfds")
    problem.prepare(tmp_path)
    code = (
        "import sys; from t2t_ext import registry\n"
        "problem = registry.problem('translate_ende_wmt14_rev', layout='tfds')\n"
        f"print(len(list(problem.samples('train', {str(tmp_path)!r}))), 'tensorflow' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.split() == [str(3 * PAIRS), "False"]


def test_what_fails_is_explained(run, serve, tmp_path):
    serve("nowhere")
    status, _, error = run("ende_wmt14")
    assert status == 2
    assert (
        error.strip().splitlines()[-1].startswith("error: tensorflow-datasets could not prepare wmt14_translate/de-en")
    )
    assert "training-parallel-europarl-v7.tgz" in error
    assert not list((tmp_path / "raw").rglob("dataset_info.json"))
    pairs = registry.problem("translate_ende_wmt14", layout="tfds").pair_files("train", tmp_path)[0]
    assert pairs.paths == ()
    with pytest.raises(UserError, match="wmt14_translate/de-en has not been prepared in"):
        pairs.count()


def test_the_newest_version_is_read(tmp_path):
    for version in ("1.9.0", "1.10.0", "incomplete.AB12CD_1.0.0"):
        directory = tmp_path / "wmt14_translate" / "de-en" / version
        directory.mkdir(parents=True)
        (directory / "dataset_info.json").write_text("{}")
    dataset = TfdsDataset(languages=("de", "en"), name="wmt14_translate")
    assert dataset.directory(tmp_path).name == "1.10.0"
