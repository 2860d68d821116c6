"""IWSLT's translated TED talks: German, Romanian and Spanish of 2014, Vietnamese and French of 2015.

Cettolo et al. 2012, https://aclanthology.org/2012.eamt-1.60 (WIT3); the campaigns are described in
https://aclanthology.org/2014.iwslt-evaluation.1 and https://aclanthology.org/2015.iwslt-evaluation.1. The talks are
TED's, CC BY-NC-ND.

One class reads them all. The variants' class attributes say what papers did differently; each variant's docstring says
what its paper prints and which of the paper's slips are corrected here. docs/corpora.md shows where files go.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from t2t_ext import registry
from t2t_ext.config.problem_options import chosen, given
from t2t_ext.data.corpora.readers import PairSource
from t2t_ext.errors import UserError
from t2t_ext.pages import page
from t2t_ext.problem import DEV, TEST, TRAIN, ParallelFilesProblem, Sample
from t2t_ext.problems import _iwslt_split
from t2t_ext.problems._ted_files import PlainFiles, TedFiles

WIT3, PLAIN, STANFORD = "wit3", "plain", "stanford"
DE_EN_URL = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
STANFORD_URL = "https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi/"
# From Hugging Face's data set mt_eng_vietnamese (dataset_infos.json).
STANFORD_SHA256 = {
    f"{STANFORD_URL}train.en": "c26dfeed74b6bf3752f5ca552f2412456f0de153f7c804df8717931fb3a5c78a",
    f"{STANFORD_URL}train.vi": "707206edf2dc0280273952c7b70544ea8a1363aa69aaeb9d70514b888dc3067d",
    f"{STANFORD_URL}tst2012.en": "b8fbcd0d4199d41276421d1f7228298df67dd9e2c5c134c2ee8cdf3ec27801e2",
    f"{STANFORD_URL}tst2012.vi": "01004078b3f36b0c46e81b65fc6851230b3c823405c76d1d82ef3b786b512ff0",
    f"{STANFORD_URL}tst2013.en": "3860ce60bc5b85d96cc2d3d580cf1bc9d62440e939c1b964676d3607c4e8f1df",
    f"{STANFORD_URL}tst2013.vi": "29af16842808da2812b8fd4d47fc05d082ba870e60ab7755090ad04b380994cd",
}
_ALREADY_TOKENIZED = ("tokenized",)


class IwsltProblem(ParallelFilesProblem):
    """TED talks in two languages.

    Class attributes that define a task, in addition to those of ``Problem``:
      campaign: The beginning of the names of the evaluation sets.
      releases: WIT3's releases that contain the training text and the evaluation sets.
      layouts: Layouts of raw files that can be read, the default first: ``wit3``, ``stanford`` or ``plain``.
      dev_sets: The evaluation sets for dev; if empty, dev is every 23rd line of the cleaned training text.
      test_sets: Value of the option ``test`` -> the evaluation sets for test; the default first.
      url: Where the archive of a language pair, or the directory of files, can be downloaded; "" if it cannot.
      published_tests: Value of the option ``test`` -> number of lines of test.
      resolve_entities: Whether ``&amp;`` in WIT3's files becomes ``&``.

    Options:
      test: A key of ``test_sets``.
      layout: ``wit3``: WIT3's archive or the files in it. ``plain``: ``train``, ``valid`` and ``test``, each with the
        languages as endings, one sentence per line, already tokenized (and lower-cased) like the output of the widely
        used preparation before its BPE; they stay as they are. ``stanford``: Stanford's files of 2015.
      train: For the layout ``plain``, the name of the training files if it is not ``train``.
    """

    campaign: ClassVar[str] = "IWSLT14"
    releases: ClassVar[tuple[str, ...]] = ("2014-01", "2014-01-test")
    layouts: ClassVar[tuple[str, ...]] = (WIT3, PLAIN)
    dev_sets: ClassVar[tuple[str, ...]] = ("TED.dev2010", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    test_sets: ClassVar[Mapping[str, tuple[str, ...]]] = {"recipe": ("TED.tst2014",)}
    url: ClassVar[str] = ""
    resolve_entities: ClassVar[bool] = True
    published_tests: ClassVar[Mapping[str, int]] = {}

    source_steps: Sequence[str] = ("moses_tokenize",)
    target_steps: Sequence[str] = ("moses_tokenize",)
    subwords = "subword_nmt"
    scoring = "multi_bleu"

    def __init__(
        self, *, name: str | None = None, was_reversed: bool = False, test: str = "", layout: str = "", train: str = ""
    ) -> None:
        """Makes the problem; reads nothing yet."""
        super().__init__(name=name, was_reversed=was_reversed)
        self._options = given(IwsltProblem, test=test, layout=layout, train=train)
        self.test = chosen(self.base_name, "test", test or next(iter(self.test_sets)), self.test_sets)
        if self.test in self.published_tests:
            self.published = {**self.published, TEST: self.published_tests[self.test]}
        self.layout = chosen(self.base_name, "layout", layout or self.layouts[0], self.layouts)
        if test and self.layout == PLAIN:
            raise UserError(f"test={test} chooses among releases; with layout={PLAIN} the test set is test.*.")
        if train and self.layout != PLAIN:
            raise UserError(f"train={train} names the training files of layout=plain, not of layout={self.layout}.")
        self._train_stem = train or "train"
        if self.layout != WIT3:
            self.source_steps = self.target_steps = _ALREADY_TOKENIZED
        self._pair = self.base().languages

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Downloads and unpacks missing files if possible, and checks that all files are there.

        Raises:
          UserError: Files are missing or damaged.
        """
        raw = self._raw_files(tmp_dir)
        raw.prepare(self.base_name, self._advice())
        if self._takes_dev_from_train:
            _iwslt_split.make(self._split_dir(tmp_dir), self._pair, *raw.sources(TRAIN))

    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]:
        """Returns the raw files that a split is read from."""
        if self._takes_dev_from_train and split == DEV:
            split = TRAIN
        return [path for files in self._raw_files(tmp_dir).sources(split) for path in files.paths]

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairSource]:
        """Returns the files of a split, in the base problem's direction."""
        if self._takes_dev_from_train and split in (TRAIN, DEV):
            return (_iwslt_split.files(self._split_dir(tmp_dir), self._pair, split),)
        return self._raw_files(tmp_dir).sources(split)

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the pairs of a split in the order of the files."""
        yield from super().samples(split, tmp_dir)
        if self._takes_dev_from_train and split == TRAIN:
            _iwslt_split.add_drops(self._split_dir(tmp_dir), self.reading)

    @property
    def _takes_dev_from_train(self) -> bool:
        return self.layout == WIT3 and not self.dev_sets

    def _split_dir(self, tmp_dir: str | os.PathLike) -> pathlib.Path:
        return pathlib.Path(tmp_dir, f"{'-'.join(self._pair)}.{self.campaign.lower()}.split")

    def _raw_files(self, tmp_dir: str | os.PathLike) -> TedFiles | PlainFiles:
        directory = pathlib.Path(tmp_dir)
        if self.layout == PLAIN:
            return PlainFiles(directory, self._pair, {TRAIN: self._train_stem, DEV: "valid", TEST: "test"})
        if self.layout == STANFORD:
            dev, test = (sets[0].removeprefix("TED.") for sets in (self.dev_sets, self.test_sets[self.test]))
            stems = {TRAIN: "train", DEV: dev, TEST: test}
            files = PlainFiles(directory, self._pair, stems, self.url, STANFORD_SHA256)
            # By default in a folder of their own: other corpora have a train.en, too.
            own = directory / self.url.rstrip("/").rpartition("/")[2]
            return files if files.has_train else dataclasses.replace(files, directory=own)
        sets = {TEST: self.test_sets[self.test], **({DEV: self.dev_sets} if self.dev_sets else {})}
        return TedFiles(
            directory,
            self._pair,
            self.campaign,
            self.releases,
            sets,
            self.url if self.url.endswith(".tgz") else "",
            self.resolve_entities,
        )

    def _advice(self) -> str:
        """Returns advice on where files come from, for the message that some are missing."""
        others = [f"layout={layout}" for layout in self.layouts if layout != self.layout]
        or_else = f" Or, with --problem_options={others[0]}, other files: see {page('corpora')}." if others else ""
        if self.layout != WIT3:
            return f"Put them there.{or_else}"
        pages = " and ".join(f"https://wit3.fbk.eu/{release}" for release in self.releases)
        either = " and ".join("-".join(pair) for pair in (self._pair, self._pair[::-1]))
        if len(self.releases) == 1:
            return f"Get the archive of {'-'.join(self._pair)} from {pages} and put it there.{or_else}"
        return (
            f"Get the archives of {either} from {pages} and put them there, those of either release in a folder of "
            f"their own, since they have the same names.{or_else}"
        )


@registry.register_problem
class TranslateDeenIwslt14(IwsltProblem):
    """German to English, 160,239 / 7,283 / 6,750 pairs as widely prepared: lower-cased, 10,000 joint byte-pair merges.

    The training text includes title and description lines. It has Moses tokens, 1 to 175 words a sentence and a word
    ratio up to 1.5; every 23rd line is dev. In evaluation sets ``’`` becomes ``'``. Entities there stay as written
    (``R &amp; D`` in 8 lines of test), so that the lines are exactly those that others score. ``test=recipe`` (the
    default) is dev2010, TEDX.dev2012 and tst2010 to tst2012. ``test=paper`` leaves out TEDX.dev2012, which papers do
    not name although most of them test on it: 5,585 lines.
    """

    source_language, target_language = "de", "en"
    releases = ("2014-01",)
    dev_sets = ()
    test_sets = {  # noqa: RUF012
        "recipe": ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"),
        "paper": ("TED.dev2010", "TED.tst2010", "TED.tst2011", "TED.tst2012"),
    }
    url = DE_EN_URL
    resolve_entities = False
    source_steps = target_steps = ("moses_tokenize", "lowercase")
    approx_vocab_size = num_merges = 10_000
    scoring = "multi_bleu_uc"
    published = {TRAIN: 160_239, DEV: 7_283}  # noqa: RUF012
    published_tests = {"recipe": 6_750, "paper": 5_585}  # noqa: RUF012


@registry.register_problem
class TranslateDeenIwslt14He2018(TranslateDeenIwslt14):
    """He et al. 2018: 153K / 7K, about 31,000 joint subwords.

    The paper does not give the number of merges, so 31,000 are learned and the resulting size is printed. It names four
    test sets; ``test=paper`` uses exactly these.
    """

    approx_vocab_size = num_merges = 31_000
    published = {TRAIN: 153_000, DEV: 7_000}  # noqa: RUF012


@registry.register_problem
class TranslateDeenIwslt14Liu2020(TranslateDeenIwslt14):
    """Liu et al. 2020: the widely used preparation, 160K pairs; the paper states neither sizes nor merges."""

    published = {TRAIN: 160_000}  # noqa: RUF012


@registry.register_problem
class TranslateRoenIwslt14(IwsltProblem):
    """Romanian to English, cased; dev is dev2010 and tst2010 to tst2012, test is tst2014; 32,000 joint merges.

    This is the preparation of Ampomah et al. 2021 (182K pairs); the variants are named after the papers.
    """

    source_language, target_language = "ro", "en"
    approx_vocab_size = num_merges = 32_000
    published = {TRAIN: 182_000}  # noqa: RUF012


@registry.register_problem
class TranslateRoenIwslt14Ampomah2021(TranslateRoenIwslt14):
    """Ampomah et al. 2021: 182K pairs, 32,000 joint subwords, both directions, cased BLEU."""


@registry.register_problem
class TranslateRoenIwslt14He2018(TranslateRoenIwslt14):
    """He et al. 2018: 182K pairs, 39,000 joint subwords, cased BLEU. The paper does not give the number of merges."""

    approx_vocab_size = num_merges = 39_000


@registry.register_problem
class TranslateEsenIwslt14(IwsltProblem):
    """Spanish to English, cased; dev is dev2010 and tst2010 to tst2012, test is tst2014; 34,000 joint merges.

    For the same text, papers count 181K pairs (He et al. 2018) and 183K pairs (Ampomah et al. 2021).
    """

    source_language, target_language = "es", "en"
    approx_vocab_size = num_merges = 34_000
    published = {TRAIN: 183_000}  # noqa: RUF012


@registry.register_problem
class TranslateEsenIwslt14Ampomah2021(TranslateEsenIwslt14):
    """Ampomah et al. 2021: 183K pairs, 34,000 joint subwords, both directions, cased BLEU."""


@registry.register_problem
class TranslateEsenIwslt14He2018(TranslateEsenIwslt14):
    """He et al. 2018: 181K pairs, 34,000 joint subwords, cased BLEU. The paper does not give the number of merges."""

    published = {TRAIN: 181_000}  # noqa: RUF012


class Iwslt15Problem(IwsltProblem):
    """IWSLT 2015's talks."""

    campaign = "IWSLT15"
    releases = ("2015-01", "2015-01-test")


