"""Summarization: CNN/Daily Mail as papers use it, and the user's own texts.

Hermann et al. 2015 (https://arxiv.org/abs/1506.03340) collected the articles with their highlights. See et al. 2017
(https://aclanthology.org/P17-1099) made summaries of the highlights, did not anonymize names, and read 400 words of an
article.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from t2t_ext import registry
from t2t_ext.config.own_text import OwnTextOptions
from t2t_ext.config.problem_options import chosen, given
from t2t_ext.config.strict_params import StrictParams, hparam
from t2t_ext.data.corpora import readers
from t2t_ext.data.corpora.readers import PairFiles, PairSource, ReadReport
from t2t_ext.data.text import document_steps
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.pages import page
from t2t_ext.problem import DEV, TEST, TRAIN, ParallelFilesProblem, Sample
from t2t_ext.problems import _story_files
from t2t_ext.problems.parallel_text import TranslateParallelText
from t2t_ext.problems.tfds import NamedTexts, TfdsOptions, TranslateTfds

SOURCE_WORDS, TARGET_WORDS = 400, 100
TFDS, STORIES, OPENNMT, PLAIN = "tfds", "stories", "opennmt", "plain"
_LAYOUTS = (TFDS, STORIES, OPENNMT, PLAIN)
# Split -> its name in the corpus's files and lists.
_NAMES = {TRAIN: "train", DEV: "val", TEST: "test"}
_TFDS_NAMES = {TRAIN: "train", DEV: "validation", TEST: "test"}
_ENDINGS = {OPENNMT: ("txt.src", "txt.tgt.tagged"), PLAIN: ("source", "target")}
_FOLDERS = {
    "cnn": ("cnn/stories", "cnn_stories", "cnn_stories_tokenized"),
    "dailymail": ("dailymail/stories", "dailymail_stories", "dm_stories", "dm_stories_tokenized"),
}


def _tagged(sample: Sample) -> Sample:
    summary = sample["targets"]
    one = isinstance(summary, str)
    sample["targets"] = _story_files.tagged_summary(summary) if one else [*map(_story_files.tagged_summary, summary)]
    return sample


def _truncated(
    samples: Iterator[Sample], source_words: int, target_words: int, tags: Sequence[str] = ()
) -> Iterator[Sample]:
    """Yields training samples truncated to the lengths that are trained on; a source's tag is none of its words.

    A text step truncates the source once more after tokenization, which yields at least as many words as whitespace
    separates.
    """
    beginning = TextSteps([f"first_{source_words}_words"] if source_words else [], tags=tags)
    for sample in samples:
        source, summary = sample["inputs"], sample["targets"]
        (sample["inputs"],) = beginning.prepare([source])
        if target_words:
            texts = [summary] if isinstance(summary, str) else summary
            shortened = [_story_files.first_words(text, target_words) for text in texts]
            sample["targets"] = shortened[0] if isinstance(summary, str) else shortened
        yield sample


def _checked_words(source_words: int, target_words: int) -> None:
    for name, words in (("source_words", source_words), ("target_words", target_words)):
        if words < 0:
            raise UserError(f"{name}={words}: give how many words are kept, or 0 for all.")


@registry.register_problem
class SummarizeCnnDailymail(ParallelFilesProblem):
    """CNN/Daily Mail: 287,226 articles with highlights of 3.75 sentences; dev 13,368, test 11,490.

    Articles are lower-cased and truncated after 400 words. Summaries are truncated after 100 words for training, but
    not in dev and test sets. Generated summaries are scored by ROUGE.

    Options:
      layout: ``tfds``: tensorflow-datasets' ``cnn_dailymail``. ``stories``: the published story files in
        ``cnn/stories`` and ``dailymail/stories``, and the lists of their URLs (``all_train.txt``, ``all_val.txt`` and
        ``all_test.txt``), beside these folders or in ``url_lists``. ``opennmt``: ``train.txt.src``,
        ``train.txt.tgt.tagged`` and the same for ``val`` and ``test``, tokenized. ``plain``: ``train.source``,
        ``train.target`` and the same for ``val`` and ``test``. Each sentence may be between ``<t>`` and ``</t>`` or
        ``<s>`` and ``</s>``, or ``<q>`` may separate sentences.
      tokenized: For the layouts ``stories`` and ``plain``, whether the text is already tokenized.
      publishers: For the layout ``stories``, ``cnn`` or ``dailymail`` instead of both.
      source_words: How many words of an article are read; 0: all.
      target_words: How many words of a summary are trained on; 0: all.
      tfds_dir: Where tensorflow-datasets keeps its data; by default ``tensorflow_datasets`` in ``--tmp_dir``.
    """

    source_language = target_language = "en"
    reversible = False
    approx_vocab_size = 32768
    max_length_ratio = 0.0  # no limit: a summary is short
    scoring = "rouge"
    path_options = ("tfds_dir",)
    published = {TRAIN: 287_226, DEV: 13_368, TEST: 11_490}  # noqa: RUF012

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        layout: str = "",
        tokenized: bool = False,
        publishers: str = "",
        source_words: int = SOURCE_WORDS,
        target_words: int = TARGET_WORDS,
        tfds_dir: str = "",
    ) -> None:
        """Makes the problem; reads nothing yet."""
        super().__init__(name=name, was_reversed=was_reversed)
        _checked_words(source_words, target_words)
        self.layout = chosen(self.base_name, "layout", layout or TFDS, _LAYOUTS)
        self.source_words, self.target_words = source_words, target_words
        self._options: dict[str, Any] = given(
            SummarizeCnnDailymail, layout=layout, tokenized=tokenized, publishers=publishers, tfds_dir=tfds_dir,
            source_words=source_words, target_words=target_words,
        )  # fmt: skip
        for option, layouts in (("tokenized", (STORIES, PLAIN)), ("publishers", (STORIES,)), ("tfds_dir", (TFDS,))):
            if option in self._options and self.layout not in layouts:
                raise UserError(f"{self.base_name}: {option} goes with layout={' or '.join(layouts)} only.")
        self.tokenized = tokenized or self.layout == OPENNMT
        self.publishers = tuple(
            chosen(self.base_name, "publishers", each.strip(), _FOLDERS)
            for each in (publishers or ",".join(_FOLDERS)).split(",")
        )
        tokenizer = "tokenized" if self.tokenized else "moses_tokenize"
        beginning: tuple[str, ...] = (f"first_{source_words}_words",) if source_words else ()
        self.source_steps = (tokenizer, *beginning, "lowercase")
        self.target_steps = (document_steps.SENTENCE_TAGS, tokenizer, "lowercase")

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Has tensorflow-datasets prepare its data set, or checks that the files are there."""
        place = pathlib.Path(tmp_dir).expanduser()
        if self.layout == TFDS:
            others = ", ".join(f"layout={name}" for name in _LAYOUTS if name != TFDS)
            otherwise = f"Or give the files yourself: {others} of --problem_options; see {page('summarization')}."
            data_dir = self._tfds_dir(place)
            _story_files.StoriesDataset().prepare(data_dir, data_dir / "downloads" / "manual", otherwise)
        elif self.layout == STORIES:
            self._require_stories(place)
        super().prepare(tmp_dir)

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[PairSource]:
        """Returns the files of a split."""
        place = pathlib.Path(tmp_dir).expanduser()
        if self.layout == TFDS:
            dataset = _story_files.StoriesDataset()
            return (
                _story_files.TfdsStories(
                    dataset=dataset,
                    split=_TFDS_NAMES[split],
                    languages=dataset.languages,
                    data_dir=self._tfds_dir(place),
                ),
            )
        if self.layout == STORIES:
            folders = {name: _story_files.find_folder(place, _FOLDERS[name]) for name in self.publishers}
            found = {name: folder for name, folder in folders.items() if folder}
            return (_story_files.Stories(list_path=self._list(place, split), folders=found, tokenized=self.tokenized),)
        sides = [place / f"{_NAMES[split]}.{ending}" for ending in _ENDINGS[self.layout]]
        return (_story_files.SummaryFiles(PairFiles.aligned(sides)),)

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the pairs of a split; those of train are truncated."""
        found = super().samples(split, tmp_dir)
        return _truncated(found, self.source_words, self.target_words) if split == TRAIN else found

    def _tfds_dir(self, place: pathlib.Path) -> pathlib.Path:
        folder = self._options.get("tfds_dir")
        return pathlib.Path(folder).expanduser() if folder else place / "tensorflow_datasets"

    def _list(self, place: pathlib.Path, split: str) -> pathlib.Path:
        name = f"all_{_NAMES[split]}.txt"
        inside = place / "url_lists" / name
        return inside if inside.is_file() else place / name

    def _require_stories(self, place: pathlib.Path) -> None:
        for name in self.publishers:
            folder = _story_files.find_folder(place, _FOLDERS[name])
            if folder is None or not _story_files.holds_stories(folder):
                raise UserError(
                    f"There are no stories of {name} in {place}: looked for *.story in {', '.join(_FOLDERS[name])}. "
                    "Put them there, or choose publishers in --problem_options. For where to get them "
                    f"see {page('summarization')}."
                )
        readers.require_files(
            [self._list(place, split) for split in self.splits],
            "They say which story is in which split: https://github.com/abisee/cnn-dailymail, folder url_lists.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummaryWords(StrictParams):
    """How much of a text is read."""

    source_words: int = hparam(SOURCE_WORDS, "Number of words of a text to read; 0 = all.", minimum=0)
    target_words: int = hparam(TARGET_WORDS, "Number of words of a summary to train on; 0 = all.", minimum=0)


class _Summaries(ParallelFilesProblem):
    """What problems of texts and summaries have in common, apart from reading the files."""

    reversible = False
    max_length_ratio = 0.0
    approx_vocab_size = 32768

    def __init__(self, *, name: str | None = None, was_reversed: bool = False, **options: Any) -> None:
        """Makes the problem; reads nothing yet. Without options it can use data that were generated before."""
        words = SummaryWords(**{name: options[name] for name in SummaryWords.names() if name in options})
        _checked_words(words.source_words, words.target_words)
        super().__init__(name=name, was_reversed=was_reversed, **options)
        self.source_words, self.target_words = words.source_words, words.target_words
        self.source_steps = (f"first_{self.source_words}_words",) if self.source_words else ()
        self.target_steps = (document_steps.SENTENCE_TAGS,)
        self.scoring = "rouge" if self.target_language.lower()[:2] in ("", "en") else "rouge_unicode"

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields a split's pairs, with each summary sentence between ``<t>`` and ``</t>``; truncates pairs of train."""
        found = map(_tagged, super().samples(split, tmp_dir))
        return _truncated(found, self.source_words, self.target_words, self.tags) if split == TRAIN else found


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummaryTextOptions(SummaryWords, OwnTextOptions):
    """Options of ``summarize_text``: those of ``translate_parallel_text``, and how many words of a text are read."""


