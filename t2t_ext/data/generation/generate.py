"""Makes a problem's data files: text -> subword models -> shuffled shards of ids, and a manifest.

All data are streamed, on all cores, and no file gets its final name before all are complete.
The files depend only on the raw data and the settings, not on the number of processes, the
time or the machine.
"""

import collections
import contextlib
import dataclasses
import errno
import functools
import importlib.metadata
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from t2t_ext import registry, version
from t2t_ext.config.generation import BEAM, GenerationConfig, GenerationSettings
from t2t_ext.data.datasets import manifest as manifests
from t2t_ext.data.datasets.generated import check_reversible, datagen_command
from t2t_ext.data.datasets.manifest import Manifest, SplitSummary
from t2t_ext.data.features.types import SOURCE, text_features
from t2t_ext.data.generation import cleaning, duplicates, text_checks, vocabulary, workspace
from t2t_ext.data.generation.encoding import Encoding, without_tags
from t2t_ext.data.generation.preparation import (
    NO_STEPS,
    SENTENCEPIECE,
    TextPreparation,
    check_given_steps,
    check_models_given,
)
from t2t_ext.data.generation.raw_inputs import describe_inputs
from t2t_ext.data.generation.raw_samples import RawSamples
from t2t_ext.data.generation.settings import (
    as_reused,
    cleaning_of,
    differences,
    recorded,
    resolved,
)
from t2t_ext.data.generation.split_writer import SplitWriter, checked_texts, no_usable_sample
from t2t_ext.data.generation.text_notes import counting_empty_texts, empty_texts_note, language_notes
from t2t_ext.data.generation.vocabulary import Vocabulary
from t2t_ext.data.generation.workers import BeamWorkers, Workers
from t2t_ext.data.text.preset_tokenizer import PresetTokenizer
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.io.progress import progress as shown_progress
from t2t_ext.problem import DEV, TRAIN, Problem, Sample

Say = Callable[[str], None]


