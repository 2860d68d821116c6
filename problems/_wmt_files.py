"""Finds the files of WMT's corpora and test sets, in the layouts in which statmt.org and others publish them.

Files are looked for under ``--tmp_dir`` by their names in the archives, such as ``training/europarl-v7.de-en.de``, and
without the folder, plain or compressed. An archive in ``--tmp_dir`` is unpacked beside itself.
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
      name: Its name in the options ``weights`` and ``tags``.
      stems: Possible names of its files without the language; the first that exists is used.
      archives: What contains the files: an archive, the TMX file, or compressed files of both languages. The first one
        is downloaded.
      url: Where the first of ``archives`` is, without its name if it is several files.
      sha256: The SHA-256 of the download; empty if none is published.
      tmx: The name of a TMX file with the same content; empty if there is none.
      subset: Its name in tensorflow-datasets; empty if it is not there, or only after manual work.
      synthetic: Whether its source side, in the direction that is translated, was made by a machine.
      by_hand: Whether only the user can get it, not a download by this program.
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
    """A dev or test set; its name, such as ``newstest2014``, ends with the year."""

    name: str

    @property
    def is_sgml(self) -> bool:
        """Whether its files in the archive of all sets are SGML; up to 2013 they are plain text."""
        return int(self.name[-4:]) > 2013

    def files(self, foreign: str) -> dict[str, str]:
        """Returns its two files in the archive of all sets: language (the foreign one and ``en``) -> path."""
        if self.is_sgml:
            ends = {foreign: f"-{foreign}en-src.{foreign}.sgm", "en": f"-{foreign}en-ref.en.sgm"}
        else:
            ends = {language: f".{language}" for language in (foreign, "en")}
        return {language: f"dev/{self.name}{end}" for language, end in ends.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pack:
    """Files as published for a paper, an entry of ``wmt_files.toml``: tokenized, and some split into subwords.

    Subwords are joined to words (the model learns its own, or takes the pack's codes with ``--bpe_codes``).
    Stanford's ``##AT##-##AT##`` for the hyphens of compounds becomes Moses's ``@-@``, which the detokenizer knows.

    Attributes:
      train: Name of the training files without the language.
      tests: Name of a dev or test set -> name of its files without the language.
      validation: Name of the pack's own dev set; empty if the pack has the papers' dev sets.
      folders: Folders that the files may be in, under ``--tmp_dir``.
      archive: The archive that contains them.
      url: Where the archive, or the directory of files, is.
      downloadable: Whether each file can also be downloaded by itself from ``url``.
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
        """Returns the name of a split's files without the language; of dev and test, those of ``test_set``."""
        if split == "train":
            return self.train
        return self.validation if split == "dev" and self.validation else self.tests[test_set]


@dataclasses.dataclass(frozen=True)
class PackFiles(ChangedPairs):
    """Files of a pack, with subwords joined to words."""

    pack: Pack

    def change(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Returns a pair with subwords joined to words and hyphens of compounds in Moses's notation."""
        if self.pack.subwords:
            pair = tuple(_JOINER.sub("", text) for text in pair)
        return tuple(text.replace("##AT##-##AT##", "@-@") for text in pair) if self.pack.compounds else pair


def corpora(*names: str) -> tuple[Corpus, ...]:
    """Returns the training corpora with these names."""
    return tuple(Corpus(name=name, **_table()["corpora"][name]) for name in names)


def packs(**names: str) -> Mapping[str, Pack]:
    """Returns packs by layout; the arguments are layout=NAME, with a pack's name in ``wmt_files.toml``."""
    return types.MappingProxyType({layout: Pack(**_table()["packs"][name]) for layout, name in names.items()})


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(pathlib.Path(__file__).with_name("wmt_files.toml").read_text(encoding="utf-8"))


# Contains all sets from 2008 to 2018; the archives of single years contain the same ones under other names.
ALL_SETS = "https://data.statmt.org/wmt19/translation-task/dev.tgz"
_ALL_SETS_SHA256 = "7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7"
_SET_ARCHIVES = ("dev.tgz", "test-full.tgz", "test.tgz")


@dataclasses.dataclass(frozen=True)
class Download:
    """A file that can be downloaded: its URL, its name under ``--tmp_dir``, and its SHA-256 if known."""

    url: str
    name: str
    sha256: str | None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Files that are looked for.

    Attributes:
      choices: The sources of pairs that may be used, the best first.
      archives: The archives that contain them.
      url: Where they can be downloaded.
      downloads: What to download; empty if the user must do it by hand.
      note: See ``Corpus``.
    """

    choices: Sequence[PairSource]
    archives: Sequence[str]
    url: str
    downloads: Sequence[Download] = ()
    note: str = ""

    def found(self) -> PairSource | None:
        """Returns the first choice whose files all exist; None if there is none."""
        return next((choice for choice in self.choices if all(path.is_file() for path in choice.paths)), None)

    def expected(self) -> PairSource:
        """Returns the first choice whose files all exist, or else the preferred one."""
        return self.found() or self.choices[0]

    def missing(self) -> str:
        """Returns what is missing and where to get it, for a message; empty if nothing is missing."""
        if self.found():
            return ""
        usual = " and ".join(str(path) for path in self.choices[0].paths if not path.is_file())
        note = f"; {self.note}" if self.note else ""
        return f"{usual} (in {self.archives[0]}, {self.url}{note})"


def wanted_corpus(corpus: Corpus, tmp_dir: pathlib.Path, languages: tuple[str, str], foreign: str) -> Wanted:
    """Returns the files of a training corpus; ``languages`` are source and target of the pairs as they are read."""
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
    """Returns the files of a dev or test set: plain text or SGML, with names of either direction."""
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
    """Unpacks what this language pair needs from the archives of missing files, if these archives are there.

    An archive that was unpacked before is unpacked again if it has changed since.

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
    """Downloads those wanted files that are not there in any form, if they can be downloaded."""
    missing = [files for files in wanted if not files.found()]
    for file in dict.fromkeys(file for files in missing for file in files.downloads):
        download.fetch(file.url, tmp_dir / file.name, file.sha256)


def lacking(wanted: Iterable[Wanted]) -> str:
    """Returns what is missing and where to get it, for a message; empty if nothing is missing."""
    return "; ".join(filter(None, (files.missing() for files in wanted)))


def any_found(wanted: Sequence[Wanted], tmp_dir: pathlib.Path) -> bool:
    """Returns whether the files or an archive of any of the wanted items exist."""
    return any(files.found() or any((tmp_dir / each).is_file() for each in files.archives) for files in wanted)


def _places(tmp_dir: pathlib.Path, name: str, archive_names: Sequence[str], foreign: str) -> Iterator[pathlib.Path]:
    """Yields where a file may be: by its name in the archive or without the folder, also within unpacked archives.

    The name without the folder comes last in ``tmp_dir``, where another corpus may have put a file of that name.
    """
    bare = pathlib.PurePath(name).name
    yield tmp_dir / name
    for archive in archive_names:
        if (folder := _unpacked(tmp_dir, archive, foreign)).is_dir():
            yield folder / name
            yield folder / bare
    yield tmp_dir / bare


def _unpacked(tmp_dir: pathlib.Path, archive: str, foreign: str) -> pathlib.Path:
    return tmp_dir / f"{archive}.{foreign}{archives.UNPACKED}"


def _may_be_of(name: str, foreign: str) -> bool:
    """Returns whether a file of an archive may belong to this language pair: its name shows no other one."""
    pairs = _WITH_ENGLISH.findall(pathlib.PurePath(name).name)
    return not pairs or foreign in pairs


def compressed(path: pathlib.Path) -> pathlib.Path:
    """Returns the path with the compression suffix of the file that exists; unchanged if none does."""
    return compression.with_suffix_of_file(path) or path


def _paired(source: pathlib.Path, target: pathlib.Path) -> PairSource:
    """Returns the two files as a source of pairs; the SGML file with the translations may be the source."""
    if ".sgm" not in source.name:
        return PairFiles(source, target)
    if "-ref." in source.name:
        return ReversedPairs(SegmentFiles(target, (source,)))
    return SegmentFiles(source, (target,))


def _test_names(name: str, source: str, target: str) -> Iterator[tuple[str, str]]:
    """Yields the possible names of the two files of a set.

    Up to 2018 the sets are the same in both directions, so files of the other direction can be used as well.
    """
    there, back = f"{name}-{source}{target}", f"{name}-{target}{source}"
    yield f"{there}-src.{source}.sgm", f"{there}-ref.{target}.sgm"
    yield f"{back}-src.{source}.sgm", f"{back}-ref.{target}.sgm"
    yield f"{back}-ref.{source}.sgm", f"{back}-src.{target}.sgm"
    yield f"{there}-ref.{source}.sgm", f"{there}-src.{target}.sgm"
    yield f"{name}-src.{source}.sgm", f"{name}-ref.{target}.sgm"
    yield f"{name}.{source}", f"{name}.{target}"
