"""Declares a dataset: its features, its splits and how they are read.

A problem declares its features and yields the samples of each split, which are checked
against the declaration. It knows nothing about models, subwords or shards;
``t2t_ext.data.generation.generate`` makes subwords and shards from it. Your own translation problem::

    @registry.register_problem
    class TranslateEndeMine(TranslationProblem):
        source_language, target_language = "en", "de"

        def samples(self, split, tmp_dir):
            yield {"inputs": "Hello", "targets": "Hallo"}
"""

import copy
import os
import pathlib
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from t2t_ext.config import user_directory
from t2t_ext.data.corpora import readers
from t2t_ext.data.corpora import weighting as corpora
from t2t_ext.data.features.types import TARGET, Feature, Text, complaint
from t2t_ext.errors import UserError
from t2t_ext.registry import REVERSED_SUFFIX, SYNCHRONOUS_SUFFIX

TRAIN, DEV, TEST = "train", "dev", "test"
Sample = dict[str, Any]


class Problem:
    """A dataset: named, typed features and the samples of every split.

    Class attributes that a subclass may set:
      splits: The names of its splits, including ``train``.
      approx_vocab_size: Size of the subword vocabulary, unless the user asks for another.
      joint_vocab: Whether source and target share one subword model.
      max_length_ratio: Training pairs whose longer side has more than this many times the subwords of the shorter are
        dropped (0: none). The default is that of Moses's corpus cleaning.
      source_steps: Steps of ``t2t_ext.data.text.text_steps`` that prepare the source text before it is segmented into
        subwords.
      target_steps: The same for the target text.
      subwords: The kind of subword model: ``sentencepiece``, or ``subword_nmt`` (byte-pair encoding of the words that
        the steps produce).
      num_merges: Number of merge operations of ``subword_nmt``; 0 means ``approx_vocab_size``.
      vocab_threshold: ``subword_nmt`` splits subwords further until each occurs at least this often (0: no limit).
      vocab_limit: Maximum number of ``subword_nmt`` ids on each side; the rarest subwords are left out (0: all stay).
      cleaning: Which training pairs are left out: names and values of ``t2t_ext.data.generation.cleaning``.
      scoring: The protocol of ``t2t_ext.evaluation.protocols`` that scores translations.
      published: Number of pairs per split according to the paper or the corpus's own page.
      tags: Words such as ``<2de>`` that a source may begin with; each is a subword of its own.
      default_tag: The tag used to translate a text without one; empty for none.
      path_options: Names of options that say where raw files are or come from. Only the contents of the files count.
      reversible: Whether ``NAME_rev`` exists.
      source_language: The language of the source, a tag such as ``de`` or ``zh-Hant``; empty if unknown or none.
      target_language: The language of the target, in the same form.

    Attributes:
      base_name: The registered name, which is part of the data files' names.
      was_reversed: Whether this is ``NAME_rev``: the same files, read in the other direction.
      with_pseudo_references: Whether this is ``NAME_synchronous``: the same data with additional pseudo references
        (see ``t2t_ext.data.datasets.pseudo_references``).
      reading: What was dropped or changed while reading a split; every pass begins with a fresh report.
    """

    splits: Sequence[str] = (TRAIN, DEV, TEST)
    approx_vocab_size: int = 8192
    joint_vocab: bool = True
    max_length_ratio: float = 9.0
    source_steps: Sequence[str] = ()
    target_steps: Sequence[str] = ()
    subwords: str = "sentencepiece"
    num_merges: int = 0
    vocab_threshold: int = 0
    vocab_limit: int = 0
    cleaning: Mapping[str, Any] = types.MappingProxyType({})
    scoring: str = "sacrebleu"
    published: Mapping[str, int] = types.MappingProxyType({})
    tags: Sequence[str] = ()
    default_tag: str = ""
    path_options: Sequence[str] = ()
    reversible: ClassVar[bool] = False
    source_language: str = ""
    target_language: str = ""
    with_pseudo_references: bool = False
    _options: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(self, *, name: str | None = None, was_reversed: bool = False) -> None:
        """Creates the problem; reads nothing yet.

        Args:
          name: The registered name; by default the class's name in snake_case.
          was_reversed: Whether source and target are exchanged.

        Raises:
          UserError: The problem cannot be reversed.
        """
        self.base_name = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()
        if was_reversed and not self.reversible:
            raise UserError(f"{self.base_name} is not a translation problem and cannot be reversed.")
        self.was_reversed = was_reversed
        self.reading = readers.ReadReport()

    @property
    def name(self) -> str:
        """The name as the user gives it, including ``_rev`` and ``_synchronous``."""
        return self.data_name + (SYNCHRONOUS_SUFFIX if self.with_pseudo_references else "")

    @property
    def data_name(self) -> str:
        """The name of the data, without ``_synchronous``, since pseudo references are stored beside the data."""
        return self.base_name + (REVERSED_SUFFIX if self.was_reversed else "")

    @property
    def languages(self) -> tuple[str, str]:
        """The language tags of source and target, empty if unknown."""
        return self.source_language, self.target_language

    @property
    def options(self) -> Mapping[str, Any]:
        """The further constructor arguments that were given, ready for JSON."""
        return self._options

    def base(self) -> Self:
        """Returns the problem that the data files are made from: this one, or the one of which this is the reverse."""
        return self

    def features(self) -> dict[str, Feature]:
        """Returns the declaration of a sample: feature name -> type."""
        raise self._undefined("features(self)")

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the samples of a split, the same ones in the same order at every call.

        Args:
          split: One of ``splits``.
          tmp_dir: The directory of the raw files, where ``prepare`` also puts them.
        """
        raise self._undefined("samples(self, split, tmp_dir)")

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Fetches missing raw files and checks that all are there; called once before ``samples``.

        Raises:
          UserError: Files are damaged or missing; the message lists all missing ones and where they come from.
        """

    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]:
        """Returns the raw files that a split is read from, so that changes to them are noticed."""
        del split, tmp_dir
        return ()

    def count(self, split: str, tmp_dir: str | os.PathLike) -> int | None:
        """Returns the number of samples of a split before any are dropped, or None if it is not known in advance."""
        del split, tmp_dir
        return None

    def checked_samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the samples of a split, each checked against the declaration.

        Raises:
          UserError: A sample does not match; the message names problem, split, sample number and difference. Or
            ``samples`` of a user's module fails; the message also names file and line.
        """
        declared, number = self.features(), 0
        for number, sample in enumerate(_read(self, split, tmp_dir), 1):
            error = complaint(declared, sample)
            if error:
                raise UserError(
                    f"Sample {number} of {self.base_name}'s {split} split does not match its declaration: {error}. "
                    f"Correct features() or samples() of {type(self).__name__}."
                )
            yield sample
        if self.reading.places.count != number:
            self.reading.places.forget()  # a user's samples() leaves some out, or adds some

    def _undefined(self, signature: str) -> UserError:
        """Returns the error for a method that a subclass does not define."""
        kind = type(self)
        return UserError(
            f"The class {kind.__module__}.{kind.__qualname__} of the problem {self.base_name} does not define "
            f"{signature}, which every such problem needs."
        )


# Not a method, since users' classes may have methods of any name.
def _read(problem: Problem, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
    """Yields the samples of a problem; an exception in a user's code becomes a ``UserError``."""
    number = 0
    try:
        samples = problem.samples(split, tmp_dir)
        if samples is None:
            kind = type(problem)
            raise UserError(
                f"samples() of the class {kind.__module__}.{kind.__qualname__} gives nothing for the {split} split of "
                f'{problem.base_name}: it must yield samples, such as {{"inputs": "...", "targets": "..."}}.'
            )
        for number, sample in enumerate(samples, 1):  # noqa: B007  (read where it fails)
            yield sample
    except UserError:
        raise
    except Exception as error:
        place = user_directory.place_of(error)
        if not place:
            raise
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        raise UserError(
            f"{place}: {text} (sample {number + 1:,} of {problem.base_name}'s {split} split). "
            f"Correct samples() of {type(problem).__name__}, or the text that it reads."
        ) from error