@registry.register_problem
class SummarizeText(_Summaries, TranslateParallelText):
    """The user's texts and summaries: line-aligned, tab-separated, or any format of ``translate_parallel_text``.

    The sentences of a summary may be marked by ``<t>`` and ``</t>``, ``<s>`` and ``</s>``, or ``<q>`` in between. The
    model then learns where sentences end, and ROUGE-Lsum uses them; users do not see the marks.

    Options are the fields of ``SummaryTextOptions``, which include those of ``translate_parallel_text``.
    """

    options_class = SummaryTextOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SummaryTfdsOptions(SummaryWords, TfdsOptions):
    """Options of ``summarize_tfds``: those of ``translate_tfds``, and how many words of a text are read."""


class TfdsSummaries(NamedTexts):
    """A split of texts and summaries; if a summary has several lines, they are its sentences."""

    def read(self, report: ReadReport, wanted: Callable[[int], bool] | None = None) -> Iterator[tuple[str, ...]]:
        """Yields text and summary; pairs with an empty text or summary are dropped and counted."""
        for _, (text, summary) in self._decoded(report, wanted):
            lines = [line for line in summary.split("\n") if line.strip()]
            if text.strip() and lines:
                yield " ".join(text.split("\n")), document_steps.tagged(lines) if len(lines) > 1 else lines[0]
            else:
                report.drops["empty"] += 1


@registry.register_problem
class SummarizeTfds(_Summaries, TranslateTfds):
    """Texts and summaries from tensorflow-datasets, such as ``dataset=xsum,source=document,target=summary``.

    Options are the fields of ``SummaryTfdsOptions``.
    """

    extra = "summarization"
    options_class = SummaryTfdsOptions
    texts_class = TfdsSummaries
