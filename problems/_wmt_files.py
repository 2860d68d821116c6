"""Finds the files of WMT's corpora and test sets, in the layouts in which statmt.org and others publish them.

Files are looked for under ``--tmp_dir`` by the names that they have in their archives, such as
``training/europarl-v7.de-en.de``, and without their folder, plain or compressed; an archive that lies there is unpacked
beside itself.
"""

import dataclasses
import functools
import pathlib
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from t2t_ext.data.corpora import archives, compression, download
from t2t_ext.data.corpora.readers import ChangedPairs, PairFiles, PairSource
from t2t_ext.data.corpora.segments import SegmentFiles
from t2t_ext.data.corpora.weighting import ReversedPairs

_JOINER = re.compile(r"@@ |@@$")
_WITH_ENGLISH = re.compile(r"[.-]([a-z]{2})-?en[.-]")
_TEST_FOLDERS = ("dev", "test-full", "", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """A training corpus, an entry of ``wmt_files.toml``.

    Attributes:
      name: What weights and tags call it.
      stems: Names of its files without the language, of which the first that is there is taken.
      archives: What the files come in, of which the first is the one that is downloaded: an archive, the TMX file, or
        compressed files of both languages.
      url: Where the first of ``archives`` is, without its name where it is several files.
      sha256: What it must have; empty where it is not published.
      tmx: The name of a TMX file that holds the same; empty where there is none.
      subset: What tensorflow-datasets calls it; empty where it has it not, or only after work by hand.
      synthetic: Whether one side was made by a machine, the source of the direction that is translated.
      by_hand: Whether only the user can get it.
      note: What else the user has to know to get it.
    """

    name: str
    stems: Sequence[str]
    archives: Sequence[str]
    url: str
    sha256: str = ""
    tmx: str = ""
    subset: str = ""
    synthetic: bool = False
    by_hand: bool = False
    note: str = ""


@dataclasses.dataclass(frozen=True)
class TestSet:
    """A dev or test set, called by its name such as ``newstest2014``, which ends with the year."""

    name: str

    @property
    def is_sgml(self) -> bool:
        """Whether its files in the archive of all sets are SGML; up to 2013 they are plain text."""
        return int(self.name[-4:]) > 2013

    def files(self, foreign: str) -> dict[str, str]:
        """Returns its files in the archive of all sets, by language, of English and a foreign language."""
        if self.is_sgml:
            ends = {foreign: f"-{foreign}en-src.{foreign}.sgm", "en": f"-{foreign}en-ref.en.sgm"}
        else:
            ends = {language: f".{language}" for language in (foreign, "en")}
        return {language: f"dev/{self.name}{end}" for language, end in ends.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pack:
    """Files as a paper gives them out, an entry of ``wmt_files.toml``: tokenized already, and some in subwords.

    Subwords are joined to words (the model learns its own, or takes the pack's codes with ``--bpe_codes``), and
    Stanford's ``##AT##-##AT##`` around the hyphens of compounds becomes Moses's ``@-@``, which the detokenizer knows.

    Attributes:
      train: Name of the training files without the language.
      tests: Names of the files of dev and test sets, by the sets' names.
      validation: Name of a dev set that the pack has instead; empty where it has the papers' own.
      folders: Folders that the files may be in, under ``--tmp_dir``.
      archive: What they come in.
      url: Where that is.
      downloadable: Whether the files themselves are there, each on its own.
      subwords: Whether words are split into subwords (``@@``).
      compounds: Whether hyphens of compounds are written ``##AT##-##AT##``.
      published: Number of training pairs.
    """

    train: str
    tests: Mapping[str, str]
    folders: Sequence[str]
    archive: str
    url: str
    downloadable: bool = False
    validation: str = ""
    subwords: bool = False
    compounds: bool = False
    published: int = 0

    def stem(self, split: str, test_set: str) -> str:
        """Returns the name of a split's files without the language; ``test_set`` is the set that is wanted of it."""
        if split == "train":
            return self.train
        return self.validation if split == "dev" and self.validation else self.tests[test_set]


@dataclasses.dataclass(frozen=True)
class PackFiles(ChangedPairs):
    """Files of a pack as words."""

    pack: Pack

    def change(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Returns a pair as words."""
        if self.pack.subwords:
            pair = tuple(_JOINER.sub("", text) for text in pair)
        return tuple(text.replace("##AT##-##AT##", "@-@") for text in pair) if self.pack.compounds else pair


def corpora(*names: str) -> tuple[Corpus, ...]:
    """Returns training corpora by their names."""
    return tuple(Corpus(name=name, **_table()["corpora"][name]) for name in names)


def packs(**names: str) -> Mapping[str, Pack]:
    """Returns packs by the layouts that are given for their names."""
    return types.MappingProxyType({layout: Pack(**_table()["packs"][name]) for layout, name in names.items()})


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(pathlib.Path(__file__).with_name("wmt_files.toml").read_text(encoding="utf-8"))


# Holds all sets of 2008 to 2018; the archives of the years hold the same ones under other names.
ALL_SETS = "https://data.statmt.org/wmt19/translation-task/dev.tgz"
_ALL_SETS_SHA256 = "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
_SET_ARCHIVES = ("dev.tgz", "test-full.tgz", "test.tgz")


@dataclasses.dataclass(frozen=True)
class Download:
    """A file that can be downloaded: where it is, what it is called under ``--tmp_dir``, its SHA-256 where known."""

    url: str
    name: str
    sha256: str | None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Files that are looked for.

    Attributes:
      choices: What serves, the best first; each a source of pairs.
      archives: The archives that hold them.
      url: Where they can be downloaded.
      downloads: What to download; nothing where it must be done by hand.
      note: See ``Corpus``.
    """

    choices: Sequence[PairSource]
    archives: Sequence[str]
    url: str
    downloads: Sequence[Download] = ()
    note: str = ""

    def found(self) -> PairSource | None:
        """Returns the first choice of which every file is there."""
        return next((choice for choice in self.choices if all(path.is_file() for path in choice.paths)), None)

    def expected(self) -> PairSource:
        """Returns the first choice that is there, or the usual one."""
        return self.found() or self.choices[0]

    def missing(self) -> str:
        """Returns what is missing and where to get it, for a message; empty where nothing is."""
        if self.found():
            return ""
        usual = " and ".join(str(path) for path in self.choices[0].paths if not path.is_file())
        note = f"; {self.note}" if self.note else ""
        return f"{usual} (in {self.archives[0]}, {self.url}{note})"


def wanted_corpus(corpus: Corpus, tmp_dir: pathlib.Path, languages: tuple[str, str], foreign: str) -> Wanted:
    """Returns the files of a training corpus; the languages are source and target of the pairs as they are read."""
    names = {"foreign": foreign, "source": languages[0], "target": languages[1], "language": "{language}"}
    archive_names = [archive.format(**names) for archive in corpus.archives]
    url = corpus.url.format(**names)
    choices: list[PairSource] = [
        PairFiles.aligned(compressed(pathlib.Path(f"{place}.{language}")) for language in languages)
        for stem in corpus.stems
        for place in _places(tmp_dir, stem.format(**names), archive_names, foreign)
    ]
    if corpus.tmx:
        from t2t_ext.data.corpora.tmx import TmxFile

        name = corpus.tmx.format(**names)
        choices += [TmxFile(compressed(place), *languages) for place in _places(tmp_dir, name, archive_names, foreign)]
    several = "{language}" in archive_names[0]
    files = [archive_names[0].format(language=language) for language in (languages if several else languages[:1])]
    downloads = [Download(f"{url}{name}" if several else url, name, corpus.sha256 or None) for name in files]
    return Wanted(choices, [*files, *archive_names[1:]], url, () if corpus.by_hand else downloads, corpus.note)


def wanted_test_set(test_set: TestSet, tmp_dir: pathlib.Path, languages: tuple[str, str], foreign: str) -> Wanted:
    """Returns the files of a dev or test set: plain text or SGML, whichever direction their names say."""
    names = [[test_set.files(foreign)[language] for language in languages]]
    for folder in _TEST_FOLDERS:
        for pair in _test_names(test_set.name, *languages):
            names.append([str(pathlib.PurePath(folder, name)) for name in pair])
    choices = [
        _paired(*map(compressed, places))
        for sides in names
        for places in zip(*(_places(tmp_dir, name, _SET_ARCHIVES, foreign) for name in sides), strict=True)
    ]
    archive = Download(ALL_SETS, _SET_ARCHIVES[0], _ALL_SETS_SHA256)
    return Wanted(choices, _SET_ARCHIVES, ALL_SETS, (archive,))


def unpack_archives(wanted: Sequence[Wanted], tmp_dir: pathlib.Path, foreign: str) -> None:
    """Unpacks the archives of files that are not there yet, where an archive is; of them what this language pair needs.

    Archives that were unpacked before are so again where they have changed since.

    Raises:
      UserError: An archive is damaged or unsafe.
    """
    missing = {archive for files in wanted if not files.found() for archive in files.archives}
    for archive in sorted({archive for files in wanted for archive in files.archives}):
        path = tmp_dir / archive
        is_wanted = archive in missing or _unpacked(tmp_dir, archive, foreign).is_dir()
        if is_wanted and archives.is_archive(path) and path.is_file():
            archives.unpacked(path, _unpacked(tmp_dir, archive, foreign), lambda name: _may_be_of(name, foreign))


def download_archives(wanted: Sequence[Wanted], tmp_dir: pathlib.Path) -> None:
    """Downloads what is not there in any form and can be downloaded."""
    missing = [files for files in wanted if not files.found()]
    for file in dict.fromkeys(file for files in missing for file in files.downloads):
        download.fetch(file.url, tmp_dir / file.name, file.sha256)


def lacking(wanted: Iterable[Wanted]) -> str:
    """Returns what is missing and where to get it, for a message; empty where nothing is."""
    return "; ".join(filter(None, (files.missing() for files in wanted)))


def any_found(wanted: Sequence[Wanted], tmp_dir: pathlib.Path) -> bool:
    """Returns whether files or archives of any of these are there."""
    return any(files.found() or any((tmp_dir / each).is_file() for each in files.archives) for files in wanted)


def _places(tmp_dir: pathlib.Path, name: str, archive_names: Sequence[str], foreign: str) -> Iterator[pathlib.Path]:
    """Yields where a file may be: under its name in the archive, without its folder, and in unpacked archives."""
    unpacked = (_unpacked(tmp_dir, archive, foreign) for archive in archive_names)
    for folder in (tmp_dir, *filter(pathlib.Path.is_dir, unpacked)):
        yield folder / name
        yield folder / pathlib.PurePath(name).name


def _unpacked(tmp_dir: pathlib.Path, archive: str, foreign: str) -> pathlib.Path:
    return tmp_dir / f"{archive}.{foreign}{archives.UNPACKED}"


def _may_be_of(name: str, foreign: str) -> bool:
    """Returns whether a file of an archive is not clearly one of another language pair."""
    pairs = _WITH_ENGLISH.findall(pathlib.PurePath(name).name)
    return not pairs or foreign in pairs


def compressed(path: pathlib.Path) -> pathlib.Path:
    """Returns the path with the ending of the compression that it is there with."""
    return compression.with_suffix_of_file(path) or path


def _paired(source: pathlib.Path, target: pathlib.Path) -> PairSource:
    """Returns the two files as a source of pairs; of SGML the one that is the translation may be the source."""
    if ".sgm" not in source.name:
        return PairFiles(source, target)
    if "-ref." in source.name:
        return ReversedPairs(SegmentFiles(target, (source,)))
    return SegmentFiles(source, (target,))


def _test_names(name: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yields names that the two files of a set may have.

    Up to 2018 the sets are the same in both directions, so that files of the other direction serve as well.
    """
    there, back = f"{name}-{source}{target}", f"{name}-{target}{source}"
    yield f"{there}-src.{source}.sgm", f"{there}-ref.{target}.sgm"
    yield f"{back}-src.{source}.sgm", f"{back}-ref.{target}.sgm"
    yield f"{back}-ref.{source}.sgm", f"{back}-src.{target}.sgm"
    yield f"{there}-ref.{source}.sgm", f"{there}-src.{target}.sgm"
    yield f"{name}-src.{source}.sgm", f"{name}-ref.{target}.sgm"
    yield f"{name}.{source}", f"{name}.{target}"
