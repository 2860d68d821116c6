"""Tests of readers: lines end only at LF, every loss is counted, and errors name file and line."""

import gzip
import os
import threading

import pytest

from t2t_ext.data.corpora import readers
from t2t_ext.data.corpora.readers import PairFiles, ReadReport
from t2t_ext.errors import UserError


def write(path, content):
    path.write_bytes(content)
    return path


def test_lines_end_at_lf_only(tmp_path):
    text = "a\u2028b\u0085c\x0bd\x0ce\x1cf\rg\n\n  x \nlast"
    path = write(tmp_path / "t", text.encode())
    assert [line.decode() for line in readers.read_lines(path)] == text.split("\n")
    assert readers.count_lines(path) == 4


def test_one_carriage_return_before_lf_is_dropped_and_counted(tmp_path):
    path = write(tmp_path / "t", b"a\nb\r\nc\r\r\nd\r")
    report = ReadReport()
    assert list(readers.read_lines(path, report)) == [b"a", b"b", b"c\r", b"d\r"]
    assert report.notes == {readers.CARRIAGE_RETURNS: 2}
    assert report.first[readers.CARRIAGE_RETURNS] == f"{path}:2"
    assert not report.drops


def test_a_byte_order_mark_is_no_text_and_utf_16_no_lines(tmp_path):
    path = write(tmp_path / "t", "\ufeffa\n\ufeffb\n".encode())
    report = ReadReport()
    assert list(readers.read_lines(path, report)) == [b"a", "\ufeffb".encode()]
    assert (report.notes, report.first) == ({readers.BYTE_ORDER_MARK: 1}, {readers.BYTE_ORDER_MARK: f"{path}:1"})
    for read in (readers.count_lines, lambda path: list(readers.read_lines(path))):
        with pytest.raises(UserError, match=r"t is UTF-16; .*iconv -f UTF-16"):
            read(write(tmp_path / "t", "a\nb\n".encode("utf-16")))


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE"])
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_utf_16_without_a_byte_order_mark_is_no_utf_8(tmp_path, encoding, packed):
    path = write(tmp_path / "t", packed("\nÄ house – 2 €\nb\n".encode(encoding)))
    command = f"iconv -f {encoding} -t UTF-8"
    for read in (readers.count_lines, lambda path: list(readers.read_lines(path))):
        with pytest.raises(UserError, match=rf"t is UTF-16; .*{command}\."):
            read(path)
    # A few NULs, or many without the pattern of UTF-16, are accepted.
    for content in (b"a\0b\nc d e\n", b"a\0b\n", b"\0\n", b"\0" * 64 + b"\n"):
        damaged = write(tmp_path / "t", packed(content))
        assert list(readers.read_lines(damaged)) == content.splitlines()


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\n", b"a\nb", b"\n\n"])
def test_counting_agrees_with_reading(tmp_path, content):
    path = write(tmp_path / "t", content)
    assert readers.count_lines(path) == len(list(readers.read_lines(path)))


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_lines_that_end_at_carriage_returns_are_refused(tmp_path, packed):
    for content in (b"a\rb\rc\rd\re\r", b"a\rb\rc\rd\re\rf\n"):
        with pytest.raises(UserError, match=r"t is one line with 5 carriage returns.*tr '\\r' '\\n'"):
            readers.count_lines(write(tmp_path / "t", packed(content)))
    for content, lines in ((b"a\rb\rc\r\n", 1), (b"a\r\n" * 9, 9), (b"a\rb\rc\rd\re\rf\n\n", 2)):
        assert readers.count_lines(write(tmp_path / "t", packed(content))) == lines


def test_gzip_is_recognized_whatever_the_name(tmp_path):
    path = write(tmp_path / "t.txt", gzip.compress(b"a\nb\n"))
    assert list(readers.read_lines(path)) == [b"a", b"b"]
    assert readers.count_lines(path) == 2
    assert list(readers.read_lines(write(tmp_path / "plain.gz", b"a\n"))) == [b"a"]


def test_damaged_gzip_names_the_file(tmp_path):
    content = gzip.compress(b"a\nb\n" * 1000)
    for damaged in (content[:-9], content[:12] + b"\xff\xff\xff" + content[15:]):
        path = write(tmp_path / "t.gz", damaged)
        with pytest.raises(UserError, match=r"t\.gz is a damaged"):
            list(readers.read_lines(path))


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="nothing cannot be read"):
        list(readers.read_lines(tmp_path / "nothing"))
    here = write(tmp_path / "here", b"")
    with pytest.raises(UserError) as caught:
        readers.require_files([here, tmp_path / "p", tmp_path / "q"], "Do this.")
    assert str(caught.value) == f"No such file: {tmp_path / 'p'}, {tmp_path / 'q'}. Do this."


