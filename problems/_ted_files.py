"""Finds the raw files of the IWSLT problems."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from t2t_ext.data.corpora import archives, compression, download
from t2t_ext.data.corpora.readers import PairFiles, PairSource
from t2t_ext.data.corpora.segments import SegmentFiles, TaggedLineFiles
from t2t_ext.errors import UserError
from t2t_ext.problem import TRAIN

_DEEPEST = 10  # folders within archives within archives
_MOST_FOLDERS = 100_000
_REPLACEMENTS = (("’", "'"),)  # only in evaluation sets, as in the widely used recipe
_CAMPAIGNS = ("IWSLT14", "IWSLT15")


@dataclasses.dataclass(frozen=True)
class PlainFiles:
    """Line-aligned files ``STEM.LANGUAGE``, plain or compressed (``.gz`` and the like), one pair per split.

    Attributes:
      directory: Where they are.
      pair: Source and target language, the endings of the names.
      stems: Split -> the name of its files without the language.
      url: The directory from which missing files can be downloaded; "" if they cannot.
      sha256: URL -> the SHA-256 of the file there.
    """

    directory: pathlib.Path
    pair: tuple[str, str]
    stems: Mapping[str, str]
    url: str = ""
    sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def sources(self, split: str) -> tuple[PairSource, ...]:
        """Returns the two files of a split, whether they exist or not."""
        return (PairFiles.aligned(self._path(split, language) for language in self.pair),)

    def prepare(self, problem: str, advice: str) -> None:
        """Downloads missing files if there is a URL; messages name the problem and give the advice.

        Raises:
          UserError: Files are missing and there is no URL, or the download failed.
        """
        paths = [self._path(split, language) for split in self.stems for language in self.pair]
        missing = [path for path in paths if not path.is_file()]
        what = (
            f"{problem} is made from these files in {self.directory} (plain, .gz, .bz2, .xz or .zst): "
            f"{', '.join(path.name for path in paths)}."
        )
        if missing:
            what += f" Not there: {', '.join(path.name for path in missing)}."
        if missing and not self.url:
            raise UserError(f"{what} {advice}")
        for path in paths:
            if self.url:
                try:
                    url = self.url + path.name
                    download.fetch(url, path, self.sha256.get(url))
                except UserError as error:
                    raise UserError(f"{what} {error} {advice}") from error

    @property
    def has_train(self) -> bool:
        """Whether both training files exist."""
        return all(self._path(TRAIN, language).is_file() for language in self.pair)

    def _path(self, split: str, language: str) -> pathlib.Path:
        path = self.directory / f"{self.stems[split]}.{language}"
        return compression.with_suffix_of_file(path) or path


@dataclasses.dataclass(frozen=True)
class TedFiles:
    """WIT3's files of two languages: training text with tags, evaluation sets as XML; unpacked or in archives.

    Attributes:
      directory: Where they are: directly, in folders below, or in archives.
      pair: Source and target language.
      campaign: The beginning of the names of the evaluation sets, such as ``IWSLT14``.
      releases: WIT3's releases that contain them, such as ``2014-01``.
      sets: Split -> its evaluation sets; without ``dev`` if that is taken from the training text.
      url: Where the language pair's archive can be downloaded; "" if it cannot.
      resolve_entities: Whether ``&amp;`` becomes ``&``, in the training text and in the evaluation sets.
    """

    directory: pathlib.Path
    pair: tuple[str, str]
    campaign: str
    releases: tuple[str, ...]
    sets: Mapping[str, tuple[str, ...]]
    url: str = ""
    resolve_entities: bool = True

    def sources(self, split: str) -> tuple[PairSource, ...]:
        """Returns the files of a split; a missing file is returned under the name that it should have."""
        found = self._found()
        if split == TRAIN:
            return (TaggedLineFiles(*self._training_paths(found), resolve_entities=self.resolve_entities),)
        return tuple(
            SegmentFiles(
                self._set_path(found, name, self.pair[0]),
                (self._set_path(found, name, self.pair[1]),),
                replacements=_REPLACEMENTS,
                resolve_entities=self.resolve_entities,
            )
            for name in self.sets[split]
        )

    def prepare(self, problem: str, advice: str) -> None:
        """Unpacks archives, and downloads the language pair's archive if files are still missing.

        Raises:
          UserError: Files are missing and cannot be downloaded.
        """
        self._unpack()
        missing = self._missing()
        if missing and self.url:
            try:
                download.fetch(self.url, self.directory / f"{'-'.join(self.pair)}.tgz")
            except UserError as error:
                raise UserError(f"{self._missing_message(problem, missing, advice)} {error}") from error
            self._unpack()
            missing = self._missing()
        if missing:
            raise UserError(self._missing_message(problem, missing, advice))

    def _paths(self) -> list[pathlib.Path]:
        return [path for split in (TRAIN, *self.sets) for files in self.sources(split) for path in files.paths]

    def _missing(self) -> list[str]:
        return [path.name for path in self._paths() if not path.is_file()]

    def _missing_message(self, problem: str, missing: Sequence[str], advice: str) -> str:
        pair = "-".join(self.pair)
        packed = [f"{pair}.tgz", *(f"{release}.tgz" for release in self.releases)]
        return (
            f"{problem} is made from WIT3's files in {self.directory} or folders below it; not there: "
            f"{', '.join(missing)}. {advice} Archives ({', '.join(packed)}) are unpacked where they lie."
        )

    def _unpack(self) -> None:
        """Unpacks the archives that may hold needed files, unless all files are there without them."""
        if all(path.is_file() and archives.UNPACKED not in str(path) for path in self._paths()):
            return
        wanted, pair = self._wanted, "-".join(sorted(self.pair))

        def is_wanted(member: str) -> bool:
            return bool(wanted.fullmatch(member.rsplit("/", 1)[-1]))

        for _ in range(3):  # WIT3's releases are archives of archives
            for name, paths in self._found().items():
                if archives.is_archive(name):
                    for path in paths:
                        archives.unpacked_beside(path, is_wanted, pair)

    @property
    def _orders(self) -> tuple[str, str]:
        """The two names of the language pair: WIT3 has a folder for each direction, with the same talks."""
        return "-".join(self.pair), "-".join(reversed(self.pair))

    @property
    def _wanted(self) -> re.Pattern[str]:
        """The pattern that the names of all needed files and archives match."""
        orders, languages = "|".join(self._orders), "|".join(self.pair)
        packed = "|".join(map(re.escape, (*self._orders, *self.releases)))
        compressed, packing = ("|".join(map(re.escape, some)) for some in (compression.SUFFIXES, archives.ENDINGS))
        return re.compile(
            rf"train\.tags\.({orders})\.({languages})({compressed})"
            rf"|IWSLT\d\d\.\w+\.\w+\.({orders})\.({languages})\.xml({compressed})"
            rf"|({packed})({packing})"
        )

    def _found(self) -> dict[str, list[pathlib.Path]]:
        """Returns the paths of useful files: name without compression suffix -> paths, the least nested first.

        Raises:
          UserError: There are too many folders to search.
        """
        found: dict[str, list[pathlib.Path]] = {}
        wanted, depth = self._wanted, len(self.directory.parts)
        for searched, (folder, folders, names) in enumerate(os.walk(self.directory, followlinks=True)):
            if searched > _MOST_FOLDERS:
                raise UserError(
                    f"There are more than {_MOST_FOLDERS:,} folders below {self.directory}. Put the files of IWSLT "
                    "into a folder of their own and name that one: --tmp_dir=DIR."
                )
            too_deep = len(pathlib.Path(folder).parts) - depth >= _DEEPEST
            folders[:] = [] if too_deep else sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if match := wanted.fullmatch(name):
                    ending = next(filter(None, (match[3], match[6])), "")
                    found.setdefault(name.removesuffix(ending), []).append(pathlib.Path(folder, name))
        return {name: sorted(paths, key=lambda path: (len(path.parts), path)) for name, paths in found.items()}

    def _training_paths(self, found: Mapping[str, list[pathlib.Path]]) -> tuple[pathlib.Path, pathlib.Path]:
        """Returns the two sides of the training text, both from one direction: the two directions' lines differ."""
        named = [[f"train.tags.{order}.{language}" for language in self.pair] for order in self._orders]
        names = next((names for names in named if found.keys() >= set(names)), named[0])
        source, target = (self._only(found, name) for name in names)
        return source, target

    def _set_path(self, found: Mapping[str, list[pathlib.Path]], name: str, language: str) -> pathlib.Path:
        """Returns one side of an evaluation set; its name may have either direction and any campaign."""
        campaigns = (self.campaign, *(campaign for campaign in _CAMPAIGNS if campaign != self.campaign))
        names = [f"{c}.{name}.{order}.{language}.xml" for c in campaigns for order in self._orders]
        return self._only(found, next((name for name in names if name in found), names[0]))

    def _only(self, found: Mapping[str, list[pathlib.Path]], name: str) -> pathlib.Path:
        paths = found.get(name, [])
        if len({path.stat().st_size for path in paths}) > 1 and len({path.suffix for path in paths}) == 1:
            raise UserError(f"These files of the same name differ; keep one of them: {', '.join(map(str, paths))}.")
        return paths[0] if paths else self.directory / name
