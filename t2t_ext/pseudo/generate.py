"""Makes pseudo references: two trained models translate the training and development data (``P_synchronous``).

Source: Zhou, Zhang and Zong, "Synchronous Bidirectional Neural Machine Translation" (2019), section 3.4. In training,
the other direction of a target is a model's translation of the source. If it were the reference, each direction would
see the other's answer.

This module imports TensorFlow only when something is translated.
"""

import dataclasses
import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.datasets import pseudo_references as sidecars
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import describe_file, manifest_path
from t2t_ext.data.datasets.pseudo_references import DIRECTIONS, SPLITS, SUFFIX, PseudoManifest, PseudoReferences
from t2t_ext.data.datasets.target_variants import FROM_L2R, FROM_R2L, ids_of
from t2t_ext.data.generation.workspace import publish
from t2t_ext.errors import UserError
from t2t_ext.io import files
from t2t_ext.io.interruption import Interrupted, SignalWatch
from t2t_ext.io.progress import progress
from t2t_ext.pseudo import work as pseudo_work
from t2t_ext.pseudo.checks import Teachers
from t2t_ext.pseudo.translating import translate_sources
from t2t_ext.pseudo.work import DEFAULT_CHUNK_PAIRS, NOT_IN_THE_TRANSLATIONS, Chunk, Translations, WorkFolder
from t2t_ext.runs.run_directory import package_versions

if TYPE_CHECKING:
    from t2t_ext.translation.translator import Translator

_BLEU_PAIRS = 2000
_BYTES_PER_TOKEN = 8  # ids and text together, in chunks as well as in the finished files
_ALWAYS_NOTED = ("beam_size", "alpha")

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoConfig:
    """Settings of the pseudo references.

    Attributes:
      decode_hparams: How the translations are searched for.
      max_length: Translations with more tokens, including EOS, count as failed.
      chunk_pairs: Number of pairs that are translated before they are saved; a killed process loses no more than these.
      shard: (i, n), i from 0: this process does the i-th of n parts of the work; (0, 1): all of it.
      join: Whether existing chunks are only joined; nothing is translated, and a missing chunk is an error.
      overwrite: Whether finished pseudo references, and work done with other models, are replaced.
    """

    decode_hparams: DecodeHParams
    max_length: int
    chunk_pairs: int = DEFAULT_CHUNK_PAIRS
    shard: tuple[int, int] = (0, 1)
    join: bool = False
    overwrite: bool = False


