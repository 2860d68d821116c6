"""Examines a problem's text before training: what it contains, what is odd, and what cleaning would leave."""

import collections
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from t2t_ext.config.generation import DEFAULT_SEED, GenerationSettings
from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.datasets import manifest
from t2t_ext.data.doctor import examination
from t2t_ext.data.doctor.examination import Examination, ExaminedChunk, Plan
from t2t_ext.data.features.types import text_features
from t2t_ext.data.generation import cleaning as filters
from t2t_ext.data.generation import duplicates, vocabulary
from t2t_ext.data.generation.cleaning import Cleaning
from t2t_ext.data.generation.encoding import without_tags
from t2t_ext.data.generation.preparation import TextPreparation
from t2t_ext.data.generation.settings import resolved
from t2t_ext.data.generation.workers import Workers
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io.progress import progress as shown_progress
from t2t_ext.problem import TRAIN, Problem

PAIRS_PER_CHUNK = 8192
# Number of samples to train a subword model on, if it is needed for the figures only.
VOCABULARY_SAMPLE = 50_000
# Default settings with which the filters are tried: limits that hardly any translation exceeds.
USUAL = Cleaning(
    encoding=True,
    min_words=1,
    max_words=175,
    max_word_ratio=3.0,
    identical=True,
    script=0.5,
    numbers=True,
    test_overlap=filters.EITHER,
    max_subwords=250,
    duplicates=filters.PAIR,
)

# For documents and their summaries, no length is too long and no ratio too high.
_OF_DOCUMENTS: dict[str, Any] = {"max_words": 0, "max_word_ratio": 0.0, "max_subwords": 0}


@dataclasses.dataclass
class Reading(ReadReport):
    """A report that counts what a strict report refuses, instead of raising an error.

    Attributes:
      refused: Number of samples that would end data generation with an error, by reason.
    """

    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def drop(self, reason: str, path: str | os.PathLike, line: int, explanation: str) -> None:
        """Counts a line that cannot be used."""
        self.drop_item(reason, f"{path}:{line}", explanation)

    def drop_item(self, reason: str, item: str, explanation: str) -> None:
        """Counts a sample that cannot be used."""
        strict, self.strict = self.strict, False
        super().drop_item(reason, item, explanation)
        self.strict = strict
        self.refused[reason] += strict


