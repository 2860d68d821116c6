"""Tests of corpora whose files lie in one --tmp_dir: files of the same name are not taken for each other."""

import gzip
import pathlib
import tarfile
import zipfile

import pytest

from t2t_ext import registry
from t2t_ext.data.corpora import archives, download
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.corpora.segments import TaggedLineFiles
from t2t_ext.errors import UserError
from t2t_ext.problem import DEV, TEST, TRAIN
from t2t_ext.problems import _ldc_files, _ted_files

CAPTION = "Zwei Hunde ."


@pytest.fixture
def downloads(monkeypatch):
    """Replaces downloads by files of one line, the name; returns the paths."""
    made = []

    def fetch(url, path, sha256=None):
        path = pathlib.Path(path)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{url.rpartition('/')[2]}\n")
            made.append(path)
        return path

    monkeypatch.setattr(download, "fetch", fetch)
    return made


@pytest.fixture
def captions(tmp_path):
    """Multi30k's training files as that problem downloads them."""
    for language in ("de", "en"):
        (tmp_path / f"train.{language}.gz").write_bytes(gzip.compress(f"{CAPTION}\n".encode()))
    return tmp_path


def texts(problem, split, tmp_dir):
    return [pair for source in problem.pair_files(split, tmp_dir) for pair in source.read(ReadReport())]


def test_a_pack_is_not_made_of_another_corpus(captions, downloads):
    problem = registry.problem("translate_ende_wmt14_he2018", download="true")
    problem.prepare(captions)
    assert {path.parent for path in downloads} == {captions / "wmt14.en-de"}
    for split, name in ((TRAIN, "train"), (DEV, "newstest2012"), (TEST, "newstest2014")):
        found = [pair[:2] for pair in texts(problem, split, captions)]
        assert found[0] == (f"{name}.en", f"{name}.de")
    # Whoever has all files in the folder itself keeps them there.
    for path in downloads:
        path.rename(captions / path.name)
    for path in captions.glob("train.*.gz"):
        path.unlink()
    again = registry.problem("translate_ende_wmt14_he2018")
    again.prepare(captions)
    assert texts(again, TRAIN, captions)[0][:2] == ("train.en", "train.de")


def test_a_pack_that_is_not_there_is_missed_in_spite_of_another_corpus(captions):
    with pytest.raises(UserError, match=r"lacks .*train\.en"):
        registry.problem("translate_ende_wmt14_he2018").prepare(captions)


def test_stanfords_files_have_a_folder_of_their_own(captions, downloads):
    problem = registry.problem("translate_envi_iwslt15")
    problem.prepare(captions)
    assert {path.parent for path in downloads} == {captions / "iwslt15.en-vi"}
    assert {"train.en", "train.vi"} <= {path.name for path in downloads}


@pytest.mark.parametrize("is_resolved", [True, False])
def test_entities_of_training_text(tmp_path, is_resolved):
    paths = [tmp_path / "train.tags.en-ro.en", tmp_path / "train.tags.en-ro.ro"]
    for path in paths:
        path.write_text("<url>x</url>\n<title>R&amp;D</title>\n&lt;em&gt; at &#10; AT&T &nothing;\n")
    found = list(TaggedLineFiles(*paths, resolve_entities=is_resolved).read(ReadReport()))
    resolved = ["R&D", "<em> at   AT&T &nothing;"]
    assert [pair[0] for pair in found] == (
        resolved if is_resolved else ["R&amp;D", "&lt;em&gt; at &#10; AT&T &nothing;"]
    )


@pytest.mark.parametrize(("name", "is_resolved"), [("translate_roen_iwslt14", True), ("translate_deen_iwslt14", False)])
def test_the_training_text_is_resolved_as_the_evaluation_sets(tmp_path, name, is_resolved):
    files = registry.problem(name)._raw_files(tmp_path)
    found = {each.resolve_entities for split in (TRAIN, TEST) for each in files.sources(split)}
    assert found == {is_resolved}


def test_ldc_files_are_left_out_by_their_whole_name(tmp_path):
    names = ["doc0001", "DOC0002", "file7", "index1", "a"]
    for name in [f"{each}.{language}" for each in names for language in ("zh", "en")] + [
        "readme.en", "README.zh", "file.txt", "index.html", "doclist.txt", "file.tbl", "docs.txt",
    ]:  # fmt: skip
        (tmp_path / "LDC2003E14").mkdir(exist_ok=True)
        (tmp_path / "LDC2003E14" / name).write_text("x\n")
    found = {pathlib.Path(path).name for each in _ldc_files.corpus(tmp_path, "LDC2003E14") for path in each.paths}
    assert found == {f"{each}.{language}" for each in names for language in ("zh", "en")}


def test_ldc_files_that_differ_in_case(tmp_path):
    folder = tmp_path / "LDC2003E14"
    folder.mkdir()
    for name in ("A.zh", "A.en", "a.zh", "a.en", "B.ZH", "b.en", "c.zh", "c.zh.sgm", "c.en"):
        (folder / name).write_text("x\n")
    found = [[path.name for path in each.paths] for each in _ldc_files.corpus(tmp_path, "LDC2003E14")]
    assert sorted(found) == [["A.zh", "A.en"], ["B.ZH", "b.en"], ["a.zh", "a.en"], ["c.zh", "c.en"], ["c.zh.sgm"]]


def test_iwslt_is_found_beside_a_large_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(_ted_files, "_MOST_FOLDERS", 3)
    (tmp_path / "cocobu_att").mkdir()
    for number in range(20):
        (tmp_path / "cocobu_att" / f"{number}.npz").touch()
    (tmp_path / "de-en").mkdir()
    (tmp_path / "de-en" / "train.tags.de-en.de").touch()
    files = registry.problem("translate_deen_iwslt14")._raw_files(tmp_path)
    assert list(files._found()) == ["train.tags.de-en.de"]
    for number in range(3):
        (tmp_path / f"folder{number}").mkdir()
    with pytest.raises(UserError, match=r"more than 3 folders below .*name that one: --tmp_dir=DIR"):
        files._found()


def test_a_tar_that_ends_with_a_zip_is_a_tar(tmp_path):
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as packed:
        packed.writestr("inner.en", "x\n")
    (tmp_path / "train.en").write_text("y\n")
    with tarfile.open(tmp_path / "t.tar", "w") as packed:
        for name in ("train.en", "z.zip"):
            packed.add(tmp_path / name, name)
    assert archives.member_names(tmp_path / "t.tar") == ["train.en", "z.zip"]
    assert archives.member_names(tmp_path / "z.zip") == ["inner.en"]
