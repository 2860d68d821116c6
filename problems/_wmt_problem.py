"""The base class of WMT's problems: finds the files of each layout and says how their text is prepared."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

from t2t_ext.config.problem_options import chosen, given
from t2t_ext.data.corpora import archives
from t2t_ext.data.corpora import weighting as corpora
from t2t_ext.data.corpora.readers import PairFiles, PairSource
from t2t_ext.data.corpora.weighting import CorpusSource
from t2t_ext.errors import UserError, suggest
from t2t_ext.problem import DEV, TEST, TRAIN, MixedTranslationProblem
from t2t_ext.problems import _wmt_files
from t2t_ext.problems._tfds_pairs import TfdsDataset, TfdsPairs
from t2t_ext.problems._wmt_files import Corpus, Pack, PackFiles, TestSet, Wanted

AUTO, TFDS, OFFICIAL = "auto", "tfds", "official"
_COMPOUND_SPLIT, _PLAIN_TOKENS = "multi_bleu_compound_split", "multi_bleu"
_TFDS_FOLDER = "tensorflow_datasets"
_CORPUS_NAMES = "names"


class WmtProblem(MixedTranslationProblem):
    """A translation task of WMT, with English on one side.

    Class attributes that define a task, in addition to those of ``Problem``:
      training_corpora: The training corpora.
      test_sets: Split -> its dev or test sets.
      packs: Layout -> the pack of files that others have prepared.
      default_layout: The layout if the user gives none.
      tfds_name: The data set of tensorflow-datasets whose train split has all the corpora; empty if there is none.
      tfds_splits: Name of a dev or test set -> the split of that data set that contains it.

    Options:
      layout: ``official``: statmt.org's files or archives under ``--tmp_dir``. ``tfds``: tensorflow-datasets downloads
        and prepares the data, except for dev and test sets that are in ``--tmp_dir`` (it would shuffle them).
        ``auto``: ``official`` if a training file or archive is there, otherwise ``tfds``. Or one of ``packs``, whose
        text is already tokenized, so that no text steps apply to it.
      weights: How often the pairs of a corpus occur, ``NAME:2,NAME:0.5``; the files of a corpus of weight 0 may be
        missing.
      tags: The first token of every source sentence of a corpus, ``NAME:<bt>``; ``names``: each corpus's own name.
      default_tag: The tag of dev and test sets and of text that is translated later.
      download: Whether to download missing files of ``layout=official`` (checked against SHA-256, resumable) or
        ``stanford``; ``auto`` then means ``official``.
      tfds_dir: Where tensorflow-datasets keeps its data; by default ``tensorflow_datasets`` in ``--tmp_dir``.
    """

    training_corpora: ClassVar[Sequence[Corpus]] = ()
    test_sets: ClassVar[Mapping[str, Sequence[TestSet]]] = {}
    packs: ClassVar[Mapping[str, Pack]] = {}
    default_layout: ClassVar[str] = AUTO
    tfds_name: ClassVar[str] = ""
    tfds_splits: ClassVar[Mapping[str, str]] = {}

    source_steps: Sequence[str] = ("moses_tokenize",)
    target_steps: Sequence[str] = ("moses_tokenize",)
    subwords = "subword_nmt"
    path_options = ("tfds_dir", "download")  # neither changes what is read

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        layout: str = "",
        weights: str = "",
        tags: str = "",
        default_tag: str = "",
        download: bool = False,
        tfds_dir: str = "",
    ) -> None:
        """Makes the problem; reads nothing yet."""
        names = [corpus.name for corpus in self.training_corpora]
        tag_of = corpora.named(tags, names, "tags") if tags != _CORPUS_NAMES else {each: f"<{each}>" for each in names}
        self._tag_of = {each: corpora.checked_tag(tag, "tags") for each, tag in tag_of.items()}
        self._weight_of = dict.fromkeys(names, 1.0) | {
            each: corpora.checked_weight(weight, "weights")
            for each, weight in corpora.named(weights, names, "weights").items()
        }
        used = [corpus for corpus in self.training_corpora if self._weight_of[corpus.name]]
        super().__init__(
            name=name,
            was_reversed=was_reversed,
            tags=[self._tag_of.get(corpus.name, "") for corpus in used],
            depends_on_direction=any(corpus.synthetic for corpus in used),
        )
        self._options = given(
            WmtProblem, layout=layout, weights=weights, tags=tags, default_tag=default_tag, download=download,
            tfds_dir=tfds_dir,
        )  # fmt: skip
        self.layout = chosen(
            self.base_name, "layout", layout or self.default_layout, (AUTO, TFDS, OFFICIAL, *self.packs)
        )
        self._used = tuple(used)
        self.default_tag = default_tag
        self._check_mixing()
        self._set_preparation()

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Unpacks, downloads or has tensorflow-datasets prepare the data, and checks that all files are there.

        Raises:
          UserError: Files are missing, or tensorflow-datasets failed.
        """
        place = pathlib.Path(tmp_dir).expanduser()
        problem, layout = self.base(), self._chosen_layout(place)
        if layout in self.packs:
            problem._prepare_pack(place, self.packs[layout])
            return
        # Every step may bring new files, so they are looked for again after it.
        read = [*problem._wanted(problem._by_files(layout), place), *problem._all_sets(place)]
        _wmt_files.unpack_archives(read, place, problem._foreign)
        if "download" in self._options:
            _wmt_files.download_archives(problem._wanted_files(place, layout), place)
            _wmt_files.unpack_archives(problem._wanted_files(place, layout), place, problem._foreign)
        lacking = _wmt_files.lacking(problem._wanted_files(place, layout))
        if lacking:
            download = (
                " Or have them downloaded: --problem_options=download=true, or by tensorflow-datasets: layout=tfds."
            )
            raise UserError(
                f"{problem.name} (layout={layout}) lacks {lacking}. Put the files (plain or compressed) or the "
                f"archives as they are into --tmp_dir={place}.{'' if layout == TFDS else download}"
            )
        if layout == TFDS:
            otherwise = _wmt_files.lacking(problem._wanted_files(place, OFFICIAL))
            otherwise = f"Or put WMT's own files or archives into --tmp_dir={place} (layout=official): {otherwise}."
            for pairs in problem._tfds_pairs(place):
                pairs.dataset.prepare(pairs.data_dir, place, otherwise)

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairSource]:
        """Returns the corpora or test sets of a split, from the base problem's source language to its target."""
        place = pathlib.Path(tmp_dir).expanduser()
        layout = self._chosen_layout(place)
        problem = self.base()
        if split != TRAIN:
            sets = problem._set_files(split, place, layout)
            return [CorpusSource(name=name, files=(files,), tag=self.default_tag) for name, files in sets]
        return [
            CorpusSource(
                name=name, files=(files,), weight=self._weight_of.get(name, 1.0), tag=self._tag_of.get(name, "")
            )
            for name, files in problem._train_files(place, layout)
        ]

    @property
    def _foreign(self) -> str:
        return next(language for language in self.languages if language != "en")

    def _check_mixing(self) -> None:
        if self.default_tag and self.default_tag not in self.tags:
            raise UserError(
                f"default_tag={self.default_tag}: no training corpus has this tag."
                f"{suggest(self.default_tag, self.tags)} Tags are given by tags=NAME:<tag>; there are: "
                f"{', '.join(self.tags) or 'none'}."
            )
        if "download" in self._options and self.layout not in (AUTO, OFFICIAL):
            pack = self.packs.get(self.layout)
            if not pack or not pack.downloadable:
                raise UserError(
                    f"download=true does not go with layout={self.layout}; it is for layout=official"
                    f"{' and layout=stanford' if 'stanford' in self.packs else ''}."
                )
        if not self._used:
            raise UserError(f"weights={self._options['weights']}: no training corpus of {self.base_name} is left.")
        mixed = self._tag_of or self.default_tag or any(weight != 1 for weight in self._weight_of.values())
        if self.layout in self.packs and mixed:
            raise UserError(
                f"layout={self.layout} of {self.base_name} holds all training text in one file, so that weights and "
                f"tags do not go with it. Take layout=official or layout=tfds."
            )

    def _set_preparation(self) -> None:
        """Sets the attributes that depend on layout and direction: steps, cleaning, scoring, published counts."""
        pack = self.packs.get(self.layout)
        if pack:
            self.source_steps = self.target_steps = ("tokenized",)
            self.cleaning = {}
            self.published = {**self.published, **({TRAIN: pack.published} if pack.published else {})}
        # The protocol splits the compounds of German output only; in a pack they may be split already.
        compounds_split = bool(pack and pack.compounds)
        if self.scoring == _COMPOUND_SPLIT and (compounds_split or self.target_language == "en"):
            self.scoring = _PLAIN_TOKENS

    def _chosen_layout(self, tmp_dir: pathlib.Path) -> str:
        if self.layout != AUTO or "download" in self._options:
            return OFFICIAL if self.layout == AUTO else self.layout
        real = [corpus for corpus in self._used if corpus.subset]
        return OFFICIAL if _wmt_files.any_found(self._wanted(real, tmp_dir), tmp_dir) else TFDS

    def _wanted(self, chosen_corpora: Sequence[Corpus], tmp_dir: pathlib.Path) -> list[Wanted]:
        problem = self.base()
        return [
            _wmt_files.wanted_corpus(corpus, tmp_dir, problem.languages, problem._foreign) for corpus in chosen_corpora
        ]

    def _by_files(self, layout: str) -> list[Corpus]:
        """Returns the corpora that are read from the user's files."""
        return [corpus for corpus in self._used if layout == OFFICIAL or not corpus.subset]

    def _wanted_sets(self, split: str, tmp_dir: pathlib.Path) -> list[Wanted]:
        return [
            _wmt_files.wanted_test_set(test_set, tmp_dir, self.languages, self._foreign)
            for test_set in self.test_sets[split]
        ]

    def _train_files(self, tmp_dir: pathlib.Path, layout: str) -> list[tuple[str, PairSource]]:
        """Returns the training corpora's names and files."""
        if layout in self.packs:
            return [(layout, self._pack_files(TRAIN, tmp_dir, self.packs[layout]))]
        by_files = self._by_files(layout)
        wanted = zip(by_files, self._wanted(by_files, tmp_dir), strict=True)
        read = [(corpus.name, files.expected()) for corpus, files in wanted]
        return read if layout == OFFICIAL else [*self._tfds_train(tmp_dir), *read]

    def _set_files(self, split: str, tmp_dir: pathlib.Path, layout: str) -> list[tuple[str, PairSource]]:
        """Returns the names and files of the dev or test sets."""
        if layout in self.packs:
            pack = self.packs[layout]
            if split == DEV and pack.validation:
                return [(pack.validation, self._pack_files(split, tmp_dir, pack))]
            return [(each.name, self._pack_files(split, tmp_dir, pack, each.name)) for each in self.test_sets[split]]
        wanted = zip(self.test_sets[split], self._wanted_sets(split, tmp_dir), strict=True)
        if layout == OFFICIAL:
            return [(each.name, files.expected()) for each, files in wanted]
        return [(each.name, files.found() or self._tfds_set(each, tmp_dir)) for each, files in wanted]

    def _wanted_files(self, tmp_dir: pathlib.Path, layout: str) -> list[Wanted]:
        """Returns what is read from files: everything for ``official``, what tensorflow-datasets lacks for ``tfds``."""
        wanted = self._wanted(self._by_files(layout), tmp_dir)
        if layout == OFFICIAL:
            wanted += self._all_sets(tmp_dir)
        return wanted

    def _all_sets(self, tmp_dir: pathlib.Path) -> list[Wanted]:
        return [files for split in (DEV, TEST) for files in self._wanted_sets(split, tmp_dir)]

    def _tfds(
        self, tmp_dir: pathlib.Path, split: str, subset: str = "", label: str = "", *, from_sgml: bool = False
    ) -> TfdsPairs:
        """Returns a split of the data set with all corpora, or of a data set made of one subset."""
        folder = self._options.get("tfds_dir")
        languages = (self._foreign, "en")
        if subset:
            dataset = TfdsDataset(languages=languages, subsets={split: [subset]}, label=label)
        else:
            dataset = TfdsDataset(languages=languages, name=self.tfds_name)
        return TfdsPairs(
            dataset=dataset,
            split=split,
            languages=self.languages,
            data_dir=pathlib.Path(folder).expanduser() if folder else tmp_dir / _TFDS_FOLDER,
            from_sgml=from_sgml,
        )

    def _tfds_train(self, tmp_dir: pathlib.Path) -> list[tuple[str, TfdsPairs]]:
        """Returns tensorflow-datasets' part of train: one data set, or one per corpus if weights or tags differ."""
        named = [each.name for each in self.training_corpora if each.subset]
        if self.tfds_name and all(self._weight_of[name] == 1 and name not in self._tag_of for name in named):
            return [(self.tfds_name, self._tfds(tmp_dir, TRAIN))]
        used = [each for each in self._used if each.subset]
        return [(each.name, self._tfds(tmp_dir, TRAIN, each.subset, each.name)) for each in used]

    def _tfds_set(self, test_set: TestSet, tmp_dir: pathlib.Path) -> TfdsPairs:
        name, from_sgml = test_set.name, test_set.is_sgml
        if name in self.tfds_splits:
            return self._tfds(tmp_dir, self.tfds_splits[name], from_sgml=from_sgml)
        return self._tfds(tmp_dir, "validation", name, name, from_sgml=from_sgml)

    def _tfds_pairs(self, tmp_dir: pathlib.Path) -> list[TfdsPairs]:
        """Returns everything that is read from tensorflow-datasets, each data set once."""
        pairs = [files for _, files in self._tfds_train(tmp_dir)]
        for split in (DEV, TEST):
            pairs += [files for _, files in self._set_files(split, tmp_dir, TFDS) if isinstance(files, TfdsPairs)]
        return list({(each.dataset.name, each.dataset.config_name): each for each in pairs}.values())

    def _pack_files(self, split: str, tmp_dir: pathlib.Path, pack: Pack, test_set: str = "") -> PackFiles:
        return PackFiles(self._pack_choices(pack.stem(split, test_set), tmp_dir, pack).expected(), pack)

    def _pack_choices(self, stem: str, tmp_dir: pathlib.Path, pack: Pack) -> Wanted:
        choices = [
            PairFiles.aligned(_wmt_files.compressed(folder / f"{stem}.{language}") for language in self.languages)
            for folder in self._pack_folders(tmp_dir, pack)
        ]
        names = [f"{stem}.{language}" for language in self.languages] if pack.downloadable else []
        # Into a folder of their own: other corpora have files of the same names.
        downloads = [_wmt_files.Download(f"{pack.url}{name}", f"{pack.folders[0]}/{name}", None) for name in names]
        return Wanted(choices, (pack.archive,), pack.url, downloads)

    def _pack_folders(self, tmp_dir: pathlib.Path, pack: Pack) -> list[pathlib.Path]:
        """Returns the folders that a pack's files may be in.

        Where the files are called ``train.en`` and so on, as those of other corpora, ``--tmp_dir`` itself is among them
        only if it has all files of the pack.
        """
        folders = [*(tmp_dir / each for each in pack.folders if each), tmp_dir / f"{pack.archive}{archives.UNPACKED}"]
        names = [f"{stem}.{language}" for stem in self._stems(pack) for language in self.languages]
        is_complete = all(_wmt_files.compressed(tmp_dir / name).is_file() for name in names)
        return [*folders, tmp_dir] if is_complete or pack.train != "train" else folders

    def _stems(self, pack: Pack) -> set[str]:
        """Returns the names, without the language, of the files of a pack that are read."""
        stems = {pack.stem(TRAIN, "")}
        return stems | {pack.stem(split, each.name) for split in (DEV, TEST) for each in self.test_sets[split]}

    def _prepare_pack(self, tmp_dir: pathlib.Path, pack: Pack) -> None:
        stems = self._stems(pack)
        archive = tmp_dir / pack.archive
        # An archive that was unpacked before is unpacked again if it has changed since.
        was_unpacked = pathlib.Path(f"{archive}{archives.UNPACKED}").is_dir()
        is_wanted = was_unpacked or not all(self._pack_choices(stem, tmp_dir, pack).found() for stem in stems)
        if is_wanted and archives.is_archive(archive) and archive.is_file():
            archives.unpacked_beside(archive)
        wanted = [self._pack_choices(stem, tmp_dir, pack) for stem in sorted(stems)]
        if "download" in self._options:
            _wmt_files.download_archives(wanted, tmp_dir)
        lacking = _wmt_files.lacking(self._pack_choices(stem, tmp_dir, pack) for stem in sorted(stems))
        if lacking:
            others = "download=true, or take another layout: layout=auto" if pack.downloadable else "layout=auto"
            raise UserError(
                f"{self.name} (layout={self.layout}) lacks {lacking}. Put the files or the archive into "
                f"--tmp_dir={tmp_dir}, or give --problem_options={others}."
            )
