"""Makes a problem's data files: text -> subword models -> shuffled shards of ids, and a manifest.

Everything streams, on all cores, and nothing gets its final name before all of it is done.
What is written depends on the raw data and the settings alone, not on the number of
processes, the time or the machine.
"""

import collections
import contextlib
import dataclasses
import errno
import importlib.metadata
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from t2t_ext import version
from t2t_ext.data import manifest as manifests
from t2t_ext.data import summary, vocabulary, workspace
from t2t_ext.data.manifest import Manifest, SplitSummary
from t2t_ext.data.progress import progress as shown_progress
from t2t_ext.data.readers import ReadReport
from t2t_ext.data.settings import GeneratesSamples, GenerationSettings, describe_inputs, differences
from t2t_ext.data.sharding import Encoding
from t2t_ext.data.split_writer import SplitWriter, no_usable_sample
from t2t_ext.data.vocabulary import Vocabulary
from t2t_ext.data.workers import Workers
from t2t_ext.errors import UserError
from t2t_ext.persistence import files

TRAIN = "train"
Say = Callable[[str], None]


def generate(
    problem: GeneratesSamples,
    data_dir: str | os.PathLike,
    tmp_dir: str | os.PathLike,
    *,
    subword_model: str = "",
    vocab_from: str = "",
    overwrite: bool = False,
    num_processes: int = 0,
    progress: bool = True,
    say: Say = print,
    **settings: Any,
) -> Manifest:
    """Makes the data files of a problem, unless they are there already.

    Args:
      problem: The problem; of ``NAME_rev`` the data are those of ``NAME``.
      data_dir: Where the files go.
      tmp_dir: Where raw files are looked for and downloaded to.
      subword_model: A SentencePiece model file to use instead of training one (or two: ``source,target``).
      vocab_from: A run directory whose subword models are used instead of training any.
      overwrite: Whether to replace data that are there.
      num_processes: How many processes encode; 0 for one per core. The result does not depend on it.
      progress: Whether to show progress on standard error.
      say: Prints a line for the user.
      **settings: Fields of ``GenerationSettings`` (``seed``, ``num_shards``, ``vocab_size``, ``joint_vocab``, ...).
        What is not given has its default or, where the data exist, whatever they were made with.

    Returns:
      The manifest of the data.

    Raises:
      UserError: The raw data, the settings or the data directory are at fault, or data made with other
        settings are there. Nothing half-made is left.
    """
    asked = GenerationSettings(**settings)
    reused = vocabulary.reused_vocabulary(subword_model, vocab_from, problem.was_reversed)
    if reused and (asked.vocab_size or asked.joint_vocab is not None):
        raise UserError(
            "--vocab_size and --separate_vocab say how to train a subword model, but one is given; leave them out."
        )
    generation = _Generation(
        problem=problem.base(),
        data_dir=pathlib.Path(data_dir).expanduser(),
        tmp_dir=pathlib.Path(tmp_dir).expanduser(),
        settings=asked,
        reused=reused,
        num_processes=num_processes,
        progress=progress,
        say=say,
    )
    return generation.run(overwrite)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Generation:
    """One call of ``generate``."""

    problem: GeneratesSamples
    data_dir: pathlib.Path
    tmp_dir: pathlib.Path
    settings: GenerationSettings
    reused: Vocabulary | None
    num_processes: int
    progress: bool
    say: Say

    def run(self, overwrite: bool) -> Manifest:
        """Returns the manifest of existing data that are as asked for, or of new ones."""
        existing = None if overwrite else self._existing()
        if existing:
            # A killed --overwrite leaves the data that were to be replaced, and what it had made.
            workspace.remove_abandoned(self.data_dir, self.problem.base_name)
            return existing
        with _disk_errors_explained(self.data_dir), contextlib.ExitStack() as stack:
            work = stack.enter_context(workspace.locked_workspace(self.data_dir, self.problem.base_name, self.say))
            existing = None if overwrite else self._existing()  # made while this process waited for the lock
            if existing:
                return existing
            workers = stack.enter_context(Workers(self.num_processes))
            manifest = self._make(work, workers)
            workspace.publish(work, self.data_dir, self.problem.base_name)
        for line in summary.lines(manifest, self.data_dir):
            self.say(line)
        return manifest

    def _existing(self) -> Manifest | None:
        """Returns the manifest of data that are there and as asked for, or None where there are none.

        Raises:
          UserError: They are there, but damaged or made in another way.
        """
        name = self.problem.base_name
        try:
            manifest = Manifest.load(manifests.manifest_path(self.data_dir, name))
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise UserError(f"--data_dir={self.data_dir} is not a directory. Give another one.") from None
        again = (
            f"Make them anew with t2t_ext-datagen --problem={name} --data_dir={self.data_dir} ... --overwrite, or give "
            f"another --data_dir to keep both."
        )
        damaged = manifest.damaged_files(self.data_dir, checksums=False)
        if damaged:
            raise UserError(
                f"Data files of {name} in {self.data_dir} are missing or damaged: {', '.join(damaged)}. {again}"
            )
        found = differences(manifest, self.problem, self.tmp_dir, self.settings, self.reused)
        if found:
            raise UserError(
                f"The data of {name} in {self.data_dir} were made in another way: {'; '.join(found)}. {again}"
            )
        self.say(
            f"The data of {name} are in {self.data_dir} already, and nothing that was given now differs; nothing to do."
        )
        return manifest

    def _make(self, work: pathlib.Path, workers: Workers) -> Manifest:
        """Writes all files of the set, the manifest last, into the workspace; returns the manifest."""
        problem, settings = self.problem, self.settings.resolved(self.problem)
        problem.prepare(self.tmp_dir)
        totals = {split: self._counted(split) for split in problem.splits}
        inputs = describe_inputs(problem, self.tmp_dir)
        self._check_evaluation_sets()
        vocab = self.reused or self._trained_vocabulary(totals[TRAIN], settings, workers)
        described, model_files = _write_models(vocab, work, problem.base_name)
        encoding = Encoding(
            features=problem.features(),
            source_model=model_files["source"],
            target_model=model_files["target"],
            training=True,
            max_tokens=settings.max_tokens or 0,
            max_length_ratio=settings.max_length_ratio or 0.0,
            seed=settings.seed or 0,
        )
        writer = SplitWriter(
            directory=work, base_name=problem.base_name, workers=workers, num_shards=settings.num_shards or 0
        )
        splits: dict[str, SplitSummary] = {}
        shards: dict[str, dict[str, Any]] = {}
        for split in problem.splits:
            splits[split], written = self._write_split(split, totals[split], writer, encoding)
            shards.update(written)
        others = sorted(path for path in work.iterdir() if path.name not in shards)
        for path in others:
            workspace.flush_file(path)
        manifest = Manifest(
            problem=problem.base_name,
            problem_options=dict(problem.options),
            source_language=getattr(problem, "source_language", ""),
            target_language=getattr(problem, "target_language", ""),
            settings=settings.given(),
            inputs=inputs,
            vocab=described,
            splits=splits,
            files={**{path.name: manifests.describe_file(path) for path in others}, **shards},
            versions=_versions(),
        )
        files.write_text_atomically(manifests.manifest_path(work, problem.base_name), manifest.to_json())
        return manifest

    def _counted(self, split: str) -> int | None:
        """Returns the number of samples of a split where it is known; finds what is wrong with files early."""
        total = self.problem.count(split, self.tmp_dir)
        if total == 0:
            paths = ", ".join(map(str, self.problem.source_files(split, self.tmp_dir)))
            raise UserError(f"The {split} split of {self.problem.base_name} is empty{f' ({paths})' if paths else ''}.")
        return total

    def _check_evaluation_sets(self) -> None:
        """Reads dev and test sets, so that a line that cannot be used is found before all the work on train."""
        trained_on = list(self.problem.source_files(TRAIN, self.tmp_dir))
        for split in self.problem.splits:
            held_out = trained_on and list(self.problem.source_files(split, self.tmp_dir)) == trained_on
            if split != TRAIN and not held_out:
                self.problem.reading = ReadReport(strict=True)
                collections.deque(self.problem.checked_samples(split, self.tmp_dir), maxlen=0)

    def _training_samples(self) -> Iterator[dict[str, Any]]:
        """Yields the samples of train; says why there are none."""
        sample = None
        for sample in self.problem.checked_samples(TRAIN, self.tmp_dir):
            yield sample
        if sample is None:
            raise no_usable_sample(self.problem.base_name, TRAIN, self.problem.reading.drops, self.problem.reading)

    def _trained_vocabulary(self, total: int | None, settings: GenerationSettings, workers: Workers) -> Vocabulary:
        problem = self.problem
        problem.reading = ReadReport()
        with shown_progress("Reading for the subword model", total, "samples", enabled=self.progress) as advance:
            trained = vocabulary.train_vocabulary(
                vocabulary.with_progress(self._training_samples(), advance),
                problem.features(),
                vocab_size=settings.vocab_size or 0,
                joint=bool(settings.joint_vocab),
                sample_size=settings.vocab_sample_size or 0,
                seed=settings.seed or 0,
                workers=workers,
            )
        for side, encoder in (("source", trained.source), ("target", trained.target)):
            if encoder.vocab_size < (settings.vocab_size or 0) and not (trained.joint and side == "target"):
                self.say(
                    f"Note: the corpus is too small for {settings.vocab_size:,} subwords; "
                    f"the {'joint' if trained.joint else side} model has all {encoder.vocab_size:,} that it gives."
                )
        return trained

    def _write_split(
        self, split: str, total: int | None, writer: SplitWriter, encoding: Encoding
    ) -> tuple[SplitSummary, dict[str, dict[str, Any]]]:
        training = split == TRAIN
        report = ReadReport(strict=not training)
        self.problem.reading = report
        samples = self.problem.checked_samples(split, self.tmp_dir)
        encoding = dataclasses.replace(encoding, training=training)
        with shown_progress(f"Encoding {split}", total, "samples", enabled=self.progress) as advance:
            return writer.write(split, samples, encoding, report, advance)


