"""Tests of t2t_ext-datagen on IWSLT and NIST corpora: small files in the layouts of the published ones."""

import json

import corpus_files
import pytest

from t2t_ext import registry
from t2t_ext.bin import datagen
from t2t_ext.data.corpora import download
from t2t_ext.errors import UserError

DE_EN_SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
RO_ES_SETS = ("TED.dev2010", "TED.tst2010", "TED.tst2011", "TED.tst2012", "TED.tst2014")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Makes every download fail at once."""

    def fail(url, *args):
        raise OSError("no network in tests")

    monkeypatch.setattr(download, "_download", fail)


@pytest.fixture
def run(tmp_path, capsys):
    """Returns t2t_ext-datagen as a function (problem, flags...) -> (exit status, manifest or None, output, errors)."""

    def call(problem, *flags):
        status = datagen.main(
            [f"--problem={problem}", f"--data_dir={tmp_path / 'data'}", f"--tmp_dir={tmp_path / 'raw'}",
             "--num_merges=60", "--num_processes=1", *flags]
        )  # fmt: skip
        output = capsys.readouterr()
        manifest = tmp_path / "data" / f"{problem.removesuffix('_rev')}.manifest.json"
        return status, json.loads(manifest.read_text()) if manifest.exists() else None, output.out, output.err

    (tmp_path / "raw").mkdir()
    return call


def counts(manifest):
    return {name: split["samples"] for name, split in manifest["splits"].items()}


def texts(tmp_path, name):
    return (tmp_path / "data" / name).read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize("problem", ["translate_deen_iwslt14", "translate_deen_iwslt14_liu2020"])
def test_german_english_out_of_the_archive(run, tmp_path, problem):
    files = corpus_files.wit3("de-en", DE_EN_SETS, prefix="de-en/")
    (tmp_path / "raw/de-en.tgz").write_bytes(corpus_files.tar(files))
    status, manifest, output, error = run(problem)
    assert (status, error.count("Traceback")) == (0, 0)
    assert counts(manifest) == {"train": 81, "dev": 3, "test": 30}  # 2 titles, 2 descriptions, 80 sentences; 84 // 23
    assert "published" in output
    assert texts(tmp_path, f"{problem}-test.targets.txt")[0] == corpus_files.sentence("en", 500)
    assert manifest["problem_options"] == {}
    assert [file["name"] for file in manifest["inputs"]["train"]] == ["train.tags.de-en.de", "train.tags.de-en.en"]


def test_every_23rd_pair_of_those_that_cleaning_left_is_dev(run, tmp_path):
    files = corpus_files.wit3("de-en", DE_EN_SETS)
    lines = files["train.tags.de-en.de"].split("\n")
    lines[6] = " ".join(["viel"] * 20)  # the first pair: ratio above 1.5
    lines[7] = ""
    lines[-3] += "\r"
    files["train.tags.de-en.de"] = "\n".join(lines)
    corpus_files.write(tmp_path / "raw", files)
    status, manifest, output, _ = run("translate_deen_iwslt14")
    assert status == 0
    assert counts(manifest) == {"train": 79, "dev": 3, "test": 30}
    assert manifest["splits"]["train"]["drops"] == {"word_ratio": 1, "empty": 1}
    assert manifest["splits"]["train"]["notes"] == {"carriage_returns": 1}
    kept = [corpus_files.sentence("en", n) for n in range(1, 81)]
    english = [f"{corpus_files.sentence('en', 900)}", f"TED Talk: {corpus_files.sentence('en', 950)}", *kept[2:]]
    assert texts(tmp_path, "translate_deen_iwslt14-dev.targets.txt")[0].strip() == english[22]
    assert "dropped 1" in output


def test_the_papers_four_test_sets(run, tmp_path):
    corpus_files.write(tmp_path / "raw", corpus_files.wit3("de-en", DE_EN_SETS))
    status, manifest, _, _ = run("translate_deen_iwslt14_he2018", "--problem_options=test=paper")
    assert (status, counts(manifest)["test"]) == (0, 24)
    assert "nothing to do" in run("translate_deen_iwslt14_he2018", "--problem_options=test=paper,layout=wit3")[2]
    assert manifest["problem_options"] == {"test": "paper"}
    status, _, _, error = run("translate_deen_iwslt14_he2018", "--problem_options=test=recipe")
    assert status == 2
    assert "test was 'paper', now 'recipe'" in error


def test_text_that_is_tokenized_already(run, tmp_path):
    for stem, count in (("train_subset", 40), ("valid", 4), ("test", 5)):
        for language in ("de", "en"):
            text = corpus_files.lines_of(language, count).lower().replace(",", " ,")
            corpus_files.write(tmp_path / "raw", {f"{stem}.{language}.gz": corpus_files.compressed(text)})
    options = "--problem_options=layout=plain,train=train_subset"
    status, manifest, _, _ = run("translate_deen_iwslt14_rev", options)
    assert (status, counts(manifest)) == (0, {"train": 40, "dev": 4, "test": 5})
    status, _, _, error = run("translate_deen_iwslt14_liu2020", "--problem_options=layout=plain")
    assert status == 2
    assert "Not there: train.de, train.en" in error


@pytest.mark.parametrize(
    ("problem", "pair", "campaign", "sets", "split_sizes"),
    [
        ("translate_roen_iwslt14", "ro-en", "IWSLT14", RO_ES_SETS, (24, 6)),
        ("translate_roen_iwslt14_he2018_rev", "ro-en", "IWSLT14", RO_ES_SETS, (24, 6)),
        ("translate_esen_iwslt14", "es-en", "IWSLT14", RO_ES_SETS, (24, 6)),
        ("translate_esen_iwslt14_ampomah2021", "es-en", "IWSLT14", RO_ES_SETS, (24, 6)),
        ("translate_esen_iwslt14_he2018", "es-en", "IWSLT14", RO_ES_SETS, (24, 6)),
        ("translate_enfr_iwslt15", "en-fr", "IWSLT15", ("TED.tst2013", "TED.tst2014", "TED.tst2015"), (6, 12)),
    ],
)  # fmt: skip
def test_other_languages(run, tmp_path, problem, pair, campaign, sets, split_sizes):
    release = "20" + campaign[-2:]
    first, second = pair.split("-")
    inner = corpus_files.tar(corpus_files.wit3(pair, sets, campaign, prefix=f"{pair}/"))
    outer = {f"{release}-01/texts/{first}/{second}/{pair}.tgz": inner}
    (tmp_path / f"raw/{release}-01.tgz").write_bytes(corpus_files.tar(outer))
    status, manifest, _, error = run(problem)
    assert (status, error.count("Traceback")) == (0, 0)
    assert counts(manifest) == dict(zip(("train", "dev", "test"), (84, *split_sizes), strict=True))


def test_pairs_of_one_release_out_of_the_same_archive(run, tmp_path):
    pairs = {pair: corpus_files.wit3(pair, RO_ES_SETS, prefix=f"{pair}/") for pair in ("ro-en", "es-en")}
    outer = {f"2014-01/texts/{pair[:2]}/en/{pair}.tgz": corpus_files.tar(files) for pair, files in pairs.items()}
    (tmp_path / "raw/2014-01.tgz").write_bytes(corpus_files.tar(outer))
    for problem in ("translate_roen_iwslt14", "translate_esen_iwslt14", "translate_roen_iwslt14_he2018"):
        status, manifest, _, error = run(problem)
        assert (status, error) == (0, "")
        assert counts(manifest) == {"train": 84, "dev": 24, "test": 6}
    assert sorted(path.name for path in (tmp_path / "raw").iterdir() if path.name.startswith("2014")) == [
        "2014-01.tgz", "2014-01.tgz.en-es.unpacked", "2014-01.tgz.en-ro.unpacked",
    ]  # fmt: skip


def test_archives_of_the_same_name_from_two_releases(run, tmp_path):
    training = corpus_files.wit3("ro-en", RO_ES_SETS[:-1])
    test = {n: t for n, t in corpus_files.wit3("ro-en", RO_ES_SETS).items() if "tst2014" in n}
    files = {"2014-01/ro-en.tgz": corpus_files.tar(training), "2014-01-test/ro-en.tgz": corpus_files.tar(test)}
    corpus_files.write(tmp_path / "raw", files)
    status, manifest, _, _ = run("translate_roen_iwslt14_ampomah2021_rev")
    assert (status, counts(manifest)) == (0, {"train": 84, "dev": 24, "test": 6})


def test_sides_of_an_evaluation_set_may_stand_under_either_direction(run, tmp_path):
    files = corpus_files.wit3("en-fr", ("TED.tst2013", "TED.tst2014", "TED.tst2015"), "IWSLT15")
    files["IWSLT15.TED.tst2015.fr-en.fr.xml"] = files.pop("IWSLT15.TED.tst2015.en-fr.fr.xml").replace(
        "refset", "srcset"
    )
    corpus_files.write(tmp_path / "raw", files)
    status, manifest, _, _ = run("translate_enfr_iwslt15_ampomah2021")
    assert (status, counts(manifest)["test"]) == (0, 12)


@pytest.mark.parametrize("problem", ["translate_envi_iwslt15", "translate_envi_iwslt15_ampomah2021"])
def test_stanfords_files(run, tmp_path, problem, monkeypatch):
    fetch = download.fetch  # these are not the published files
    monkeypatch.setattr(download, "fetch", lambda url, path, sha256=None: fetch(url, path))
    for stem, count in (("train", 50), ("tst2012", 4), ("tst2013", 5)):
        corpus_files.write(
            tmp_path / "raw",
            {f"{stem}.{language}": corpus_files.lines_of(language, count) for language in ("en", "vi")},
        )
    status, manifest, _, _ = run(problem)
    assert (status, counts(manifest)) == (0, {"train": 50, "dev": 4, "test": 5})
    (tmp_path / "raw/tst2013.vi").unlink()
    status, _, _, error = run(problem, "--overwrite")
    assert status == 2
    assert "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/tst2013.vi" in error
    assert "train.en, train.vi, tst2012.en, tst2012.vi, tst2013.en, tst2013.vi" in error


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("translate_deen_iwslt14", ["train.tags.de-en.de", "IWSLT14.TEDX.dev2012.de-en.en.xml", "de-en.tgz",
                                    "dl.fbaipublicfiles.com", "no network in tests", "layout=plain"]),
        ("translate_roen_iwslt14", ["train.tags.ro-en.ro", "IWSLT14.TED.tst2014.ro-en.en.xml", "ro-en.tgz",
                                    "https://wit3.fbk.eu/2014-01"]),
        ("translate_esen_iwslt14_he2018", ["train.tags.es-en.es", "2014-01-test.tgz", "a folder of their own"]),
        ("translate_enfr_iwslt15", ["IWSLT15.TED.tst2015.en-fr.fr.xml", "https://wit3.fbk.eu/2015-01"]),
        ("translate_zhen_nist", ["LDC2000T50", "LDC2004T07", "mt06", "https://catalog.ldc.upenn.edu"]),
    ],
)  # fmt: skip
def test_what_is_missing_is_listed(run, tmp_path, problem, expected):
    status, manifest, _, error = run(problem)
    assert (status, manifest) == (2, None)
    assert "Traceback" not in error
    for words in expected:
        assert words in error
    assert not (tmp_path / "data").exists() or not list((tmp_path / "data").glob("translate*"))


@pytest.mark.parametrize("problem", [name for name in registry.problem_names() if "iwslt" in name or "nist" in name])
def test_every_problem_lists_what_is_missing(run, tmp_path, problem):
    status, manifest, _, error = run(problem)
    assert (status, manifest) == (2, None)
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    for words in (problem, str(tmp_path / "raw"), "http"):
        assert words in error


def test_chinese_english_of_the_consortium(run, tmp_path):
    corpus_files.write(tmp_path / "raw", {**corpus_files.ldc_corpora(), **corpus_files.nist_test_sets()})
    status, manifest, output, error = run("translate_zhen_nist")
    assert (status, error.count("Traceback")) == (0, 0)
    # Three corpora of 4 segments with two translations each, and lines: 20 + 15 + 10 + 12.
    assert counts(manifest) == {"train": 81, "dev": 5, "mt03": 6, "mt04": 5, "mt05": 6, "mt06": 5}
    first = [texts(tmp_path, f"translate_zhen_nist-mt03.targets{number}.txt")[0] for number in ("", ".1", ".2", ".3")]
    assert first == [f"{corpus_files.sentence('en', 330)} ({s})" for s in ("ahd", "ahe", "ahg", "ahi")]
    assert manifest["source_language"] == "zh"
    assert texts(tmp_path, "translate_zhen_nist-mt03.inputs.txt")[0] == corpus_files.sentence("zh", 330)
    assert not manifest["vocab"]["joint"]
    assert manifest["vocab"]["training"]["asked_size"] == 30_000  # the limit of each vocabulary
    assert "published: 2,000,000" in output


def test_every_translation_is_read_and_files_without_another_side_are_counted(run, tmp_path):
    files = {
        "LDC2003E14/source/a.txt": corpus_files.lines_of("zh", 20),
        "LDC2003E14/translation/E01/a.txt": corpus_files.lines_of("en", 20),
        "LDC2003E14/translation/E02/a.txt": corpus_files.lines_of("en", 20, 3),
        "LDC2003E14/source/b.txt": corpus_files.lines_of("zh", 4),
        "LDC2003E14/translation/E01/c.txt": corpus_files.lines_of("en", 3),
    }
    corpus_files.write(tmp_path / "raw", {**corpus_files.nist_test_sets(), **files})
    status, manifest, output, _ = run("translate_zhen_nist", "--problem_options=corpora=LDC2003E14")
    assert (status, counts(manifest)["train"]) == (0, 40)
    assert manifest["splits"]["train"]["drops"] == {"unpaired_file": 7}
    assert "LDC2003E14/source/b.txt:1" in output


def test_a_changed_archive_of_the_consortium_is_unpacked_again(run, tmp_path):
    files = {"a.zh": corpus_files.lines_of("zh", 20), "a.en": corpus_files.lines_of("en", 20)}
    corpus_files.write(tmp_path / "raw", corpus_files.nist_test_sets())
    options = ("--problem_options=corpora=LDC2002E18", "--overwrite")
    (tmp_path / "raw/LDC2002E18.tgz").write_bytes(corpus_files.tar(files))
    assert counts(run("translate_zhen_nist", *options)[1])["train"] == 20
    more = {"b.zh": corpus_files.lines_of("zh", 5), "b.en": corpus_files.lines_of("en", 5)}
    (tmp_path / "raw/LDC2002E18.tgz").write_bytes(corpus_files.tar({**files, **more}))
    assert counts(run("translate_zhen_nist", *options)[1])["train"] == 25


def test_chinese_english_as_plain_text_that_is_segmented(run, tmp_path):
    files = corpus_files.nist_test_sets(folder=False)
    files |= {
        "train.zh.gz": corpus_files.compressed(corpus_files.lines_of("zh", 30)),
        "train.en": corpus_files.lines_of("en", 30),
    }
    corpus_files.write(tmp_path / "raw", files)
    status, manifest, _, _ = run("translate_zhen_nist_rev", "--problem_options=layout=plain,words=segmented")
    assert (status, counts(manifest)["train"]) == (0, 30)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("tset=paper", "Did you mean 'test'"),
        ("test=papr", "test is one of: recipe, paper"),
        ("layout=plian", "Did you mean 'plain'"),
        ("layout", "'layout' is not of the form name=value"),
        ("train=x", "layout=plain"),
        ("test=paper,test=recipe", "given twice"),
        ("test=", "has no value"),
    ],
)
def test_misspelt_options(run, options, expected):
    status, _, _, error = run("translate_deen_iwslt14", f"--problem_options={options}")
    assert status == 2
    assert expected in error


def test_a_damaged_archive_leaves_nothing(run, tmp_path):
    content = corpus_files.tar(corpus_files.wit3("de-en", DE_EN_SETS, prefix="de-en/"))
    (tmp_path / "raw/de-en.tgz").write_bytes(content[: len(content) // 2])
    status, _, _, error = run("translate_deen_iwslt14")
    assert status == 2
    assert "de-en.tgz is a damaged" in error
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["de-en.tgz"]


def test_a_changed_archive_is_unpacked_again(run, tmp_path):
    files = corpus_files.wit3("ro-en", RO_ES_SETS)
    path = tmp_path / "raw/ro-en.zip"
    path.write_bytes(corpus_files.zipped(files))
    assert counts(run("translate_roen_iwslt14")[1])["train"] == 84
    path.write_bytes(corpus_files.zipped(corpus_files.wit3("ro-en", RO_ES_SETS, lines=50)))
    status, _, _, error = run("translate_roen_iwslt14", "--overwrite")
    assert status == 0, error
    assert counts(run("translate_roen_iwslt14")[1])["train"] == 104


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (
            "IWSLT14.TED.tst2011.ro-en.en.xml",
            "</seg>\n</doc>",
            "\n</doc>",
            "en.xml, line 11 (document '0001', segment '3')",
        ),
        (
            "IWSLT14.TED.tst2011.ro-en.en.xml",
            '<seg id="2">',
            '<seg id="1">',
            "line 9: segment '1' of document '0001' is there twice",
        ),
        ("IWSLT14.TED.tst2011.ro-en.ro.xml", 'docid="0002"', 'docid="0003"', "document '0002' is not in"),
        ("train.tags.ro-en.ro", f"{corpus_files.sentence('ro', 1)} \n", "", "line 50 (title) and"),
    ],
)
def test_damaged_files_are_named_with_line_and_segment(run, tmp_path, name, old, new, expected):
    files = corpus_files.wit3("ro-en", RO_ES_SETS)
    assert old in files[name]
    files[name] = files[name].replace(old, new, 1)
    corpus_files.write(tmp_path / "raw", files)
    status, manifest, _, error = run("translate_roen_iwslt14")
    assert (status, manifest) == (2, None)
    assert name in error
    assert expected in error, error


def test_a_first_download_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_download", lambda url, part, show: part.write_bytes(b"first"))
    path = tmp_path / "x.tgz"
    download.fetch("http://example.org/x.tgz", path)
    assert path.read_bytes() == b"first"
    download.fetch("http://example.org/x.tgz", path)
    path.write_bytes(b"second")
    with pytest.raises(UserError, match=r"x\.tgz\.sha256, which holds the checksum of the first"):
        download.fetch("http://example.org/x.tgz", path)
    (tmp_path / "x.tgz.sha256").unlink()
    assert download.fetch("http://example.org/x.tgz", path).read_bytes() == b"second"


def test_own_files_in_several_formats(run, tmp_path):
    units = "".join(
        f'<tu><tuv xml:lang="ZH-cn"><seg>{corpus_files.sentence("zh", i)}</seg></tuv>'
        f'<tuv xml:lang="en"><seg>{corpus_files.sentence("en", i)}</seg></tuv></tu>'
        for i in range(60)
    )
    files = {
        "m.tmx": f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{units}</body></tmx>',
        "src.sgm": corpus_files.sgml("zh", "srcset", encoding="gb18030"),
        "ref.sgm": corpus_files.sgml("en", "refset", ("A", "B")),
    }
    corpus_files.write(tmp_path / "raw", {"all.tgz": corpus_files.tar(files)})
    archive = tmp_path / "raw/all.tgz"
    status, manifest, _, error = run(
        "translate_parallel_text", f"--train_source={archive}:m.tmx", f"--dev_source={archive}:src.sgm",
        f"--dev_target={archive}:ref.sgm", "--source_language=zh", "--target_language=en", "--subwords=subword_nmt",
    )  # fmt: skip
    assert (status, error.count("Traceback")) == (0, 0)
    assert counts(manifest) == {"train": 60, "dev": 6}
    assert texts(tmp_path, "translate_parallel_text-dev.targets.1.txt")[5] == f"{corpus_files.sentence('en', 5)} (B)"
