"""Tests of compressed files, archives, marked-up segments and translation memories, and what readers refuse."""

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import socket
import tarfile
import zipfile

import corpus_files
import pytest
import zstandard

from t2t_ext import registry
from t2t_ext.data.corpora import archives, charsets, compression, formats, markup
from t2t_ext.data.corpora.markup import read_segments
from t2t_ext.data.corpora.readers import PairFiles, ReadReport, count_lines, read_lines
from t2t_ext.data.corpora.segments import SegmentFiles, TaggedLineFiles
from t2t_ext.data.corpora.tmx import TmxFile
from t2t_ext.errors import UserError
from t2t_ext.io import files

LINES = [f"Zeile {i} äöü".encode() for i in range(2000)]
TEXT = b"".join(line + b"\n" for line in LINES)
PACKED = {
    "gz": gzip.compress(TEXT[:9000]) + gzip.compress(TEXT[9000:]),
    "bz2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "zst": zstandard.compress(TEXT[:9000]) + zstandard.compress(TEXT[9000:]),
}
PZSTD = b"\x50\x2a\x4d\x18\x04\0\0\0" + len(PACKED["zst"]).to_bytes(4, "little") + PACKED["zst"]


def file(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(source, strict=True):
    report = ReadReport(strict=strict)
    found = list(source.read(report))
    assert source.count() == len(found) + sum(report.drops.values())
    return found


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_files_are_told_by_their_content(tmp_path, kind):
    assert list(read_lines(file(tmp_path / "no_ending", PACKED[kind]))) == LINES


def test_files_of_pzstd_begin_with_their_size(tmp_path):
    assert list(read_lines(file(tmp_path / "x.zst", PZSTD))) == LINES


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_compressed_files(tmp_path, kind, damage):
    content = PACKED[kind]
    middle = len(content) // 2
    content = content[:middle] if damage == "cut" else content[:middle] + b"#+#+#" + content[middle + 5 :]
    path = file(tmp_path / f"x.{kind}", content)
    with pytest.raises(UserError, match=rf"x\.{kind} is a damaged or incomplete \w+ file \(.+\); get it again"):
        list(read_lines(path))


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_what_expands_beyond_reason_is_refused(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(compression, "MOST_UNCHECKED_BYTES", 1 << 20)
    monkeypatch.setattr(compression, "MOST_EXPANSION", 200)
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}[kind]
    path = file(tmp_path / "bomb", pack(b"\n" * (1 << 23)))
    with pytest.raises(UserError, match="bomb expands to more than 200 times its size"):
        list(read_lines(path))
    monkeypatch.setattr(compression, "MOST_UNCHECKED_BYTES", 1 << 30)
    assert count_lines(path) == 1 << 23
    monkeypatch.setattr(compression, "MOST_UNCHECKED_LINES", 1 << 20)  # a limit that concerns only empty lines
    with pytest.raises(UserError, match="bomb expands to more than 200 times its size"):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["c.tar", "c.tgz", "c.tar.bz2", "c.tar.xz", "c.tar.zst", "c.zip"])
def test_members_of_archives(tmp_path, name):
    files = {"de-en/train.de": "eins\nzwei\n", "./de-en/train.en.gz": gzip.compress(b"one\ntwo\n")}
    if name.endswith("zip"):
        content = corpus_files.zipped(files)
    elif name.endswith("zst"):
        content = zstandard.compress(corpus_files.tar(files, "w"))
    else:
        content = corpus_files.tar(files, {"c.tar": "w", "c.tgz": "w:gz"}.get(name, f"w:{name[6:]}"))
    path = file(tmp_path / name, content)
    assert archives.member_names(path) == ["de-en/train.de", "de-en/train.en.gz"]
    problem = registry.problem(
        "translate_parallel_text",
        train_source=f"{path}:de-en/train.de", train_target=f"{path}:de-en/train.en.gz",
        dev_source=f"{path}:de-en/train.de", dev_target=f"{path}:de-en/train.en.gz",
    )  # fmt: skip
    problem.prepare(tmp_path)
    assert [tuple(sample.values()) for sample in problem.samples("dev", tmp_path)] == [("eins", "one"), ("zwei", "two")]
    assert set(problem.source_files("train", tmp_path)) == {path}
    with pytest.raises(UserError, match=r"holds no file 'de-en/trian.de'. Did you mean 'de-en/train.de'"):
        list(read_lines(f"{path}:de-en/trian.de"))
    for read in (count_lines, lambda archive: list(read_lines(archive))):
        with pytest.raises(UserError, match="is an archive; say which file in it is meant"):
            read(path)
    with pytest.raises(UserError, match="is an archive; say which file in it is meant"):
        registry.problem("translate_parallel_text", train_source=str(path)).prepare(tmp_path)