@dataclasses.dataclass
class SplitDiagnosis:
    """The contents of one split.

    Attributes:
      examined: The sums over its pairs.
      reading: What reading dropped or changed, and the corpora.
      references: Largest number of translations of one source.
      fewest_references: Smallest number of translations of one source; 0 if there are no pairs.
      found_in_train: For dev and test: number of different texts that occur in train, by ``exact source`` and so on.
      different: Number of different texts, by the same names.
    """

    examined: Examination
    reading: Reading
    references: int = 1
    fewest_references: int = 0
    found_in_train: dict[str, int] = dataclasses.field(default_factory=dict)
    different: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Diagnosis:
    """The whole diagnosis of a problem.

    Attributes:
      problem: The problem's name.
      languages: Tags of source and target, or empty.
      published: Published number of pairs by split.
      splits: The diagnosis of each split by name, train first.
      subword_model: Where the subword models come from, in words.
      vocab_sizes: Vocabulary sizes of source and target.
      cleaning: The filters that were applied in order.
      asked: Whether these are the problem's or the user's own filters; otherwise they are all the usual ones.
      all_filters: The settings with which every filter was tried alone.
      repeated: Number of training pairs that repeat an earlier one, by ``pair``, ``source``, ``target``.
      repeated_example: The first repetition of each kind.
    """

    problem: str
    languages: tuple[str, str]
    published: Mapping[str, int]
    splits: dict[str, SplitDiagnosis]
    subword_model: str
    vocab_sizes: tuple[int, int]
    cleaning: Cleaning
    asked: bool
    all_filters: Cleaning
    repeated: dict[str, int] = dataclasses.field(default_factory=dict)
    repeated_example: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def train(self) -> Examination:
        """The sums over train."""
        return self.splits[TRAIN].examined


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor:
    """Examines a problem.

    Attributes:
      problem: The problem.
      tmp_dir: The directory of its raw files.
      scratch: An empty directory for scratch files with a few dozen bytes per pair.
      workers: The processes that examine the text.
      cleaning: The filters to apply, including the problem's own.
      settings: The user's settings of data generation.
      encoders: Subword models of source and target and where they come from, or None to train some.
      progress: Whether to show progress.
    """

    problem: Problem
    tmp_dir: str | os.PathLike
    scratch: pathlib.Path
    workers: Workers
    cleaning: Cleaning
    settings: GenerationSettings
    encoders: tuple[SubwordEncoder, SubwordEncoder, str] | None = None
    progress: bool = True

    def examine(self) -> Diagnosis:
        """Returns the whole diagnosis.

        Raises:
          UserError: The data cannot be read, or there is nothing to train on.
        """
        problem = self.problem
        problem.prepare(self.tmp_dir)
        names = list(text_features(problem.features()))[:2]
        if len(names) < 2:
            raise UserError(f"{problem.base_name} has {len(names)} text feature(s); the doctor looks at pairs.")
        source, target, origin = self.encoders or self._trained()
        plan = self._plan(source, target)
        diagnosis = Diagnosis(
            problem=problem.name,
            languages=plan.languages,
            published=dict(problem.published),
            splits={},
            subword_model=origin,
            vocab_sizes=(source.vocab_size, target.vocab_size),
            cleaning=plan.cleaning,
            asked=self.cleaning != Cleaning(),
            all_filters=plan.all_filters,
        )
        held_out: dict[str, dict[str, set[bytes]]] = {}
        merged: dict[str, set[bytes]] = collections.defaultdict(set)
        for split in problem.splits:
            if split != TRAIN:
                held_out[split] = collections.defaultdict(set)
                diagnosis.splits[split] = self._split(split, names, plan, held_out[split])
                for name, found in held_out[split].items():
                    merged[name] |= found
        # In addition, train is examined for duplicates and overlap.
        for kind in (filters.PAIR, filters.SOURCE, filters.TARGET):
            duplicates.prepare_directory(self.scratch / "alone", kind)
        duplicates.prepare_directory(self.scratch / "in_order", plan.cleaning.duplicates)
        written = duplicates.write_key_sets(self.scratch, merged) if merged else ("", "")
        plan = dataclasses.replace(plan, evaluation_keys=written, directory=self.scratch)
        diagnosis.splits = {TRAIN: self._split(TRAIN, names, plan, None), **diagnosis.splits}
        if not diagnosis.train.pairs:
            reading = diagnosis.splits[TRAIN].reading
            drops = ", ".join(f"{manifest.in_words(reason)}: {count:,}" for reason, count in reading.drops.items())
            drops = drops or "it is empty"
            raise UserError(f"The train split of {problem.base_name} has no pair that can be read ({drops}).")
        for split, keys in held_out.items():
            diagnosis.splits[split].different = {name: len(found) for name, found in keys.items()}
            diagnosis.splits[split].found_in_train = {
                name: len(found & diagnosis.train.found[name]) for name, found in keys.items()
            }
        self._count_duplicates(diagnosis, plan)
        return diagnosis

    def _plan(self, source: SubwordEncoder, target: SubwordEncoder) -> Plan:
        """Returns the plan for evaluation sets; saves the subword models where all processes find them."""
        paths = [self.scratch / f"{side}.model" for side in examination.SIDES]
        for path, encoder in zip(paths, (source, target), strict=True):
            encoder.save(path)
        usual = USUAL if self.problem.max_length_ratio else USUAL.replace(**_OF_DOCUMENTS)
        all_filters = usual.replace(**self.cleaning.given())
        ratio = self.settings.max_length_ratio
        return Plan(
            languages=self.problem.languages,
            models=((str(paths[0]), source.sha256), (str(paths[1]), target.sha256)),
            all_filters=all_filters,
            cleaning=self.cleaning if self.cleaning != Cleaning() else all_filters,
            max_length_ratio=self.problem.max_length_ratio if ratio is None else ratio,
            tags=tuple(self.problem.tags),
        )

    def _split(
        self, split: str, names: list[str], plan: Plan, held_out: dict[str, set[bytes]] | None
    ) -> SplitDiagnosis:
        """Examines a split; adds the keys of its texts to ``held_out``, which is None for train."""
        problem = self.problem
        report = problem.reading = Reading(strict=split != TRAIN)
        found = SplitDiagnosis(Examination(), report)
        total = problem.count(split, self.tmp_dir)
        samples = iter(problem.checked_samples(split, self.tmp_dir))

        def chunks() -> Iterator[ExaminedChunk]:
            for index, batch in enumerate(iter(lambda: list(itertools.islice(samples, PAIRS_PER_CHUNK)), [])):
                rows = [[[v] if isinstance(v := sample[name], str) else v for name in names] for sample in batch]
                sources = [source[0] for source, _ in rows]
                counts = [len(targets) for _, targets in rows]
                found.references = max(found.references, *counts)
                found.fewest_references = min(found.fewest_references or counts[0], *counts)
                if held_out is not None:
                    texts = without_tags(sources, problem.tags)
                    every = [(s, t) for s, (_, targets) in zip(texts, rows, strict=True) for t in targets]
                    for name, keys in examination.overlap_key_sets(list(zip(*every, strict=True))).items():
                        held_out[name].update(keys)
                targets = [targets[0] for _, targets in rows]
                yield ExaminedChunk(index, index * PAIRS_PER_CHUNK, (sources, targets), plan)

        with shown_progress(f"Examining {split}", total, "pairs", enabled=self.progress) as advance:
            for examined in self.workers.map(examination.examine, chunks()):
                found.examined.add(examined)
                advance(examined.pairs)
        for reason, worst in found.examined.worst.items():
            named = [(badness, row, f"{report.name_of(-row)}: {text}") for badness, row, text in worst]
            found.examined.worst[reason] = named
        return found

    def _count_duplicates(self, diagnosis: Diagnosis, plan: Plan) -> None:
        train = diagnosis.train
        sizes: dict[str, Any] = {
            "chunks": -(-train.pairs // PAIRS_PER_CHUNK), "chunk_size": PAIRS_PER_CHUNK, "workers": self.workers
        }  # fmt: skip

        def find(folder: str, kind: str, rows: int) -> duplicates.Found:
            with shown_progress(f"Finding duplicates ({kind})", rows, "pairs", enabled=self.progress) as advance:
                return duplicates.find(self.scratch / folder, kind, rows=rows, advance=advance, **sizes)

        for kind in (filters.PAIR, filters.SOURCE, filters.TARGET):
            found = find("alone", kind, train.pairs)
            diagnosis.repeated[kind] = found.pairs
            diagnosis.repeated_example[kind] = diagnosis.splits[TRAIN].reading.repetition(found.first)
        kinds = filters.kinds_of_keys(diagnosis.all_filters.duplicates)
        repeated = duplicates.collect(self.scratch / "alone", kinds, rows=train.pairs, **sizes)
        train.alone[filters.DUPLICATE] = repeated.pairs
        if plan.cleaning.duplicates != filters.NO:
            found = find("in_order", plan.cleaning.duplicates, train.left)
            train.in_order[filters.DUPLICATE] = found.pairs
            train.left -= found.pairs

    def _trained(self) -> tuple[SubwordEncoder, SubwordEncoder, str]:
        """Trains subword models on a sample as data generation would; returns them and where they come from."""
        problem, settings = self.problem, resolved(self.settings, self.problem)
        preparation = TextPreparation.of(problem, self.settings)
        preparation.check_merges(self.settings.num_merges)
        problem.reading = ReadReport()
        total = problem.count(TRAIN, self.tmp_dir)
        with shown_progress("Reading for the subword model", total, "pairs", enabled=self.progress) as advance:
            trained = vocabulary.train_vocabulary(
                vocabulary.with_progress(problem.checked_samples(TRAIN, self.tmp_dir), advance),
                problem.features(),
                vocab_size=settings.vocab_size or 0,
                joint=bool(settings.joint_vocab),
                sample_size=VOCABULARY_SAMPLE,
                seed=DEFAULT_SEED if settings.seed is None else settings.seed,
                workers=self.workers,
                preparation=preparation,
            )
        used = trained.training["samples_used"]
        return trained.source, trained.target, f"trained on {used:,} pairs, for these figures only"