def _write_models(
    vocab: Vocabulary, work: pathlib.Path, base_name: str
) -> tuple[dict[str, Any], dict[str, tuple[str, str]]]:
    """Writes the subword models; returns their description and, for each side, path and SHA-256."""
    described: dict[str, Any] = {"joint": vocab.joint, "training": vocab.training}
    model_files = {}
    for side, encoder in (("source", vocab.source), ("target", vocab.target)):
        name = manifests.vocab_name(base_name, encoder.vocab_size, "" if vocab.joint else side)
        encoder.save(work / name)
        described[side] = {"file": name, "size": encoder.vocab_size, "sha256": encoder.sha256}
        model_files[side] = (str(work / name), encoder.sha256)
    return described, model_files


def _versions() -> dict[str, str]:
    packages = ("numpy", "sentencepiece", "Babel")
    return {"t2t_ext": version.__version__, **{name: importlib.metadata.version(name) for name in packages}}


@contextlib.contextmanager
def _disk_errors_explained(data_dir: pathlib.Path) -> Iterator[None]:
    """Turns a full disk into a UserError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise UserError(
                f"The disk of --data_dir={data_dir} is full ({error.strerror}); nothing half-made was left. "
                f"Make room or give another directory, then run the same command again."
            ) from error
        raise