def hostile_tar(**entry):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("good.txt"))
        info = tarfile.TarInfo(entry.pop("name", "x"))
        for name, value in entry.items():
            setattr(info, name, value)
        archive.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"name": "../evil"}, "leads out"),
        ({"name": "/etc/evil"}, "leads out"),
        ({"name": "a/../../evil"}, "leads out"),
        ({"name": "..\\evil"}, "leads out"),
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "a link"),
        ({"type": tarfile.LNKTYPE, "linkname": "good.txt"}, "a link"),
        ({"type": tarfile.FIFOTYPE}, "neither a plain file nor a directory"),
        ({"type": tarfile.CHRTYPE}, "neither a plain file nor a directory"),
        ({"name": "good.txt"}, "twice"),
        ({"name": "good.txt/x"}, "has the name of its directory"),
    ],
)
def test_hostile_archives_are_refused_and_leave_nothing(tmp_path, entry, reason):
    path = file(tmp_path / "c.tgz", hostile_tar(**entry))
    with pytest.raises(UserError, match=reason):
        archives.unpacked_beside(path)
    assert os.listdir(tmp_path) == ["c.tgz"]


def test_hostile_zips(tmp_path, monkeypatch):
    def zip_with(name, content=b"", attributes=0):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = attributes, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
        return file(tmp_path / "c.zip", buffer.getvalue())

    with pytest.raises(UserError, match="leads out"):
        archives.unpacked_beside(zip_with("../x"))
    with pytest.raises(UserError, match="a link"):
        archives.unpacked_beside(zip_with("x", b"/etc/passwd", 0o120777 << 16))
    monkeypatch.setattr(compression, "MOST_UNCHECKED_BYTES", 1 << 20)
    monkeypatch.setattr(compression, "MOST_EXPANSION", 200)
    with pytest.raises(UserError, match="times its size, as no text does"):
        archives.unpacked_beside(zip_with("x", b"0" * (1 << 23)))
    monkeypatch.setattr(archives, "MOST_BYTES", 10)
    with pytest.raises(UserError, match="holds more than 10 bytes"):
        archives.unpacked_beside(zip_with("x", b"0123456789ab"))
    monkeypatch.setattr(archives, "MOST_MEMBERS", 0)
    with pytest.raises(UserError, match="has more than 0 members"):
        archives.unpacked_beside(zip_with("x"))
    with pytest.raises(UserError, match=r"c\.zip is a damaged, incomplete or unknown archive"):
        archives.unpacked_beside(file(tmp_path / "c.zip", b"PK\x03\x04 no archive"))
    assert os.listdir(tmp_path) == ["c.zip"]


def test_archives_are_unpacked_once_and_again_where_they_changed(tmp_path):
    path = file(tmp_path / "c.tgz", corpus_files.tar({"a": "1", "b": "2"}))
    killed = tmp_path / f".c.tgz.unpacked.tmp-{socket.gethostname()[:40]}_{2**22 + 1}_{files._process_table()}abcd"
    killed.mkdir()

    def wanted(name):
        return name == "a"

    target = archives.unpacked_beside(path, wanted)
    assert sorted(os.listdir(target)) == [".unpacked_from.json", "a"]
    assert sorted(os.listdir(tmp_path)) == ["c.tgz", "c.tgz.unpacked"]
    (target / "a").write_text("mine")
    assert (archives.unpacked_beside(path, wanted) / "a").read_text() == "mine"
    other = archives.unpacked_beside(path, lambda name: name == "b", "b")
    assert (other, (other / "b").read_text()) == (tmp_path / "c.tgz.b.unpacked", "2")
    assert (target / "a").read_text() == "mine"  # every selection of files has its own directory
    file(path, corpus_files.tar({"a": "11"}))
    assert (archives.unpacked_beside(path, wanted) / "a").read_text() == "11"


