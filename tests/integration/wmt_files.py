"""Makes tiny files in the layouts of statmt.org, Stanford, tensor2tensor and fairseq, to test the WMT problems."""

import gzip
import io
import pathlib
import tarfile
import zipfile

WORDS = {
    "en": ("house", "green", "tree", "light", "river", "stone", "bird"),
    "de": ("Haus", "grün", "Baum", "Licht", "Fluss", "Stein", "Vogel"),
    "fr": ("maison", "vert", "arbre", "lumière", "rivière", "pierre", "oiseau"),
    "ro": ("casă", "verde", "copac", "lumină", "râu", "piatră", "pasăre"),
    "ru": ("дом", "зелёный", "дерево", "свет", "река", "камень", "птица"),
}
TRAIN = {  # problem -> names of training files without the language, relative to --tmp_dir
    "ende_wmt14": ("training/europarl-v7.de-en", "commoncrawl.de-en", "training/news-commentary-v9.de-en"),
    "enfr_wmt14": (
        "training/europarl-v7.fr-en",
        "commoncrawl.fr-en",
        "un/undoc.2000.fr-en",
        "training/news-commentary-v9.fr-en",
        "giga-fren.release2.fixed",
    ),
    "enro_wmt16": ("training-parallel-ep-v8/europarl-v8.ro-en", "SETIMES.en-ro", "corpus.bt.en-ro"),
    "ruen_wmt18": (
        "paracrawl-release1.en-ru.zipporah0-dedup-clean",
        "commoncrawl.ru-en",
        "training-parallel-nc-v13/news-commentary-v13.ru-en",
        "corpus.en_ru.1m",
    ),
}
PAIRS = 30


def lines(language, corpus, count=PAIRS, suffix=""):
    """Returns sentences that all differ, also between corpora; those of two languages are word-by-word translations."""
    words = WORDS[language]
    return [f"{words[n % 7]} {words[(n // 7 + len(corpus)) % 7]}, {corpus} {n}.{suffix}" for n in range(count)]


def text(rows):
    return "".join(f"{row}\n" for row in rows)


def sgml(kind, rows, language):
    """Returns an evaluation set in WMT's SGML: two documents, the first one with unquoted segment ids."""
    half = len(rows) // 2
    head = f'<{kind} setid="newstest" srclang="any"' + (f' trglang="{language}">' if kind == "refset" else ">")
    documents = []
    for name, part, quote in (("a", rows[:half], ""), ("b", rows[half:], '"')):
        segments = "".join(
            f"<seg id={quote}{number}{quote}>{row.replace('&', '&amp;')}</seg>\n" for number, row in enumerate(part, 1)
        )
        documents.append(f'<doc sysid="ref" docid="{name}" genre="news" origlang="en">\n<p>\n{segments}</p>\n</doc>\n')
    return f"{head}\n{''.join(documents)}</{kind}>\n"


def evaluation_sets(problem):
    """Returns {name: content} of the dev and test files that statmt.org publishes for a problem."""
    source, target = problem[:2], problem[2:4]
    foreign = source if target == "en" else target
    sets = {
        "ende_wmt14": (("dev/newstest2012", ""), ("dev/newstest2013", ""), ("test-full/newstest2014", f"{foreign}en")),
        "enfr_wmt14": (("dev/newstest2012", ""), ("dev/newstest2013", ""), ("test-full/newstest2014", f"{foreign}en")),
        "enro_wmt16": (("dev/newsdev2016", "enro"), ("test/newstest2016", "enro")),
        "ruen_wmt18": (("dev/newstest2017", "ruen"), ("test/newstest2018", "ruen")),
    }[problem]
    files = {}
    for name, pair in sets:
        for kind, part, language in (("srcset", "src", source), ("refset", "ref", target)):
            rows = lines(language, name[-4:], 6, " A & B")
            if pair:
                files[f"{name}-{pair}-{part}.{language}.sgm"] = sgml(kind, rows, language)
            else:
                files[f"{name}.{language}"] = text(rows)
    return files


def training_files(problem):
    """Returns {name: content} of the training files of a problem."""
    languages = (problem[:2], problem[2:4])
    return {
        f"{stem}.{language}": text(lines(language, pathlib.PurePath(stem).name[:9]))
        for stem in TRAIN[problem]
        for language in languages
    }


def write(directory, files, *, compress=()):
    """Writes files into a directory; gzips those whose names have one of the given endings."""
    for name, content in files.items():
        path = pathlib.Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(tuple(compress)) and compress:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(content.encode()))
        else:
            path.write_text(content, encoding="utf-8")


def write_tar(path, files):
    """Writes files, text or bytes, into a tar archive, which is gzipped unless its name ends in .tar."""
    with tarfile.open(path, "w" if str(path).endswith(".tar") else "w:gz") as archive:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def write_zip(path, files):
    """Writes files into a .zip archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