@registry.register_problem
class TranslateEnviIwslt15(Iwslt15Problem):
    """English to Vietnamese, Stanford's tokenized files (Luong and Manning 2015): dev tst2012, test tst2013; cased.

    21,000 joint merges and sacrebleu as in Ampomah et al. 2021. ``layout=wit3`` reads WIT3's archive instead; its text
    is not tokenized.
    """

    source_language, target_language = "en", "vi"
    layouts = (STANFORD, WIT3, PLAIN)
    dev_sets = ("TED.tst2012",)
    test_sets = {"recipe": ("TED.tst2013",)}  # noqa: RUF012
    url = STANFORD_URL
    approx_vocab_size = num_merges = 21_000
    scoring = "sacrebleu"
    published = {TRAIN: 133_317, DEV: 1_553, TEST: 1_268}  # noqa: RUF012


@registry.register_problem
class TranslateEnviIwslt15Ampomah2021(TranslateEnviIwslt15):
    """Ampomah et al. 2021: 133K / 1,553 / 1,268 pairs, 21,000 joint subwords, both directions, sacrebleu."""


@registry.register_problem
class TranslateEnfrIwslt15(Iwslt15Problem):
    """English to French, cased; dev is tst2013, test tst2014 and tst2015; 31,000 joint merges.

    This is the preparation of Ampomah et al. 2021 (207K pairs), who use it for French to English and the reverse.
    """

    source_language, target_language = "en", "fr"
    dev_sets = ("TED.tst2013",)
    test_sets = {"recipe": ("TED.tst2014", "TED.tst2015")}  # noqa: RUF012
    approx_vocab_size = num_merges = 31_000
    published = {TRAIN: 207_000}  # noqa: RUF012


@registry.register_problem
class TranslateEnfrIwslt15Ampomah2021(TranslateEnfrIwslt15):
    """Ampomah et al. 2021: 207K pairs, 31,000 joint subwords, both directions, cased BLEU."""