SGML = """<REFSET setid="t" srcLang="any" TRGLANG='English' >
<DOC docid=doc1 sysid=ref>
<title>A <b> title<script></title><hl><SEG ID=1> R&amp;D &lt;b&gt; &#228;&#x2019; &copy=1 AT&T a < b </SEG></hl>
<p>
<seg
 id = "2">two
lines of it</seg><seg id='3'></seg>
</p></DOC></REFSET>
"""


def test_real_sgml(tmp_path):
    segments = list(read_segments(file(tmp_path / "x.sgm", SGML)))
    assert [segment.text for segment in segments] == [
        "R&D <b> ä’ &copy=1 AT&T a < b", "two lines of it", "",
    ]  # fmt: skip
    assert [(s.document, s.system, s.id, s.kind, s.line) for s in segments] == [
        ("doc1", "ref", "1", "refset", 3), ("doc1", "ref", "2", "refset", 5), ("doc1", "ref", "3", "refset", 7),
    ]  # fmt: skip
    kept = next(read_segments(tmp_path / "x.sgm", resolve_entities=False)).text
    assert kept == "R&amp;D &lt;b&gt; &#228;&#x2019; &copy=1 AT&T a < b"


def test_markup_without_end_is_not_read_for_ever(tmp_path):
    path = file(tmp_path / "x.sgm", "<doc docid=a><seg id=1>text</seg>\n<!-- " + "x" * 3_000_000)
    with pytest.raises(UserError, match=r"line 2 .*after segment '1'\): a tag or comment of over 1,000,000 characters"):
        list(read_segments(path))


def test_a_segment_of_many_megabytes_is_read_in_linear_time(tmp_path):
    text = "word & <unk> " * 100_000
    (segment,) = read_segments(file(tmp_path / "x.sgm", f"<doc docid=a><seg id=1>{text}</seg></doc>"))
    assert segment.text == text.strip()


LIKE_MARKUP = {
    "so <?php echo 1> ends": "", "if a<b then c": "", "I </3 you": "", "a <!-- gone --> b": "", "a <!b> <? c": "",
    'x </B > <p class="y>z': "", "<![CDATA[1 < 2 &amp; </seg>]] ]]> &lt;3": "1 < 2 &amp; </seg>]]  <3",
    "<segment> <docs> </se": "", "<": "", "a <![foo[x]]> b": "", "</ seg> 1<": "",
}  # fmt: skip