class PseudoDecoding:
    """Makes the pseudo references of a problem, or resumes making them."""

    def __init__(self, data: GeneratedData, problem: str, teachers: Teachers, config: PseudoConfig, say: Say) -> None:
        """Prepares the work; nothing is translated or written yet.

        Args:
          data: The problem's data.
          problem: Name of the problem, without ``_synchronous``.
          teachers: The runs that translate.
          config: The settings.
          say: Receives messages about the progress, line by line.

        Raises:
          UserError: The shortlist cannot be read.
        """
        one = config.decode_hparams.replace(num_hypotheses=1, return_beams=False)
        self._config = dataclasses.replace(config, decode_hparams=one)
        self._data, self._problem, self._teachers, self._say = data, problem, teachers, say
        self._signals = SignalWatch()
        self._stores: dict[str, ExampleStore] = {}
        self._translators: dict[str, Translator] = {}
        # Decode hparams that a translation depends on: always the best-known ones, others if not the default.
        default = DecodeHParams().to_dict()
        search = {
            name: value
            for name, value in config.decode_hparams.to_dict().items()
            if name not in NOT_IN_THE_TRANSLATIONS and (name in _ALWAYS_NOTED or value != default[name])
        }
        self._settings: dict[str, dict[str, Any]] = {
            "data": {"digest": data.digest()},
            "models": teachers.described(),
            "settings": {
                "decode_hparams": search,
                "max_length": config.max_length,
                **pseudo_work.shortlist_settings(config.decode_hparams),
            },
        }

    def run(self) -> str:
        """Does this process's part of the work, and joins everything unless the work is shared.

        Returns:
          The name of the signal that stopped it, or an empty string.

        Raises:
          UserError: Finished or unfinished pseudo references made in another way are there, a file is damaged, the
            disk or the memory is full, or a chunk that ``join`` needs is missing.
        """
        files.remove_leftovers(self._data.data_dir)  # a work folder whose removal was interrupted
        if self._is_finished():
            return ""
        sizes = {split: pseudo_work.shard_sizes(self._data, split) for split in SPLITS if split in self._data.splits}
        # The development set comes first: its BLEU shows whether the rest is worth the time.
        pairs = {split: sum(sizes[split]) for split in reversed(SPLITS) if split in sizes}
        chunks = pseudo_work.plan(pairs, self._config.chunk_pairs)
        number, count = self._config.shard
        mine = chunks[number::count]
        settings = {**self._settings, "chunk_pairs": self._config.chunk_pairs}
        folder = self._data.data_dir / f".{self._problem}{SUFFIX}.decoding"
        what, overwrite = "these pseudo references", self._config.overwrite
        with WorkFolder.open(folder, settings, overwrite, what, self._config.shard) as work:
            missing = [chunk for chunk in mine if not work.is_done(chunk)]
            total, to_do, left = (sum(chunk.pairs for chunk in each) for each in (chunks, mine, missing))
            part = f"part {number + 1} of {count}: " if count > 1 else ""
            done = f", {to_do - left:,} of them are there already" if left < to_do else ""
            self._say(f"Pseudo references of {self._problem}, {part}{to_do:,} translations by two models{done}.")
            # The space for the finished files, and as much again for the chunks that are still to be made.
            splits = [self._data.manifest.splits[split] for split in sizes]
            finished = len(DIRECTIONS) * sum(max(split.tokens.values()) for split in splits) * _BYTES_PER_TOKEN
            files.require_space(self._data.data_dir / self._problem, int((1 + left / max(total, 1)) * finished))
            if self._config.join and missing:
                raise UserError(
                    f"{len(missing):,} of {len(chunks):,} chunks are missing in {work.path} (the first is "
                    f"{missing[0].name}). Let the machines that have them finish, or copy them there; without --join "
                    f"they are made here."
                )
            with self._signals.watching():
                try:
                    self._translate_all(work, missing)
                except Interrupted:
                    left = sum(not work.is_done(chunk) for chunk in mine)
                    self._say(
                        f"Stopped by {self._signals.received}: {len(mine) - left:,} of {len(mine):,} chunks are kept "
                        f"in {work.path}. Run the same command again to resume."
                    )
                    return self._signals.received
            if count == 1:
                self._join(work, chunks, sizes)
            else:
                then, elsewhere = "All parts are there: join them", sum(not work.is_done(chunk) for chunk in chunks)
                if elsewhere:
                    other = f"{elsewhere:,} of {len(chunks):,} chunks of other parts"
                    then = f"{other} are not in this folder; when they are, join them"
                self._say(
                    f"Part {number + 1} of {count} is done, in {work.path}. {then} by the same command with --join in "
                    f"place of --shard."
                )
        return ""

    # === What is there ===

    def _is_finished(self) -> bool:
        """Returns whether finished pseudo references already exist that need not be made again."""
        data_dir, name = self._data.data_dir, self._problem + SUFFIX
        try:
            manifest = PseudoManifest.load(manifest_path(data_dir, name))
        except FileNotFoundError:
            return False
        except UserError:
            if self._config.overwrite:
                return False
            raise
        before = {"data": manifest.data, "models": manifest.models, "settings": manifest.settings}
        different = pseudo_work.differences(before, self._settings)
        damaged = manifest.damaged_files(data_dir, checksums=self._config.overwrite)
        if self._config.overwrite and (different or damaged):
            return False
        if different:
            raise UserError(
                f"The pseudo references of {self._problem} in {data_dir} were made in another way: "
                f"{'; '.join(different)}. Give --overwrite to replace them, or another --data_dir to keep both."
            )
        if damaged:
            raise UserError(
                f"Files of the pseudo references of {self._problem} in {data_dir} are missing or have another size: "
                f"{', '.join(damaged)}. Give --overwrite to make them again."
            )
        work = data_dir / f".{name}.decoding"
        if work.exists():  # killed while it was cleaning up
            files.remove_directory(work)
        self._say(f"The pseudo references of {self._problem} are in {data_dir} already; nothing to do.")
        for line in (*sidecars.table(manifest), *sidecars.warnings(manifest)):
            self._say(line)
        return True

    # === Translating ===

    def _translate_all(self, work: WorkFolder, missing: Sequence[Chunk]) -> None:
        """Translates chunks and saves each of them."""
        for direction in dict.fromkeys(chunk.direction for chunk in missing):
            # All are loaded before hours of work begin.
            self._translators[direction] = self._teachers.translator(direction, self._config.decode_hparams)
        total = sum(chunk.pairs for chunk in missing)
        with progress("Translating", total, "sentences") as advance:
            for chunk in missing:
                work.save(chunk, self._translated(chunk, advance))
                if self._signals.received:
                    raise Interrupted
                if chunk.split == "dev" and chunk.last == self._store("dev").num_examples:
                    self._report_dev(work, chunk.direction)

    def _translated(self, chunk: Chunk, advance: Callable[[int], None]) -> Translations:
        """Translates the pairs of a chunk."""
        store = self._store(chunk.split)
        sources = [store.example(number)[0] for number in range(chunk.first, chunk.last)]
        translator = self._translators[chunk.direction]
        return translate_sources(translator, sources, self._config.max_length, self._signals, advance)

    def _store(self, split: str) -> ExampleStore:
        if split not in self._stores:
            self._stores[split] = ExampleStore.load(self._data, split)
        return self._stores[split]

    def _report_dev(self, work: WorkFolder, direction: str) -> None:
        """Reports the BLEU of the development set's translations, so that a bad model is noticed before hours of work.

        If the work is shared, this machine may have only a part of the translations; it then reports nothing.
        """
        store = self._store("dev")
        chunks = pseudo_work.plan({"dev": store.num_examples}, self._config.chunk_pairs)
        chunks = [chunk for chunk in chunks if chunk.direction == direction]
        if not all(map(work.is_done, chunks)):
            return
        made = [ids for chunk in chunks for ids in work.load(chunk).ids]
        score, pairs = _bleu(store, self._data, lambda number: made[number])
        self._say(f"dev, {direction}: BLEU {score.value:.2f} against the references of {pairs:,} pairs.")

    # === Joining ===

    def _join(self, work: WorkFolder, chunks: Sequence[Chunk], sizes: Mapping[str, Sequence[int]]) -> None:
        """Makes the finished files from all chunks, checks them by reading them, and puts them beside the data."""
        name = self._problem + SUFFIX
        folder = work.path / "finished"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        splits = {}
        for split in sizes:
            of_split = [chunk for chunk in chunks if chunk.split == split]
            splits[split] = pseudo_work.join(work, of_split, sizes[split], name, split, folder)
        written = [name for split in splits.values() for name in (*split.shards, *split.texts.values())]
        manifest = PseudoManifest(
            problem=name,
            data=self._settings["data"],
            models=self._settings["models"],
            settings=self._settings["settings"],
            splits=splits,
            files={name: describe_file(folder / name) for name in written},
            versions=package_versions(),
        )
        sidecar = PseudoReferences(folder, manifest, sidecars.command(self._problem, self._data.data_dir))
        data = GeneratedData(self._data.data_dir, self._data.manifest, self._data.was_reversed, sidecar)
        splits = {
            split: dataclasses.replace(made, statistics=split_statistics(ExampleStore.load(data, split), data))
            for split, made in splits.items()
        }
        manifest = dataclasses.replace(manifest, splits=splits)
        sidecars.check_made(manifest)
        files.write_text_atomically(manifest_path(folder, name), manifest.to_json())
        publish(folder, self._data.data_dir, name)
        work.remove()
        where = f"{name} is in {self._data.data_dir}: train with --problem={name}."
        for line in (*sidecars.table(manifest), where, *sidecars.warnings(manifest)):
            self._say(line)


