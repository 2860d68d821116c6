"""Tests of t2t_ext-datagen on the WMT problems, for every layout of their files, and of its messages."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import json
import subprocess
import sys
import threading

import pytest
import wmt_files
from subword_nmt import apply_bpe, learn_bpe
from wmt_files import PAIRS

from t2t_ext import registry
from t2t_ext.bin import datagen
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.errors import UserError
from t2t_ext.evaluation.protocols import PROTOCOLS
from t2t_ext.problems import _wmt_files

PROBLEMS = {
    "ende_wmt14": ("", "_ampomah2021", "_he2018", "_liu2020", "_zhou2019"),
    "enfr_wmt14": ("", "_liu2020"),
    "enro_wmt16": ("", "_he2018"),
    "ruen_wmt18": ("", "_zhou2019"),
}


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def run(tmp_path, capsys):
    """Returns t2t_ext-datagen as a function (problem, flags...) -> (exit status, standard output, standard error)."""

    def call(problem, *flags, options=""):
        chosen = [f"--problem_options={options}"] if options else []
        status = datagen.main(
            [
                f"--problem=translate_{problem}", f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path / 'raw'}",
                "--num_merges=60", "--num_processes=1", *chosen, *flags,
            ]
        )  # fmt: skip
        output = capsys.readouterr()
        return status, output.out, output.err

    return call


def manifest(tmp_path, problem):
    return json.loads((tmp_path / "data" / f"translate_{problem}.manifest.json").read_text())


def texts(tmp_path, problem, split):
    stem = tmp_path / "data" / f"translate_{problem}-{split}"
    return tuple(stem.with_name(f"{stem.name}.{side}.txt").read_text().splitlines() for side in ("inputs", "targets"))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("compress", [(), (".en", ".de", ".fr", ".ro", ".ru", ".sgm")])
def test_official_files(run, tmp_path, problem, compress):
    wmt_files.write(tmp_path / "raw", wmt_files.training_files(problem), compress=compress)
    wmt_files.write(tmp_path / "raw", wmt_files.evaluation_sets(problem), compress=compress)
    status, output, error = run(problem)
    assert (status, error.startswith("error")) == (0, False), error
    splits = manifest(tmp_path, problem)["splits"]
    assert splits["train"]["samples"] == PAIRS * len(wmt_files.TRAIN[problem])
    assert [counted["pairs"] for counted in splits["train"]["corpora"].values()] == [PAIRS] * len(
        wmt_files.TRAIN[problem]
    )
    dev_sets = registry.problem(f"translate_{problem}").test_sets["dev"]
    assert splits["dev"]["samples"] == 6 * len(dev_sets)
    sources, targets = texts(tmp_path, problem, "test")
    last = {"wmt14": "2014", "wmt16": "2016", "wmt18": "2018"}[problem[5:]]
    assert sources == wmt_files.lines(problem[:2], last, 6, " A & B")
    assert targets == wmt_files.lines(problem[2:4], last, 6, " A & B")
    assert "published: " in output


@pytest.mark.parametrize(
    "name", [f"{problem}{variant}" for problem, variants in PROBLEMS.items() for variant in variants if variant]
)
def test_official_files_for_every_variant(run, tmp_path, name):
    problem = name.rpartition("_")[0]
    wmt_files.write(tmp_path / "raw", wmt_files.training_files(problem))
    wmt_files.write(tmp_path / "raw", wmt_files.evaluation_sets(problem))
    status, _, error = run(name, options="layout=official")
    assert status == 0, error
    splits = manifest(tmp_path, name)["splits"]
    assert splits["train"]["samples"] == PAIRS * len(wmt_files.TRAIN[problem])
    assert splits["dev"]["samples"] == (12 if name in ("ende_wmt14_he2018", "enfr_wmt14_liu2020") else 6)


def test_archives_are_unpacked_beside_themselves(run, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    training = wmt_files.training_files("ruen_wmt18")
    for archive, beginning in (
        ("paracrawl-release1.en-ru.zipporah0-dedup-clean.tgz", "paracrawl"),
        ("training-parallel-commoncrawl.tgz", "commoncrawl"),
        ("training-parallel-nc-v13.tgz", "training-parallel-nc"),
    ):
        files = {name: content for name, content in training.items() if name.startswith(beginning)}
        wmt_files.write_tar(raw / archive, files | {f"{beginning}.cs-en.cs": "jiný pár\n"})
    wmt_files.write_zip(raw / "1mcorpus.zip", {name: training[name] for name in training if "en_ru.1m" in name})
    sets = wmt_files.evaluation_sets("ruen_wmt18")
    wmt_files.write_tar(raw / "dev.tgz", {name: content for name, content in sets.items() if name.startswith("dev")})
    wmt_files.write_tar(raw / "test.tgz", {name: content for name, content in sets.items() if name.startswith("test")})
    assert run("ruen_wmt18")[0] == 0
    assert manifest(tmp_path, "ruen_wmt18")["splits"]["train"]["samples"] == 4 * PAIRS
    assert not list(raw.rglob("*.cs-en.cs*"))  # other language pairs are left in the archive
    (raw / "training-parallel-nc-v13.tgz").write_bytes(b"\x1f\x8b damaged")
    for path in raw.glob("training-parallel-nc-v13.tgz.*"):
        path.rename(tmp_path / "moved")
    status, _, error = run("ruen_wmt18", "--overwrite")
    assert (status, "training-parallel-nc-v13.tgz" in error, "damaged" in error) == (2, True, True)
    assert manifest(tmp_path, "ruen_wmt18")["splits"]["train"]["samples"] == 4 * PAIRS


def test_a_changed_archive_is_unpacked_again(run, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    training = wmt_files.training_files("ende_wmt14")
    archive = raw / "training-parallel-nc-v9.tgz"
    packed = {name: content for name, content in training.items() if "news-commentary" in name}
    wmt_files.write(raw, wmt_files.evaluation_sets("ende_wmt14"))
    wmt_files.write(raw, {name: content for name, content in training.items() if name not in packed})
    wmt_files.write_tar(archive, packed)
    assert run("ende_wmt14")[0] == 0
    wmt_files.write_tar(archive, {name: content * 3 for name, content in packed.items()})
    status, _, error = run("ende_wmt14", "--overwrite")
    assert status == 0, error
    assert manifest(tmp_path, "ende_wmt14")["splits"]["train"]["corpora"]["newscommentary_v9"]["pairs"] == 3 * PAIRS
    archive.write_bytes(archive.read_bytes()[:-40])
    status, _, error = run("ende_wmt14", "--overwrite")
    assert (status, "training-parallel-nc-v9.tgz is a damaged or incomplete" in error) == (2, True)


def test_compressed_files_in_an_archive(run, tmp_path):
    raw = tmp_path / "raw"
    training = wmt_files.training_files("enfr_wmt14")
    giga = {name: training.pop(name) for name in list(training) if name.startswith("giga")}
    wmt_files.write(raw, training)
    wmt_files.write(raw, wmt_files.evaluation_sets("enfr_wmt14"))
    gzipped = {f"{name}.gz": gzip.compress(content.encode()) for name, content in giga.items()}
    wmt_files.write_tar(raw / "training-giga-fren.tar", gzipped)
    assert run("enfr_wmt14")[0] == 0
    assert manifest(tmp_path, "enfr_wmt14")["splits"]["train"]["corpora"]["gigafren"]["pairs"] == PAIRS


@pytest.mark.parametrize("problem", PROBLEMS)
def test_missing_files_are_listed_with_where_they_come_from(run, tmp_path, problem):
    training, sets = wmt_files.training_files(problem), wmt_files.evaluation_sets(problem)
    missing = f"{wmt_files.TRAIN[problem][1]}.{problem[2:4]}"
    del training[missing]
    test_set = registry.problem(f"translate_{problem}").test_sets["test"][0].name
    sets = {name: content for name, content in sets.items() if not (test_set in name and "-src" in name)}
    wmt_files.write(tmp_path / "raw", training)
    wmt_files.write(tmp_path / "raw", sets)
    status, _, error = run(problem)
    assert status == 2
    assert error.count("\n") == 1
    for expected in (missing, test_set, "http", str(tmp_path / "raw"), "download=true", "layout=tfds"):
        assert expected in error
    assert wmt_files.TRAIN[problem][0] not in error  # existing files are not listed
    assert not list((tmp_path / "data").glob("translate*"))


def test_nothing_there_and_no_tensorflow_datasets(run, tmp_path, without_package):
    without_package("tensorflow_datasets")
    status, _, error = run("ende_wmt14")
    assert status == 2
    for expected in (
        "pip install 't2t_ext[wmt]'",
        "training-parallel-europarl-v7.tgz",
        "newstest2014-deen",
        "layout=official",
    ):
        assert expected in error


def test_the_reverse_of_back_translated_data_has_its_own(run, tmp_path):
    raw = tmp_path / "raw"
    training = wmt_files.training_files("enro_wmt16")
    wmt_files.write(raw, training)
    wmt_files.write(raw, wmt_files.evaluation_sets("enro_wmt16"))
    status, _, error = run("enro_wmt16_rev")
    assert status == 2
    assert "corpus.bt.ro-en.ro" in error  # not en-ro, whose English side is machine-translated
    assert "back_translations:0" in error
    wmt_files.write(
        raw, {f"corpus.bt.ro-en.{each}": wmt_files.text(wmt_files.lines(each, "bt", 50)) for each in ("ro", "en")}
    )
    status, output, error = run("enro_wmt16_rev", options="tags=back_translations:<bt>,weights=europarl_v8:2")
    assert status == 0, error
    made = manifest(tmp_path, "enro_wmt16_rev")
    assert (made["source_language"], made["target_language"]) == ("ro", "en")
    assert made["splits"]["train"]["corpora"]["back_translations"] == {
        "weight": 1.0, "tag": "<bt>", "pairs": 50, "occurrences": 50,
    }  # fmt: skip
    assert made["splits"]["train"]["samples"] == 3 * PAIRS + 50
    assert "europarl_v8: 30 pairs, weight 2: 60" in output
    assert texts(tmp_path, "enro_wmt16_rev", "test")[0] == wmt_files.lines("ro", "2016", 6, " A & B")
    assert run("enro_wmt16")[0] == 0  # next to the data of the reverse problem
    assert run("enro_wmt16_rev", "--data_dir=" + str(tmp_path / "plain"), options="weights=back_translations:0")[0] == 0
    assert (tmp_path / "plain" / "translate_enro_wmt16.manifest.json").is_file()  # the direction does not matter


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Yields a folder that a local server serves, and a function (problem) that redirects its downloads there."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{running.server_port}/"

        def serve(name):
            problem_class = type(registry.problem(f"translate_{name}"))
            corpora = [
                dataclasses.replace(
                    corpus,
                    url=url if "{language}" in corpus.archives[0] else url + corpus.archives[0],
                    sha256=sha256(folder / corpus.archives[0].replace("{foreign}", "ro")),
                )
                for corpus in problem_class.training_corpora
            ]
            monkeypatch.setattr(problem_class, "training_corpora", corpora)
            monkeypatch.setattr(_wmt_files, "ALL_SETS", url + "dev.tgz")
            monkeypatch.setattr(_wmt_files, "_ALL_SETS_SHA256", sha256(folder / "dev.tgz"))
            packs = {each: dataclasses.replace(pack, url=url) for each, pack in problem_class.packs.items()}
            monkeypatch.setattr(problem_class, "packs", packs)

        yield folder, serve
        running.shutdown()
        thread.join()


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def test_public_files_are_downloaded_and_checked(run, served, tmp_path):
    folder, serve = served
    training = wmt_files.training_files("enro_wmt16")
    by_beginning = lambda words: {name: text for name, text in training.items() if name.startswith(words)}  # noqa: E731
    wmt_files.write_tar(folder / "training-parallel-ep-v8.tgz", by_beginning("training-parallel-ep-v8"))
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="ro"><seg>{ro}</seg></tuv></tu>'
        for en, ro in zip(wmt_files.lines("en", "tmx", 20), wmt_files.lines("ro", "tmx", 20), strict=True)
    )
    tmx = f'<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'
    wmt_files.write(folder, {"en-ro.tmx": tmx, **by_beginning("corpus.bt")}, compress=(".tmx", ".en", ".ro"))
    sets = {
        f"dev/{name}-roen-{part}.{language}.sgm": wmt_files.sgml(kind, wmt_files.lines(language, name, 6), language)
        for name in ("newsdev2016", "newstest2016")
        for kind, part, language in (("srcset", "src", "ro"), ("refset", "ref", "en"))
    }
    wmt_files.write_tar(folder / "dev.tgz", sets)
    serve("enro_wmt16")
    status, _, error = run("enro_wmt16", options="download=true")
    assert status == 0, error
    train = manifest(tmp_path, "enro_wmt16")["splits"]["train"]["corpora"]
    assert [train[name]["pairs"] for name in ("europarl_v8", "setimes_2", "back_translations")] == [30, 20, 30]
    assert texts(tmp_path, "enro_wmt16", "test") == tuple(
        wmt_files.lines(each, "newstest2016", 6) for each in ("en", "ro")
    )
    status, output, _ = run("enro_wmt16")
    assert (status, "nothing to do" in output) == (0, True)  # downloaded files make no difference
    (tmp_path / "raw" / "en-ro.tmx.gz").unlink()
    (folder / "en-ro.tmx.gz").write_bytes(b"something else")
    status, _, error = run("enro_wmt16", "--overwrite", options="download=true")
    assert (status, "is not the file that is expected" in error) == (2, True)


def test_stanfords_files_are_downloaded(run, served, tmp_path):
    folder, serve = served
    for stem in ("train", "newstest2012", "newstest2013", "newstest2014"):
        wmt_files.write(
            folder, {f"{stem}.{each}": wmt_files.text(wmt_files.lines(each, stem, 9)) for each in ("en", "de")}
        )
    serve("ende_wmt14_he2018")
    status, _, error = run("ende_wmt14_he2018", options="download=true")
    assert status == 0, error
    assert manifest(tmp_path, "ende_wmt14_he2018")["splits"]["dev"]["samples"] == 18


def test_stanfords_files(run, tmp_path):
    raw = tmp_path / "raw"
    for stem, count in (("train", 40), ("newstest2012", 4), ("newstest2013", 5), ("newstest2014", 6)):
        for language in ("en", "de"):
            rows = [row.replace(",", " ##AT##-##AT## x ,") for row in wmt_files.lines(language, stem, count)]
            wmt_files.write(raw, {f"{stem}.{language}": wmt_files.text(rows)})
    status, _, error = run("ende_wmt14_he2018")
    assert status == 0, error
    splits = manifest(tmp_path, "ende_wmt14_he2018")["splits"]
    assert [splits[split]["samples"] for split in ("train", "dev", "test")] == [40, 9, 6]
    assert texts(tmp_path, "ende_wmt14_he2018", "test")[0][0] == "house stone @-@ x , newstest2014 0."
    (raw / "newstest2013.de").unlink()
    status, _, error = run("ende_wmt14_he2018", "--overwrite")
    assert (status, "newstest2013.de (in " in error, "nlp.stanford.edu" in error) == (2, True, True)


def test_tensor2tensors_pack(run, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    files = {}
    for stem, count in (("train.tok.clean", 40), ("newstest2013.tok", 5), ("newstest2014.tok", 6)):
        for language in ("en", "de"):
            rows = [f"{row[:2]}@@ {row[2:]}" for row in wmt_files.lines(language, stem, count)]
            files[f"{stem}.bpe.32000.{language}"] = wmt_files.text(rows)
    wmt_files.write_tar(raw / "wmt16_en_de.tar.gz", files)
    status, output, error = run("ende_wmt14_zhou2019")
    assert status == 0, error
    assert texts(tmp_path, "ende_wmt14_zhou2019", "test")[1] == wmt_files.lines("de", "newstest2014.tok", 6)
    assert "4,500,966" in output
    changed = {name: content * 2 if "newstest2014" in name else content for name, content in files.items()}
    wmt_files.write_tar(raw / "wmt16_en_de.tar.gz", changed)
    status, _, error = run("ende_wmt14_zhou2019", "--overwrite")
    assert status == 0, error
    assert len(texts(tmp_path, "ende_wmt14_zhou2019", "test")[1]) == 12
    (raw / "wmt16_en_de.tar.gz").unlink()
    status, _, error = run("ende_wmt14_zhou2019", f"--tmp_dir={tmp_path}", "--overwrite")
    assert (status, "0B_bZck-ksdkpM25jRUN2X2UxMm8" in error, "layout=auto" in error) == (2, True, True)


def test_the_codes_of_a_pack_give_its_subwords(run, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    words = {each: wmt_files.lines(each, "rich-text", 60, " &apos;s @-@") for each in ("en", "de")}
    with open(raw / "bpe.32000", "w", encoding="utf-8") as codes:
        learn_bpe.learn_bpe(io.StringIO(wmt_files.text(words["en"] + words["de"])), codes, 40)
    with open(raw / "bpe.32000", encoding="utf-8") as codes:
        cut = {each: list(map(apply_bpe.BPE(codes).process_line, rows)) for each, rows in words.items()}
    for stem, count in (("train.tok.clean", 60), ("newstest2013.tok", 9), ("newstest2014.tok", 9)):
        for language, rows in cut.items():
            wmt_files.write(raw, {f"{stem}.bpe.32000.{language}": wmt_files.text(rows[-count:])})
    flags = [f"--bpe_codes={raw / 'bpe.32000'}", f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={raw}"]
    assert datagen.main(["--problem=translate_ende_wmt14_zhou2019", "--num_processes=1", *flags]) == 0
    problem = registry.problem("translate_ende_wmt14_zhou2019")
    data = GeneratedData.open(problem, tmp_path / "data")
    encoder = data.text_encoders()[1]
    prepared = encoder.prepare(data.texts("test")[1][0])
    assert [" ".join(encoder.pieces(encoder.encode(text))) for text in prepared] == cut["de"][-9:]
    assert "rich-text" in encoder.restore(prepared)[0]
    assert "@" not in encoder.restore(prepared)[0]


def test_fairseqs_files(run, tmp_path):
    for stem, count in (("train", 40), ("valid", 5), ("test", 6)):
        for language in ("en", "fr"):
            content = wmt_files.text(wmt_files.lines(language, stem, count))
            wmt_files.write(tmp_path / "raw" / "wmt14_en_fr", {f"{stem}.{language}": content})
    status, _, error = run("enfr_wmt14", options="layout=fairseq")
    assert status == 0, error
    assert manifest(tmp_path, "enfr_wmt14")["splits"]["dev"]["corpora"]["valid"]["pairs"] == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "stanfort"}, "Did you mean 'stanford'"),
        ({"weights": "europarl:2"}, "Did you mean 'europarl_v7'"),
        ({"weights": "0"}, "no training corpus of translate_ende_wmt14 is left"),
        ({"tags": "commoncrawl:web"}, "must be one word in angle brackets"),
        ({"tags": "names", "default_tag": "<comoncrawl>"}, "Did you mean '<commoncrawl>'"),
        (
            {"layout": "t2t", "download": "true"},
            "download=true does not go with layout=t2t; it is for layout=official and",
        ),
        ({"layout": "tfds", "download": True}, "does not go with layout=tfds"),
        ({"download": "perhaps"}, "true or false"),
        ({"layout": "t2t", "weights": "commoncrawl:2"}, "all training text in one file"),
    ],
)
def test_mistakes_in_the_options(options, message):
    with pytest.raises(UserError, match=message):
        registry.problem("translate_ende_wmt14", **options)


@pytest.mark.parametrize("name", [f"{name}{variant}" for name, variants in PROBLEMS.items() for variant in variants])
def test_every_problem_says_how_it_is_prepared_and_scored(name):
    for ending, english in (("", name[2:4] == "en"), ("_rev", name[:2] == "en")):
        problem = registry.problem(f"translate_{name}{ending}")
        assert problem.scoring in PROTOCOLS
        assert problem.subwords == "subword_nmt"
        assert set(problem.published) == {"train", "dev", "test"}
        assert (problem.target_language == "en") == english
        assert not (english and "compound" in problem.scoring)
        assert problem.name == f"translate_{name}{ending}"


def test_papers_differ_as_they_say():
    find = lambda name, **options: registry.problem(f"translate_{name}", **options)  # noqa: E731
    assert find("ende_wmt14").scoring == "multi_bleu_compound_split"
    assert (find("ende_wmt14_he2018").scoring, find("ende_wmt14_he2018").num_merges) == ("multi_bleu", 40_000)
    assert find("ende_wmt14_he2018", layout="official").scoring == "multi_bleu_compound_split"
    assert find("ende_wmt14_he2018", layout="official").source_steps == ("moses_tokenize",)
    assert find("ende_wmt14_zhou2019").source_steps == ("tokenized",)
    assert find("ende_wmt14_ampomah2021").scoring == "mteval_v13a"
    assert find("enro_wmt16_he2018").scoring == "detok"
    assert (find("ruen_wmt18_zhou2019").scoring, find("ruen_wmt18").num_merges) == ("multi_bleu_uc", 50_000)
    assert find("ruen_wmt18").base_name == find("ruen_wmt18_rev").base_name
    assert find("ruen_wmt18_rev", tags="names").base_name == "translate_ruen_wmt18_rev"
    assert find("ruen_wmt18", tags="names", weights="paracrawl_v1:0").tags == (
        "<commoncrawl>", "<newscommentary_v13>", "<yandex>",
    )  # fmt: skip


def test_listing_names_imports_no_tensorflow():
    code = (
        "import sys; from t2t_ext import registry\n"
        "registry.problem('translate_ruen_wmt18_rev', tags='names')\n"
        "sys.exit(any(name.split('.')[0] in ('tensorflow', 'tensorflow_datasets') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