def generate(
    problem: Problem | str,
    data_dir: str | os.PathLike,
    tmp_dir: str | os.PathLike,
    *,
    progress: bool = True,
    say: Say = print,
    **settings: Any,
) -> Manifest:
    """Makes the data files of a problem unless they exist already.

    Args:
      problem: The problem, or its registered name; ``NAME_rev`` shares the data of ``NAME``.
      data_dir: The directory for the files.
      tmp_dir: The directory in which raw files are looked up and to which they are downloaded.
      progress: Whether to show progress on standard error.
      say: Prints a line for the user.
      **settings: Fields of ``GenerationConfig`` (``vocab_size``, ``joint_vocab``, ``seed``, ``num_processes``, ...).
        A setting that is not given has its default or, if the data exist, the value that they were made with.

    Returns:
      The manifest of the data.

    Raises:
      UserError: The raw data, the settings or the data directory are invalid, or the directory has data made
        with other settings. No incomplete files are left behind.
    """
    problem = registry.problem(problem) if isinstance(problem, str) else problem
    asked = GenerationConfig(**settings)
    reused = vocabulary.reused_vocabulary(asked.subword_model, asked.vocab_from, problem)
    if reused:
        check_models_given(asked)
    if problem.was_reversed:
        check_given_steps(problem, asked)
        asked = asked.turned()
    generation = _Generation(
        problem=problem.base(),
        given=problem,
        data_dir=pathlib.Path(data_dir).expanduser(),
        tmp_dir=pathlib.Path(tmp_dir).expanduser(),
        settings=asked,
        preparation=TextPreparation.of(problem.base(), asked),
        reused=reused,
        progress=progress,
        say=say,
    )
    try:
        return generation.run()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(
            f"The disk of --data_dir={generation.data_dir} is full ({error.strerror}); nothing incomplete was left. "
            f"Make room or give another directory, then run the same command again."
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Generation:
    """One call of ``generate`` in the direction of ``problem``, the base of ``given``, which may be a ``NAME_rev``."""

    problem: Problem
    given: Problem
    data_dir: pathlib.Path
    tmp_dir: pathlib.Path
    settings: GenerationConfig
    preparation: TextPreparation
    reused: Vocabulary | None
    progress: bool
    say: Say

    def run(self) -> Manifest:
        """Returns the manifest of existing data if they match the settings, otherwise of new data."""
        settings = self.settings
        existing = None if settings.overwrite else self._existing()
        if existing:
            # A killed --overwrite leaves the old data and its own incomplete files.
            workspace.remove_abandoned(self.data_dir, self.problem.base_name)
            return existing
        with contextlib.ExitStack() as stack:
            work = stack.enter_context(workspace.locked_workspace(self.data_dir, self.problem.base_name, self.say))
            existing = None if settings.overwrite else self._existing()  # made while this process waited for the lock
            if existing:
                return existing
            if settings.runner == BEAM and settings.num_processes:
                raise UserError(
                    "--num_processes is for --runner=local; with Beam, its own options say how many there are."
                )
            if settings.runner != BEAM and settings.beam_options:
                raise UserError("--beam_options needs --runner=beam.")
            with_beam = settings.runner == BEAM
            workers = (
                BeamWorkers(settings.beam_options, work / "beam") if with_beam else Workers(settings.num_processes)
            )
            manifest = self._make(work, stack.enter_context(workers))
            workspace.publish(work, self.data_dir, self.problem.base_name)
        published, run = self.problem.published, settings.vocab_from
        for line in manifests.summary_lines(manifest, self.data_dir, published, vocab_from=run):
            self.say(line)
        return manifest

    def _existing(self) -> Manifest | None:
        """Returns the manifest of existing data that match the settings, or None if there are no data.

        Raises:
          UserError: The data are damaged or were made in another way.
        """
        name = self.problem.base_name
        try:
            manifest = Manifest.load(manifests.manifest_path(self.data_dir, name))
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise UserError(f"--data_dir={self.data_dir} is not a directory. Give another one.") from None
        again = (
            f"Make them again with {datagen_command(self.problem, self.data_dir)} --overwrite and what else you gave"
        )
        instead = "or give another --data_dir to keep both."
        damaged = manifest.damaged_files(self.data_dir, checksums=False)
        if damaged:
            raise UserError(
                f"Data files of {name} in {self.data_dir} are missing or damaged: {', '.join(damaged)}. {again}, "
                f"{instead}"
            )
        found = differences(
            manifest,
            self.problem,
            self.tmp_dir,
            self.settings,
            self._written(self.reused) if self.reused else None,
            was_reversed=self.given.was_reversed,
        )
        if found:
            raise UserError(
                f"The data of {name} in {self.data_dir} were made in another way: {'; '.join(found)}. {again} (runs "
                f"trained on the present data can then not be resumed), {instead}"
            )
        if self.given.was_reversed and not manifests.manifest_path(self.data_dir, self.given.data_name).is_file():
            check_reversible(manifest, self.given, self.data_dir)
        self.say(
            f"The data of {name} are in {self.data_dir} already, and nothing that was given now differs; nothing to do."
        )
        return manifest

    def _make(self, work: pathlib.Path, workers: Workers) -> Manifest:
        """Writes all files of the set into the workspace, the manifest last; returns the manifest."""
        problem, settings = self.problem, self._resolved()
        self.preparation.check_merges(self.settings.num_merges)
        filters = self._checked_cleaning()
        problem.prepare(self.tmp_dir)
        samples, totals = self._raw_samples(work)
        self._check_inputs()
        for note in language_notes(problem, self.preparation, samples[TRAIN]):
            self.say(note)
        inputs = describe_inputs(problem, self.tmp_dir)
        vocab = self._save_models(self._vocabulary(samples[TRAIN], totals[TRAIN], settings, workers), work)
        evaluation_keys = self._evaluation_keys(filters, samples, work)
        encoding = self._encoding(settings, filters, vocab, evaluation_keys, work)
        splits, shards = self._write_splits(samples, totals, encoding, settings.num_shards or 0, work, workers)
        if evaluation_keys[0]:
            os.unlink(evaluation_keys[0])
        others = sorted(path for path in work.iterdir() if path.is_file() and path.name not in shards)
        for path in others:
            with open(path, "rb") as file:
                os.fsync(file.fileno())  # so that it survives a power failure
        manifest = Manifest(
            problem=problem.base_name,
            problem_options=dict(problem.options),
            source_language=problem.source_language,
            target_language=problem.target_language,
            settings=recorded(settings),
            inputs=inputs,
            vocab=vocab,
            splits=splits,
            files={**{path.name: manifests.describe_file(path) for path in others}, **shards},
            versions=_versions(),
        )
        files.write_text_atomically(manifests.manifest_path(work, problem.base_name), manifest.to_json())
        return manifest

    def _raw_samples(self, work: pathlib.Path) -> tuple[dict[str, RawSamples], dict[str, int | None]]:
        """Returns samples by split, and their numbers (None if unknown); finds errors in files early."""
        problem, splits = self.problem, self.problem.splits
        if isinstance(splits, str) or TRAIN not in splits:
            raise UserError(
                f'splits of {type(problem).__name__} is {splits!r}; it must be a list with "{TRAIN}", such as '
                f'("{TRAIN}", "{DEV}").'
            )
        raw_files = {split: list(problem.source_files(split, self.tmp_dir)) for split in splits}
        totals = {split: problem.count(split, self.tmp_dir) for split in splits}
        for split in splits:
            if totals[split] == 0:
                paths = f" ({', '.join(map(str, raw_files[split]))})" if raw_files[split] else ""
                raise UserError(f"The {split} split of {problem.base_name} is empty{paths}.")
        samples = {split: RawSamples(problem, split, self.tmp_dir, work / f"{split}.samples") for split in splits}
        for split in splits:
            held_out = raw_files[TRAIN] and raw_files[split] == raw_files[TRAIN]
            if split != TRAIN and not held_out:  # finds unusable lines in it before all the work on train
                features, empty = problem.features(), dict[str, list[int]]()
                checked = checked_texts(samples[split].keep(), features, problem.base_name, split)
                collections.deque(counting_empty_texts(checked, features, empty), maxlen=0)
                if note := empty_texts_note(split, empty):
                    self.say(note)
        return samples, totals

    def _check_inputs(self) -> None:
        """Raises a UserError if a raw file would be overwritten by one of the new files."""
        for split in self.problem.splits:
            for path in self.problem.source_files(split, self.tmp_dir):
                beside = os.path.realpath(os.path.dirname(path) or ".") == os.path.realpath(self.data_dir)
                if beside and manifests.is_data_file(os.path.basename(path), self.problem.base_name):
                    raise UserError(
                        f"{path} is read and would be written over: it is a data file of {self.problem.base_name} in "
                        f"{self.data_dir}. Copy it elsewhere first, or give another --data_dir."
                    )

    def _checked_cleaning(self) -> cleaning.Cleaning:
        """Returns the cleaning, which is checked before anything is read."""
        asked = cleaning_of(self.problem, self.settings.cleaning)
        if not self._has_source_text():
            compares = [name for name in cleaning.OF_BOTH_SIDES if name in asked.given()]
            if compares:
                raise UserError(
                    f"--cleaning: {compares[0]} compares pairs of texts, but the source of {self.problem.base_name} is "
                    "feature vectors. Leave it out."
                )
        languages = self.problem.languages[0 if self._has_source_text() else 1 :]
        if asked.language:
            text_checks.require_language_identifier(languages)
        unknown = [tag or "(not given)" for tag in languages if not text_checks.scripts_of(tag)]
        if asked.script and unknown:
            self.say(f"Note: cleaning's script knows no script of the language {', '.join(unknown)}; such text passes.")
        return asked

    def _has_source_text(self) -> bool:
        return any(feature.side == SOURCE for feature in text_features(self.problem.features()).values())

    def _evaluation_keys(
        self, filters: cleaning.Cleaning, samples: dict[str, RawSamples], work: pathlib.Path
    ) -> tuple[str, str]:
        """Writes the keys of dev and test sets if needed; returns the file and its SHA-256, or empty texts."""
        if filters.test_overlap == cleaning.NO:
            return "", ""
        problem, names = self.problem, list(text_features(self.problem.features()))

        def pairs() -> Iterator[tuple[str, list[str]]]:
            for split in problem.splits:
                for sample in samples[split].keep() if split != TRAIN else ():
                    values = ([sample[name]] if isinstance(sample[name], str) else sample[name] for name in names)
                    (source, *_), *targets = values
                    yield without_tags([source], problem.tags)[0], targets[0] if targets else [source]

        return duplicates.write_evaluation_keys(work, filters, pairs())

    def _resolved(self) -> GenerationSettings:
        """Returns the settings of the data; given text encoders determine how text is prepared."""
        settings = resolved(self.settings, self.problem)
        if not self.reused:
            return settings
        given = as_reused(settings, self.reused)
        for name in ("source_steps", "target_steps", "subwords"):
            neutral = getattr(settings, name) in (NO_STEPS, SENTENCEPIECE)
            if not neutral and getattr(given, name) != getattr(settings, name):
                self.say(
                    f"Note: {self.problem.base_name} has {name}={getattr(settings, name)}, but the given model says "
                    f"{getattr(given, name)}, which counts."
                )
        return given

    def _vocabulary(
        self, samples: RawSamples, total: int | None, settings: GenerationSettings, workers: Workers
    ) -> Vocabulary:
        """Returns the subword models that are given, or trains them; says which tags the source's model splits."""
        vocab = self.reused or self._trained_vocabulary(samples, total, settings, workers)
        if spelt := vocabulary.tags_in_pieces(vocab.source, self.problem.tags):
            self.say(
                f"Note: {', '.join(spelt)} {'is' if len(spelt) == 1 else 'are'} spelt in several subwords, as the "
                "source's subword model was trained without them."
            )
        return self._written(vocab)

    def _written(self, vocab: Vocabulary) -> Vocabulary:
        """Returns the subword models that are written: only the target's if the source is feature vectors."""
        return vocab if self._has_source_text() else dataclasses.replace(vocab, source=vocab.target)

    def _trained_vocabulary(
        self, samples: RawSamples, total: int | None, settings: GenerationSettings, workers: Workers
    ) -> Vocabulary:
        """Trains subword models on a sample of the training split, whose samples are kept for encoding."""

        def training_samples() -> Iterator[Sample]:
            """Yields the samples; if there are none, raises an error that says why."""
            sample = None
            for sample in samples.keep():
                yield sample
            if sample is None:
                raise no_usable_sample(self.problem.base_name, TRAIN, samples.report.drops, samples.report)

        filters = cleaning_of(self.problem, self.settings.cleaning)
        with shown_progress("Reading for the subword model", total, "samples", enabled=self.progress) as advance:
            trained = vocabulary.train_vocabulary(
                vocabulary.with_progress(training_samples(), advance),
                self.problem.features(),
                vocab_size=settings.vocab_size or 0,
                joint=bool(settings.joint_vocab),
                sample_size=settings.vocab_sample_size or 0,
                seed=settings.seed or 0,
                workers=workers,
                preparation=self.preparation,
                fit=None if filters == cleaning.Cleaning() else functools.partial(self._are_clean, filters),
                keep_prepared=samples.keep_prepared,
            )
        trained = self._with_presets(trained, settings)
        size = settings.vocab_size or 0
        for side, encoder in (("source", trained.source), ("target", trained.target)):
            once = not (trained.joint and side == "target")
            if encoder.kind == SENTENCEPIECE and encoder.vocab_size < size and once:
                self.say(
                    f"Note: the corpus is too small for {size:,} subwords; "
                    f"the {'joint' if trained.joint else side} model has all {encoder.vocab_size:,} that it gives."
                )
        return trained

    @staticmethod
    def _with_presets(trained: Vocabulary, settings: GenerationSettings) -> Vocabulary:
        """Returns the vocabulary with the tokenizers of given presets in place of the trained models."""
        for side in ("source", "target"):
            if preset := getattr(settings, f"{side}_tokenizer"):
                tokenizer = PresetTokenizer.from_preset(os.path.expanduser(preset))
                encoder: dict[str, Any] = {side: SubwordEncoder.make(TextSteps(), tokenizer)}
                trained = dataclasses.replace(trained, **encoder)
        return trained

    def _are_clean(self, filters: cleaning.Cleaning, *texts: Sequence[str]) -> np.ndarray:
        """Returns which pairs pass the filters that look at single pairs: bool [pairs].

        ``texts`` are the raw sources, the raw targets, the prepared sources and the prepared targets.

        Raises:
          UserError: No pair passes.
        """
        texts = tuple(without_tags(column, self.problem.tags) for column in texts)
        columns = [cleaning.Column(*side) for side in zip(texts[:2], texts[2:], self.problem.languages, strict=True)]
        drops: collections.Counter[str] = collections.Counter()
        kept = np.ones(len(texts[0]), bool)
        for reason, unfit in cleaning.unfit_pairs(filters, columns):
            drops[reason] += int((kept & unfit).sum())  # a pair counts for the first reason only
            kept &= ~unfit
        if not kept.any():
            drops = +drops
            if len(kept) == self._resolved().vocab_sample_size:  # the corpus may have more pairs than the sample
                dropped = ", ".join(f"{manifests.in_words(reason)}: {count}" for reason, count in drops.items())
                raise UserError(
                    f"None of the {len(kept):,} pairs that the subword model would be trained on is left after "
                    f"cleaning ({dropped}). Raise --vocab_sample_size={len(kept)}, or take filters out of --cleaning."
                )
            raise no_usable_sample(self.problem.base_name, TRAIN, drops, self.problem.reading)
        return kept

    def _save_models(self, vocab: Vocabulary, work: pathlib.Path) -> dict[str, Any]:
        """Writes the subword models into the workspace; returns their description for the manifest."""
        described: dict[str, Any] = {"joint": vocab.joint, "training": vocab.training}
        for side, encoder in (("source", vocab.source), ("target", vocab.target)):
            name = manifests.vocab_name(self.problem.base_name, encoder.vocab_size, "" if vocab.one_file else side)
            encoder.save(work / name)
            described[side] = {"file": name, "size": encoder.vocab_size, "sha256": encoder.sha256}
            if not encoder.takes_raw_text:
                described[side]["text"] = encoder.record()
        return described

    def _encoding(
        self,
        settings: GenerationSettings,
        filters: cleaning.Cleaning,
        vocab: dict[str, Any],
        evaluation_keys: tuple[str, str],
        work: pathlib.Path,
    ) -> Encoding:
        """Returns how training samples become arrays, with the models that ``_save_models`` has described."""
        source_model, target_model = (
            (str(work / vocab[side]["file"]), vocab[side]["sha256"]) for side in ("source", "target")
        )
        return Encoding(
            features=self.problem.features(),
            source_model=source_model,
            target_model=target_model,
            training=True,
            cleaning=filters,
            languages=self.problem.languages,
            tags=tuple(self.problem.tags),
            evaluation_keys=evaluation_keys,
            max_tokens=settings.max_tokens or 0,
            max_length_ratio=settings.max_length_ratio or 0.0,
            seed=settings.seed or 0,
            bpe_dropout=settings.bpe_dropout or 0.0,
            segmentations=settings.segmentations or 1,
        )

    def _write_splits(
        self,
        samples: dict[str, RawSamples],
        totals: dict[str, int | None],
        encoding: Encoding,
        num_shards: int,
        work: pathlib.Path,
        workers: Workers,
    ) -> tuple[dict[str, SplitSummary], dict[str, dict[str, Any]]]:
        """Encodes all splits; returns a summary of each, and size and SHA-256 of every shard by file name."""
        summaries: dict[str, SplitSummary] = {}
        written: dict[str, dict[str, dict[str, Any]]] = {}
        # Train comes last: an unusable sample of dev or test, such as damaged features, is found before all its work.
        for split in sorted(self.problem.splits, key=lambda name: name == TRAIN):
            writer = SplitWriter(
                directory=work,
                base_name=self.problem.base_name,
                split=split,
                samples=samples[split],
                encoding=dataclasses.replace(encoding, training=split == TRAIN),
                workers=workers,
                num_shards=num_shards,
                progress=self.progress,
            )
            with shown_progress(f"Encoding {split}", totals[split], "samples", enabled=self.progress) as advance:
                summaries[split], written[split] = writer.write(advance)
        splits = self.problem.splits
        shards = {name: described for split in splits for name, described in written[split].items()}
        return {split: summaries[split] for split in splits}, shards


def _versions() -> dict[str, str]:
    versions = {"t2t_ext": version.__version__}
    for package in ("numpy", "sentencepiece", "sacremoses", "subword-nmt", "jieba", "Babel"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # jieba comes with an extra
            versions[package] = importlib.metadata.version(package)
    return versions