def split_statistics(store: ExampleStore, data: GeneratedData) -> dict[str, dict[str, Any]]:
    """Returns statistics about the pseudo references of a split, by direction."""

    def mean(lengths: np.ndarray) -> float:
        return round(float(lengths.mean()), 4) if len(lengths) else 0.0

    found = {}
    for direction, field in zip(DIRECTIONS, (FROM_L2R, FROM_R2L), strict=True):
        ids, offsets = ids_of(store, field)
        lengths = np.diff(offsets)
        there = lengths > 0
        score, pairs = _bleu(store, data, functools.partial(_sequence, ids, offsets))
        found[direction] = {
            "made": int(there.sum()),
            "mean_length": mean(lengths[there]),
            "mean_gold_length": mean(store.target_lengths[there]),
            "identical_to_gold": int(_identical((ids, offsets), (store.targets, store.target_offsets)).sum()),
            "bleu": round(score.value, 4),
            "bleu_pairs": pairs,
            "bleu_signature": score.signature,
        }
    return found


def _sequence(ids: np.ndarray, offsets: np.ndarray, number: int) -> np.ndarray:
    return ids[offsets[number] : offsets[number + 1]]


def _bleu(
    store: ExampleStore, data: GeneratedData, pseudo: Callable[[int], Sequence[int] | np.ndarray]
) -> tuple[Any, int]:
    """Returns the BLEU of evenly spread pairs, counting failed ones as empty translations, and their number."""
    from t2t_ext.evaluation import protocols

    encoder = data.text_encoders()[1]
    numbers = np.unique(np.linspace(0, store.num_examples - 1, _BLEU_PAIRS).astype(np.int64)).tolist()
    made, gold = (
        encoder.restore([encoder.decode(ids) for ids in sequences])
        for sequences in ((pseudo(n) for n in numbers), (store.example(n)[1] for n in numbers))
    )
    (score,) = protocols.score("sacrebleu", made, [gold], language=data.target_language)
    return score, len(numbers)


def _identical(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns which sequences are the same in two sets of flat ids and offsets, bool [N]; empty ones do not count."""
    lengths = [np.diff(offsets) for _, offsets in (one, other)]
    same = (lengths[0] == lengths[1]) & (lengths[0] > 0)
    rows = np.flatnonzero(same)
    for first in range(0, len(rows), 1 << 18):
        block = rows[first : first + (1 << 18)]
        sizes = lengths[0][block]
        starts = np.cumsum(sizes) - sizes
        within = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
        tokens = [ids[np.repeat(offsets[block], sizes) + within] for ids, offsets in (one, other)]
        same[block] = np.logical_and.reduceat(tokens[0] == tokens[1], starts)
    return same