@pytest.mark.parametrize("block_bytes", [1, 2, 7, 1 << 16])
def test_what_looks_like_markup_is_text_within_a_segment(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(markup, "_BLOCK_BYTES", block_bytes)
    rows = "".join(f"\n<!-- seg --><seg id={n}> {text}\n</SEG >" for n, text in enumerate(LIKE_MARKUP))
    path = file(tmp_path / "x.sgm", f"<?xml version='1.0'?><doc docid=a>{rows}</doc>")
    segments = list(read_segments(path))
    assert [segment.text for segment in segments] == [text or raw for raw, text in LIKE_MARKUP.items()]
    assert [segment.line for segment in segments] == [2 + 2 * n for n in range(len(LIKE_MARKUP))]
    file(path, f"<doc docid=a>{rows}\n<seg id=x>a <\nb\n<SEG id=y>")
    line = 2 * len(LIKE_MARKUP) + 4
    with pytest.raises(UserError, match=rf"line {line} \(document 'a', segment 'x'\): <seg> before .*</seg> is miss"):
        list(read_segments(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<doc docid=d>\n<seg id=1>a\n<seg id=2>b</seg></doc>", r"line 3 \(document 'd', segment '1'\): <seg> before"),
        ("<doc docid=d>\n<seg id=1>a\n</doc>", r"line 3 \(document 'd', segment '1'\): </doc> before"),
        ("<doc docid=d>\n<seg id=1>a</seg>\n<seg>b</seg></doc>", "line 3.*a segment without an id"),
        ("<doc docid=d><seg id=7>a</seg>\n<seg id=8>b", "line 2.*segment '8'.*ends within a segment"),
        ("<srcset>\n<doc docid=d><seg id=7>a</seg>\n", "line 3.*after segment '7'.*ends within <srcset>"),
        ("<doc docid=d></seg></doc>", "</seg> where no segment began"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><doc><seg id=1>&a;</seg></doc>', "defines entities of its own"),
        ('<?xml version="1.0"?>\n<!ENTITY a "b"><doc><seg id=1>&a;</seg></doc>', "defines entities of its own"),
        (b"<doc docid=d>\n<seg id=1>\xff\xfe\xfd</seg></doc>", "line 2: not UTF-8, and the file declares no encoding"),
        (b'<?xml version="1.0" encoding="utf-8"?><doc docid=d>\n<seg id=1>\xff</seg></doc>', "line 2.*not utf-8"),
        (b'<?xml version="1.0" encoding="klingon"?><doc>', "declares the encoding 'klingon'"),
        (b"<doc docid=d>\n<seg id=1>\0</seg></doc>", "a NUL character"),
        (
            "<doc docid=d>\n<seg id=1>a</seg>\n<![foo[x]]></doc>",
            r"line 3 \(document 'd', after segment '1'\): markup that is none",
        ),
    ],
)
def test_damaged_markup_is_named_by_line_and_segment(tmp_path, content, message):
    path = file(tmp_path / "x.sgm", content)
    with pytest.raises(UserError, match=rf"x\.sgm.*{message}"):
        list(read_segments(path))


@pytest.mark.parametrize("encoding", ["gb18030", "big5hkscs"])
def test_chinese_encodings(tmp_path, encoding):
    text = (
        "这个国家的经济发展对我们来说很重要，他们还没有开会。"
        if encoding == "gb18030"
        else "這個國家的經濟發展對我們來說很重要，他們還沒有開會。"
    )
    for declared in ("", f'<?xml version="1.0" encoding="{encoding[:4].replace("gb18", "gb2312")}"?>\n'):
        content = f"{declared}<doc docid=a><seg id=1>{text}</seg></doc>".encode(encoding)
        path = file(tmp_path / "x.sgm", content)
        assert [segment.text for segment in read_segments(path, charsets.CHINESE)] == [text]
    plain = PairFiles(file(tmp_path / "a.zh", f"{text}\n".encode(encoding)), file(tmp_path / "a.en", "x\n"),
                      encodings=charsets.CHINESE)  # fmt: skip
    assert rows(plain) == [(text, "x")]


@pytest.mark.parametrize(("language", "encoding"), [("zh", "gb18030"), ("zh-Hant", "big5hkscs"), ("zh", "utf-8")])
@pytest.mark.parametrize("numbers", [range(1), range(3), range(40)])
def test_encodings_of_short_texts(tmp_path, language, encoding, numbers):
    text = "".join(corpus_files.sentence(language, number) + "\n" for number in numbers)
    assert charsets.encoding_of(file(tmp_path / "x", text.encode(encoding)), charsets.CHINESE) == encoding


@pytest.mark.parametrize("block_bytes", [3, 1 << 16])
def test_a_file_that_ends_within_a_character_is_named_with_its_last_line(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(charsets, "_HEAD_BYTES", block_bytes)
    monkeypatch.setattr(charsets, "_BLOCK_BYTES", block_bytes)
    path = file(tmp_path / "x", b"a\nb\n\xe2\x82")
    with pytest.raises(UserError, match=r"x, line 3: not UTF-8"):
        charsets.encoding_of(path)
    with pytest.raises(UserError, match=r"x, line 2: not UTF-8"):  # lines in blocks that were read before count, too
        charsets.encoding_of(file(path, b"a\n\xe2\n\n\n"))


def test_references_are_aligned_by_document_and_id(tmp_path):
    source = file(tmp_path / "src.sgm", corpus_files.sgml("zh", "srcset"))
    several = file(tmp_path / "ref.sgm", corpus_files.sgml("en", "refset", ("A", "B")))
    one = file(tmp_path / "ref3.sgm", corpus_files.sgml("en", "refset", ("C",)))
    files = SegmentFiles(source, (several, one))
    assert files.translations() == 3
    assert rows(files)[4] == (
        corpus_files.sentence("zh", 4), *(f"{corpus_files.sentence('en', 4)} ({s})" for s in "ABC"),
    )  # fmt: skip
    assert len(rows(SegmentFiles(source, (several, one), separate=True))) == 18
    with pytest.raises(UserError, match=r"3 translation.*where 4 are needed"):
        rows(SegmentFiles(source, (several, one), references=4))
    dev = registry.problem(
        "translate_parallel_text", train_source=str(source), train_target=str(one),
        dev_source=str(source), dev_target=str(several),
    )  # fmt: skip
    assert dev.multiple_references
    assert len(next(dev.samples("dev", tmp_path))["targets"]) == 2


WMT_XML = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="newstest"><collection id="general"><doc origlang="en" id="news.1">
<src lang="en"><p>
<seg id="1">One.</seg>
<seg id="2">Two.</seg>
</p></src>
<ref lang="de" translator="A"><p>
<seg id="1">Eins.</seg>
<seg id="2">Zwei.</seg>
</p></ref>
<ref lang="de" translator="B"><p><seg id="1">1.</seg><seg id="2">2.</seg></p></ref>
<hyp system="S" language="de"><p><seg id="1">Ein.</seg><seg id="2">Zwo.</seg></p></hyp>
</doc></collection></dataset>
"""


def test_source_and_references_in_one_file(tmp_path):
    path = file(tmp_path / "newstest.xml", WMT_XML.replace("\n", "\r\n"))
    segments = list(read_segments(path))
    assert [(s.kind, s.system) for s in segments[::2]] == [
        ("srcset", ""), ("refset", "A"), ("refset", "B"), ("tstset", "S"),
    ]  # fmt: skip
    files = formats.pair_source(path, (path,), split="dev")
    assert rows(files) == [("One.", "Eins.", "1."), ("Two.", "Zwei.", "2.")]


def test_segments_that_do_not_match(tmp_path):
    source = file(tmp_path / "src.sgm", corpus_files.sgml("zh", "srcset"))
    target = file(tmp_path / "ref.sgm", corpus_files.sgml("en", "refset").replace(b"<seg id=2>", b"<seg id=9>", 1))
    with pytest.raises(UserError, match=r"ref\.sgm, line 9: segment '9' of document 'AFC0' is not in .*src\.sgm"):
        rows(SegmentFiles(source, (target,)))
    report = ReadReport()
    assert len(list(SegmentFiles(source, (target,)).read(report))) == 5
    assert dict(report.drops) == {"extra_segment": 1, "misaligned_segment": 1}
    assert report.first["misaligned_segment"] == f"{source}:9"
    assert report.explanations["misaligned_segment"].startswith("segment '2' of document 'AFC0' has no translation")


def test_segments_without_a_number_are_counted_in_one_split(tmp_path):
    source = corpus_files.sgml("zh", "srcset").replace(b"<seg id=3>", b"<seg id=2>", 1)
    target = corpus_files.sgml("en", "refset").replace(b"<seg id=2>", b"<seg id=9>", 1)
    files = SegmentFiles(file(tmp_path / "src.sgm", source), (file(tmp_path / "ref.sgm", target),))
    whole, *parts = ReadReport(), ReadReport(), ReadReport()
    assert len(list(files.read(whole))) == 4
    read = [files.read(parts[0], {1, 4}.__contains__), files.read(parts[1], {2, 3, 5}.__contains__)]
    assert sum(len(list(pairs)) for pairs in read) == 4
    assert dict(whole.drops) == {"duplicate_segment": 1, "extra_segment": 2, "misaligned_segment": 1}
    assert parts[0].drops + parts[1].drops == whole.drops


def test_titles_and_descriptions_are_text_but_not_talk_numbers(tmp_path):
    paths = [tmp_path / "train.tags.de-en.de", tmp_path / "train.tags.de-en.en"]
    for path, language in zip(paths, ("de", "en"), strict=True):
        file(path, "\n".join(corpus_files.train_tags(language, 1, 2, translated=language == "en")) + "\n")
    assert formats.format_of(paths[0]) == formats.TAGGED_LINES
    found = rows(formats.pair_source(paths[0], (paths[1],), split="train"))
    assert [target for _, target in found] == [
        corpus_files.sentence("en", 900), f"TED Talk: {corpus_files.sentence('en', 950)}",
        *(f"{corpus_files.sentence('en', n)} " for n in (1, 2)),
    ]  # fmt: skip
    content = paths[0].read_bytes()
    file(paths[0], content.replace(b"<title>", b"<title>\xff"))
    report = ReadReport()
    assert len(list(TaggedLineFiles(*paths).read(report))) == 3
    assert report.first == {"invalid_utf8": f"{paths[0]}:5"}
    file(paths[0], content[:-20])
    assert len(rows(TaggedLineFiles(*paths))) == 4
    file(paths[0], content[: content.rstrip().rfind(b"\n") + 1])
    with pytest.raises(UserError, match=r"train.tags.de-en.de, its end and .*en, line 9 \(a sentence\)"):
        TaggedLineFiles(*paths).count()


def test_carriage_returns_of_tagged_lines_are_counted_in_one_split(tmp_path):
    """This also holds if dev lines are held out of the training text, whose files are read once for each split."""
    paths = [tmp_path / "train.tags.de-en.de", tmp_path / "train.tags.de-en.en"]
    for path, language in zip(paths, ("de", "en"), strict=True):
        lines = corpus_files.train_tags(language, 1, 3, translated=language == "en")
        path.write_bytes(codecs.BOM_UTF8 + "".join(f"{line}\r\n" for line in lines).encode())
    whole, train, dev = (ReadReport() for _ in range(3))
    source = TaggedLineFiles(*paths)
    every = [tuple(text.strip() for text in pair) for pair in source.read(whole)]
    held_out = [tuple(text.strip() for text in pair) for pair in source.read(dev, lambda number: number == 4)]
    list(source.read(train, lambda number: number != 4))
    assert held_out == [every[3]]
    assert train.notes + dev.notes == whole.notes
    assert dev.notes == {"carriage_returns": 2}


TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="de-AT"><seg>Ein <bpt i="1">&lt;b&gt;</bpt>Häus<hi>chen</hi><ept i="1">x</ept> &amp; mehr</seg></tuv>
<tuv xml:lang="EN_us"><seg>A small
house</seg></tuv></tu>
<tu><tuv lang="de"><seg>nur deutsch</seg></tuv><tuv lang="den"><seg>Slavey</seg></tuv></tu>
<tu><tuv lang="en"><seg>two</seg></tuv><tuv lang="de"><seg>zwei</seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_translation_memories(tmp_path, encoding):
    path = file(tmp_path / "x.tmx.xz", lzma.compress(TMX.format(encoding=encoding).encode(encoding)))
    assert formats.format_of(path) == formats.TMX
    found = rows(TmxFile(path, "de", "en"), strict=False)
    assert found == [("Ein Häuschen & mehr", "A small house"), ("zwei", "two")]
    with pytest.raises(UserError, match=r"line 7: the unit has no text in 'en'"):
        rows(TmxFile(path, "de", "en"))
    with pytest.raises(UserError, match="no text in both 'fr' and 'en'; its languages: de"):
        TmxFile(path, "fr", "en").count()
    with pytest.raises(UserError, match="say which"):
        registry.problem("translate_parallel_text", train_source=str(path)).prepare(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</seg></tuv></tu>\n</body></tmx>", "", r"line 9, unit 3: damaged or incomplete TMX"),
        ("&amp; mehr", "& mehr", r"line 4, unit 1: damaged or incomplete TMX"),
        ('encoding="utf-8"', 'encoding="no-such"', r"x\.tmx declares an encoding .*no-such.*convert it to UTF-8"),
        ('encoding="utf-8"', 'encoding="gb18030"', r"x\.tmx declares an encoding .*convert it to UTF-8"),
        ('SYSTEM "tmx14.dtd"', '[<!ENTITY a "b">]', "defines entities of its own"),
        ('SYSTEM "tmx14.dtd"', '[<!ENTITY a SYSTEM "/etc/passwd">]', "defines entities of its own"),
    ],
)
def test_damaged_translation_memories(tmp_path, old, new, message):
    content = TMX.format(encoding="utf-8")
    assert old in content
    path = file(tmp_path / "x.tmx", content.replace(old, new))
    with pytest.raises(UserError, match=message):
        list(TmxFile(path, "de", "en").read(ReadReport()))


def test_translation_memories_with_a_namespace(tmp_path):
    content = TMX.format(encoding="utf-8").replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')
    found = rows(TmxFile(file(tmp_path / "x.tmx", content), "de", "en"), strict=False)
    assert found == [("Ein Häuschen & mehr", "A small house"), ("zwei", "two")]


@pytest.mark.parametrize("languages", [("pt-BR", "pt"), ("pt", "pt-BR")])
def test_a_language_is_not_the_dialect_of_the_other_side(tmp_path, languages):
    texts = {"pt-BR": "ônibus", "pt": "autocarro", "en": "bus"}
    units = ("pt-BR", "pt", "en"), ("pt-BR", "en"), ("en", "pt-PT", "pt-BR")
    tuvs = ["".join(f'<tuv xml:lang="{tag}"><seg>{texts.get(tag, tag)}</seg></tuv>' for tag in unit) for unit in units]
    body = "".join(f"<tu>{each}</tu>" for each in tuvs)
    path = file(tmp_path / "x.tmx", f'<tmx version="1.4"><header/><body>{body}</body></tmx>')
    turned = 1 if languages[0] == "pt-BR" else -1
    expected = [("ônibus", "autocarro"), ("ônibus", "pt-PT")]
    assert rows(TmxFile(path, *languages), strict=False) == [pair[::turned] for pair in expected]
    found = rows(TmxFile(path, "en", "pt"), strict=False)
    assert found == [("bus", "autocarro"), ("bus", "ônibus"), ("bus", "pt-PT")]


def test_columns_of_tab_separated_files(tmp_path):
    path = file(tmp_path / "x.tsv", "0.9\tein\tx\tone\n0.8\tzwei\tx\ttwo\n1\tdrei\n")
    problem = registry.problem("translate_parallel_text", train_source=str(path), dev_source=str(path), columns="2,4")
    assert [tuple(sample.values()) for sample in problem.samples("train", tmp_path)] == [
        ("ein", "one"),
        ("zwei", "two"),
    ]
    assert problem.reading.first == {"wrong_columns": f"{path}:3"}
    assert problem.options["columns"] == "2,4"
    for wrong in ("2", "0,1", "a,b,c", "1,b", "1,1"):
        with pytest.raises(UserError, match="such as columns=1,2"):
            registry.problem("translate_parallel_text", train_source=str(path), columns=wrong)


def test_formats_that_do_not_go_together(tmp_path):
    plain, marked = file(tmp_path / "a.txt", "a\n"), file(tmp_path / "b.sgm", SGML)
    with pytest.raises(UserError, match=r"a\.txt is plain text, but .*b\.sgm is marked up"):
        formats.pair_source(plain, (marked,), split="dev")
    with pytest.raises(UserError, match="its translation is in another file: --dev_target=FILE"):
        formats.pair_source(marked, split="dev")
    memory = file(tmp_path / "m.tmx", TMX.format(encoding="utf-8"))
    with pytest.raises(UserError, match="leave out --train_target"):
        formats.pair_source(memory, (memory,), split="train", languages=("de", "en"))


def test_a_document_type_is_enough_to_tell_markup_by(tmp_path):
    defined = file(tmp_path / "a.sgm", f'<!DOCTYPE srcset [<!ENTITY a "b">]>\n{SGML}')
    assert formats.format_of(defined) == formats.SEGMENTS
    with pytest.raises(UserError, match="defines entities of its own"):
        rows(formats.pair_source(defined, (defined,), split="dev"))


@pytest.mark.parametrize("name", ["hex", "undefined", "no-such"])
def test_encodings_that_are_none_of_text(tmp_path, name):
    path = file(tmp_path / "x.tsv", "a\tb\n" * 9)
    with pytest.raises(UserError, match=f"'{name}' is not known. Known are gb18030"):
        registry.problem("translate_parallel_text", train_source=str(path), encodings=f"gb18030,{name}")
    declared = file(tmp_path / "x.sgm", f'<?xml version="1.0" encoding="{name}"?>\n{SGML}')
    with pytest.raises(UserError, match=f"declares the encoding '{name}', which is not known"):
        rows(formats.pair_source(declared, (declared,), split="dev"))


def test_spaces_after_commas_are_no_part_of_names(tmp_path):
    one, other = file(tmp_path / "1.tsv", "a\tb\n"), file(tmp_path / "2.tsv", "c\td\n")
    problem = registry.problem("translate_parallel_text", train_source=f"{one}, {other}", dev_source=str(one))
    assert [path for files in problem.pair_files("train", tmp_path) for path in files.paths] == [one, other]


def test_options_become_what_the_constructor_declares(tmp_path):
    path = file(tmp_path / "x.tsv", "a\tb\n" * 9)
    problem = registry.problem("translate_parallel_text", train_source=str(path), dev_lines="3")
    assert problem.count("dev", tmp_path) == 3
    assert json.loads(json.dumps(dict(problem.options)))["dev_lines"] == 3
    with pytest.raises(UserError, match="takes a whole number as dev_lines, not 'many'"):
        registry.problem("translate_parallel_text", train_source=str(path), dev_lines="many")