class Text2TextProblem(Problem):
    """Text in, text out: features ``inputs`` and ``targets``."""

    def features(self) -> dict[str, Feature]:
        """Returns the two text features."""
        return {"inputs": Text(), "targets": Text(side=TARGET)}


class TranslationProblem(Text2TextProblem):
    """Text in one language and its translation.

    The languages are class attributes or constructor arguments, in the base problem's direction. ``NAME_rev`` exchanges
    them.
    """

    reversible = True

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> None:
        """Creates the problem; reads nothing yet.

        Args:
          name: The registered name.
          was_reversed: Whether source and target are exchanged.
          source_language: The base problem's source language, if the class does not define it.
          target_language: The base problem's target language, if the class does not define it.
        """
        super().__init__(name=name, was_reversed=was_reversed)
        languages = (source_language or self.source_language, target_language or self.target_language)
        self.source_language, self.target_language = reversed(languages) if was_reversed else languages

    def base(self) -> Self:
        """Returns the problem that the data files are made from, in its own direction."""
        if not self.was_reversed and not self.with_pseudo_references:
            return self
        base = copy.copy(self)
        base.with_pseudo_references = False
        if self.was_reversed:
            base.was_reversed = False
            base.source_language, base.target_language = self.target_language, self.source_language
        return base