def test_folders_in_place_of_files(tmp_path):
    with pytest.raises(UserError, match=f"^{tmp_path} is a folder; name a file.$"):
        list(readers.read_lines(tmp_path))
    here = write(tmp_path / "here", b"")
    with pytest.raises(UserError, match=f"^{tmp_path} is a folder; name a file. Do this.$"):
        readers.require_files([here, tmp_path], "Do this.")
    with pytest.raises(UserError, match=rf"^No such file: {tmp_path}, {tmp_path}/p\."):
        readers.require_files([tmp_path, tmp_path / "p"], "Do this.")


def test_pairs(tmp_path):
    files = PairFiles(write(tmp_path / "s", "ä\n\nc\n".encode()), write(tmp_path / "t", b"1\n2\n3"))
    assert list(files.read(ReadReport())) == [("ä", "1"), ("", "2"), ("c", "3")]
    assert list(files.read(ReadReport(), lambda number: number == 2)) == [("", "2")]
    assert files.count() == 3


def test_further_references(tmp_path):
    s, t, r = (write(tmp_path / name, name.encode() + b"\n") for name in "str")
    assert list(PairFiles(s, t, (r,)).read(ReadReport())) == [("s", "t", "r")]


@pytest.mark.parametrize("read", [lambda files: list(files.read(ReadReport())), PairFiles.count])
def test_unequal_lines_name_both_files_and_counts(tmp_path, read):
    files = PairFiles(write(tmp_path / "s", b"a\nb\nc\n"), write(tmp_path / "t", b"1\n2\n"))
    with pytest.raises(UserError) as caught:
        read(files)
    assert f"{tmp_path / 's'}: 3" in str(caught.value)
    assert f"{tmp_path / 't'}: 2" in str(caught.value)


def test_invalid_utf8_is_dropped_and_counted_in_training_text(tmp_path):
    source = write(tmp_path / "s", b"a\nb\nc\nd\n")
    target = write(tmp_path / "t", b"1\n\xff\n3\n\xc3\n")
    report = ReadReport()
    assert list(PairFiles(source, target).read(report)) == [("a", "1"), ("c", "3")]
    assert report.drops == {readers.INVALID_UTF8: 2}
    assert report.first == {readers.INVALID_UTF8: f"{target}:2"}


def test_invalid_utf8_is_an_error_in_dev_and_test_text(tmp_path):
    files = PairFiles(write(tmp_path / "s", b"a\n\xed\xa0\x80\n"), write(tmp_path / "t", b"1\n2\n"))
    with pytest.raises(UserError, match=r"s, line 2: invalid UTF-8"):
        list(files.read(ReadReport(strict=True)))


def text_in(tmp_path, encoding, bad=()):
    lines = [f"Überall {number} schöne Wörter".encode(encoding) for number in range(20)] + [b"ascii"] * 50
    for number in bad:
        lines[number] = b"\xff\xfe\x81 W\xd6rter"
    path = write(tmp_path / f"{encoding}.txt", b"".join(line + b"\n" for line in lines))
    report = ReadReport()
    found = [source for source, _ in PairFiles(path, path, encodings=("cp1252", "gb18030")).read(report)]
    return found, dict(report.drops)


def test_a_damaged_line_does_not_change_the_encoding_of_a_file(tmp_path):
    whole, _ = text_in(tmp_path, "utf-8")
    for encoding in ("utf-8", "utf-8-sig", "cp1252", "latin-1"):
        found, drops = text_in(tmp_path, encoding, bad=[3])
        kept = [line.removeprefix("\ufeff") for line in found]
        assert kept == whole[:3] + whole[4:], encoding
        assert drops == {"invalid_utf8": 1}
    found, drops = text_in(tmp_path, "cp1252")
    assert found == whole
    assert not drops
    path = write(tmp_path / "noise", b"\xff\x81\n\xfe\x81\n")
    with pytest.raises(UserError, match="not UTF-8, and the file declares no encoding"):
        list(PairFiles(path, path, encodings=("cp1252",)).read(ReadReport()))


def test_tab_separated(tmp_path):
    path = write(tmp_path / "x.tsv", b"a\t1\nno tab\nb\t2\nc\t3\textra\n\xff\t4\n")
    report = ReadReport()
    assert list(PairFiles(path).read(report)) == [("a", "1"), ("b", "2")]
    assert report.drops == {readers.WRONG_COLUMNS: 2, readers.INVALID_UTF8: 1}
    assert report.first == {readers.WRONG_COLUMNS: f"{path}:2", readers.INVALID_UTF8: f"{path}:5"}
    with pytest.raises(UserError, match=r"x\.tsv, line 2: 1 tab-separated columns"):
        list(PairFiles(path).read(ReadReport(strict=True)))


def test_pipes_can_be_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"one\ntwo\n"))
    writer.start()
    assert list(readers.read_lines(pipe)) == [b"one", b"two"]
    writer.join()
