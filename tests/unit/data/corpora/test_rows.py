"""Tests of rows in Parquet or JSON lines, as in Hugging Face data sets, read by `translate_parallel_text`."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from t2t_ext import registry
from t2t_ext.data.corpora import formats, rows
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.errors import UserError

PAIRS = [{"de": "ein Haus", "en": "a house"}, {"de": "zwei\nHäuser", "en": "two houses"}, {"de": None, "en": "three"}]
KINDS = ("train.parquet", "train.jsonl", "train.jsonl.gz", "no_ending")


def write(path, found):
    """Writes rows as JSON lines or Parquet, depending on the ending of the name."""
    if ".json" not in path.name:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(found), path)
        return path
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8").write(text)
    return path


def read(problem, split, place):
    return [(sample["inputs"], sample["targets"]) for sample in problem.samples(split, place)]


@pytest.mark.parametrize("name", KINDS)
def test_a_column_of_translations(tmp_path, name):
    path = write(tmp_path / name, [{"id": str(i), "translation": pair} for i, pair in enumerate(PAIRS)])
    dev = write(tmp_path / f"dev.{name}", [{"translation": PAIRS[0]}])
    options = {"train_source": str(path), "dev_source": str(dev), "source_language": "de", "target_language": "en"}
    problem = registry.problem("translate_parallel_text", **options)
    problem.prepare(tmp_path)
    assert problem.count("train", tmp_path) == 3
    assert read(problem, "train", tmp_path) == [("ein Haus", "a house"), ("zwei Häuser", "two houses")]
    assert dict(problem.reading.drops) == {"no_translation": 1}
    assert problem.reading.first == {"line_feeds": f"{path}:2", "no_translation": f"{path}:3"}
    assert read(problem, "dev", tmp_path) == [("ein Haus", "a house")]


@pytest.mark.parametrize("name", KINDS[:2])
def test_columns_by_name(tmp_path, name):
    path = write(tmp_path / name, [{"text 1": "long", "meta": {"sentence_2": "short", "n": 1}}] * 2)
    problem = registry.problem(
        "translate_parallel_text", train_source=str(path), dev_source=str(path), columns="text 1,meta.sentence_2"
    )
    assert read(problem, "train", tmp_path) == [("long", "short")] * 2


def test_many_languages_in_a_row_and_tags_of_regions(tmp_path):
    path = write(
        tmp_path / "a.parquet", [{"translation": {"language": ["de", "en"], "translation": ["Haus", "house"]}}]
    )
    assert list(rows.RowFile(path, ("en", "de"), parquet=True).read(formats_report())) == [("house", "Haus")]
    path = write(tmp_path / "b.jsonl", [{"translation": {"de_DE": "Haus", "en-GB": "house"}}])
    assert list(rows.RowFile(path, ("de", "en")).read(formats_report())) == [("Haus", "house")]


@pytest.mark.parametrize("name", KINDS)
def test_the_first_row_may_lack_a_text(tmp_path, name):
    path = write(tmp_path / name, [{"de": "Haus", "en": None}, {"de": "zwei", "en": "two"}])
    source = formats.pair_source(path, split="train", columns=("de", "en")) if "." in name else None
    source = source or rows.RowFile(path, ("de", "en"), parquet=True)
    report = ReadReport()
    assert (source.count(), list(source.read(report))) == (2, [("zwei", "two")])
    assert report.drops == {"no_translation": 1}


def test_only_line_feeds_of_a_text_become_spaces(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"de": "a\r\nb\u2028c\x85d\x0ce\rf\n", "en": "\u2028\n"}])
    assert list(rows.RowFile(path, ("de", "en")).read(ReadReport())) == [("a b\u2028c\x85d\x0ce\rf", "\u2028")]


def test_a_language_is_not_the_dialect_of_the_other_side(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"pt-BR": "ônibus", "pt-PT": "autocarro"}])
    assert list(rows.RowFile(path, ("pt", "pt-BR")).read(ReadReport())) == [("autocarro", "ônibus")]


def formats_report():
    return ReadReport(strict=True)


def test_what_is_wrong_is_said(tmp_path):
    good = write(tmp_path / "a.jsonl", [{"translation": {"de": "Haus", "en": "house"}}])
    for names, message in (
        (("", ""), r"say which are translated.*It has: de, en\."),
        (("de", "fr"), r"has no text called 'fr'; it has: de, en\."),
    ):
        with pytest.raises(UserError, match=message):
            rows.RowFile(good, names).count()
    with pytest.raises(UserError, match="is JSON lines and has both sides; leave out --train_target"):
        formats.pair_source(good, (good,), split="train")
    with pytest.raises(UserError, match="columns=1,2 must be names"):
        formats.pair_source(good, split="train", columns=(1, 2))
    tabs = tmp_path / "a.tsv"
    tabs.write_text("a\tb\n")
    with pytest.raises(UserError, match="columns=de,en must be numbers"):
        formats.pair_source(tabs, split="train", columns=("de", "en"))
    damaged = tmp_path / "b.jsonl"
    for text, message in (
        ('{"de": "x"\n', r"b\.jsonl, line 1: it is not JSON"),
        ("[1]\n", "it is a list, not an object. Every line must be a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        (f"[{'1, ' * 100_000}1]", "^.{1,200}$"),
    ):
        damaged.write_text(text)
        with pytest.raises(UserError, match=message):
            rows.RowFile(damaged, ("de", "en")).count()
    broken = tmp_path / "c.parquet"
    broken.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match="damaged or incomplete Parquet"):
        formats.pair_source(broken, split="train", columns=("de", "en")).count()
    missing = write(tmp_path / "d.parquet", [{"translation": {"de": "x", "en": "y"}}, {"translation": {"de": "x"}}])
    with pytest.raises(UserError, match="line 2: the row has no text in de and en"):
        list(rows.RowFile(missing, ("de", "en"), parquet=True).read(formats_report()))


def test_lines_that_are_no_text_are_dropped_from_training_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    good = b'{"de": "x", "en": "y"}'
    path.write_bytes(b"\n".join([b'{"de": "\xff", "en": "y"}', good, b'{"de": "\\ud800", "en": "y"}', good]))
    file = rows.RowFile(path, ("de", "en"))
    report = ReadReport()
    assert (file.count(), list(file.read(report))) == (4, [("x", "y")] * 2)
    assert (report.drops, report.first) == ({"invalid_utf8": 2}, {"invalid_utf8": f"{path}:1"})
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: byte 8 is not UTF-8\. Lines of dev and test"):
        list(file.read(ReadReport(strict=True)))
    with pytest.raises(UserError, match=r"line 3: it holds half of a character .*\. Lines of dev and test"):
        list(file.read(ReadReport(strict=True), wanted=lambda number: number > 1))


@pytest.mark.parametrize("name", KINDS[:2])
def test_a_language_that_comes_late(tmp_path, name):
    french = [{"translation": {"de": "Haus", "fr": "maison"}}] * 1100
    path = write(tmp_path / name, [*french, {"translation": {"de": "Haus", "en": "house"}}])
    file = rows.RowFile(path, ("de", "en"), parquet="parquet" in name)
    assert file.count() == 1101
    report = ReadReport()
    assert list(file.read(report)) == [("Haus", "house")]
    assert dict(report.drops) == {"no_translation": 1100}
    with pytest.raises(UserError, match=r"no text called 'es'; it has: de, fr, en\."):
        rows.RowFile(path, ("de", "es"), parquet="parquet" in name).count()


def test_scripts_of_languages(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"zh_Hant": "a", "en": "b"}])
    assert list(rows.RowFile(path, ("zh-Hant", "en")).read(formats_report())) == [("a", "b")]


def test_parquet_that_is_compressed_as_a_whole(tmp_path):
    plain = write(tmp_path / "t.parquet", [{"de": "a", "en": "b"}])
    packed = tmp_path / "t.parquet.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(formats.pair_source(packed, (), split="train", languages=("de", "en")).read(formats_report())) == [
        ("a", "b")
    ]


def test_damaged_parquet(tmp_path):
    table = pyarrow.Table.from_pylist([{"de": f"{'word ' * 40}{i}", "en": f"{'Wort ' * 40}{i}"} for i in range(500)])
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path, compression="snappy", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[100:900] = b"\xff" * 800
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"t\.parquet is damaged or incomplete Parquet"):
        list(rows.RowFile(path, ("de", "en"), parquet=True).read(formats_report()))
    binary = pyarrow.array([b"gut", b"schl\xff", b"wieder gut"], pyarrow.binary()).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"de": binary, "en": pyarrow.array(["a", "b", "c"])}), path)
    report = ReadReport()
    found = list(rows.RowFile(path, ("de", "en"), parquet=True).read(report))
    assert found == [("gut", "a"), ("wieder gut", "c")]
    assert dict(report.drops) == {"invalid_utf8": 1}


def test_without_pyarrow(tmp_path, without_package):
    path = write(tmp_path / "a.parquet", [{"de": "x", "en": "y"}])
    without_package("pyarrow")
    with pytest.raises(UserError, match=r"needs the package pyarrow.*t2t_ext\[parquet\]"):
        rows.RowFile(path, ("de", "en"), parquet=True).count()