class ParallelFilesProblem(TranslationProblem):
    """A translation problem read from files aligned line by line.

    Class attributes that a subclass may set:
      multiple_references: Whether dev or test sets have several reference translations; ``targets`` is then a list.
    """

    multiple_references: bool = False

    def pair_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[readers.PairSource]:
        """Returns the files of a split in the base problem's direction; they are read one after the other."""
        raise self._undefined("pair_files(self, split, tmp_dir)")

    def features(self) -> dict[str, Feature]:
        """Returns the two text features; ``targets`` is a list of texts if there are several references."""
        return {"inputs": Text(), "targets": Text(side=TARGET, multiple=self.multiple_references)}

    def prepare(self, tmp_dir: str | os.PathLike) -> None:
        """Checks that all files are there."""
        paths = [path for split in self.splits for path in self.source_files(split, tmp_dir)]
        readers.require_files(paths, f"{self.base_name} is made from these; put them there.")

    def source_files(self, split: str, tmp_dir: str | os.PathLike) -> Sequence[pathlib.Path]:
        """Returns the raw files that a split is read from."""
        return [path for files in self.pair_files(split, tmp_dir) for path in files.paths]

    def count(self, split: str, tmp_dir: str | os.PathLike) -> int:
        """Returns the number of lines of a split.

        Raises:
          UserError: Files that belong together have different numbers of lines.
        """
        return sum(files.count() for files in self.pair_files(split, tmp_dir))

    def samples(self, split: str, tmp_dir: str | os.PathLike) -> Iterator[Sample]:
        """Yields the pairs of a split in the order of the files."""
        for files in self.pair_files(split, tmp_dir):
            for row in files.read(self.reading):
                self.reading.add_sample()
                yield corpora.as_sample(row, self.multiple_references)


class MixedTranslationProblem(ParallelFilesProblem):
    """A translation problem made of several corpora, each with a weight and a tag.

    ``pair_files`` returns ``corpora.CorpusSource``s from the source to the target language. ``NAME_rev`` has data files
    of its own if the corpora depend on the direction: a tag belongs to the source, and a back-translation must be the
    source.

    Attributes:
      turned: Whether this is a ``NAME_rev`` with data files of its own; its source is the target of NAME.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        was_reversed: bool = False,
        source_language: str | None = None,
        target_language: str | None = None,
        tags: Sequence[str] = (),
        depends_on_direction: bool = False,
    ) -> None:
        """Creates the problem; reads nothing yet.

        Args:
          name: The registered name.
          was_reversed: Whether source and target are exchanged.
          source_language: The source language of NAME, if the class does not define it.
          target_language: The target language of NAME, if the class does not define it.
          tags: The tags of all corpora and splits; duplicates and empty ones are dropped.
          depends_on_direction: Whether the corpora depend on the direction even without tags.
        """
        languages = (source_language or self.source_language, target_language or self.target_language)
        self.tags = tuple(dict.fromkeys(tag for tag in tags if tag))
        self.turned = was_reversed and (depends_on_direction or bool(self.tags))
        super().__init__(
            name=name,
            was_reversed=was_reversed and not self.turned,
            source_language=languages[self.turned],
            target_language=languages[not self.turned],
        )
        if self.turned:
            self.base_name += "_rev"
            self.source_steps, self.target_steps = self.target_steps, self.source_steps
