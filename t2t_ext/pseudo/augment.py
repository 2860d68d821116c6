"""Makes new training data from existing data: models' translations, or the pairs in both directions.

Sources: both directions first, Ding et al. 2021 (arXiv 2109.07780) and Gao et al. 2022 (Bi-SimCut, arXiv 2206.02368);
sequence-level distillation, Kim and Rush 2016 (arXiv 1606.07947); data diversification, Nguyen et al. 2020 (arXiv
1911.01986); back-translation, Sennrich et al. 2016 (arXiv 1511.06709), with a tag, Caswell et al. 2019 (arXiv
1906.06442).

This module imports TensorFlow only when something is translated.
"""

import dataclasses
import itertools
import pathlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_ext import registry
from t2t_ext.config.decode import DecodeHParams
from t2t_ext.data.corpora import readers
from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import Manifest, describe_file, manifest_path
from t2t_ext.data.generation.workspace import publish
from t2t_ext.data.text.special_ids import CONTROL_SYMBOLS, FIRST_TEXT_ID
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs
from t2t_ext.io.interruption import Interrupted, SignalWatch
from t2t_ext.io.progress import progress
from t2t_ext.pseudo import augmented, checks
from t2t_ext.pseudo import work as pseudo_work
from t2t_ext.pseudo.translating import translate_sources
from t2t_ext.pseudo.work import DEFAULT_CHUNK_PAIRS, NOT_IN_THE_TRANSLATIONS, Chunk, WorkFolder
from t2t_ext.runs.chosen_runs import ChosenRun

METHODS = ("both_directions", "distillation", "diversification", "back_translation")
# The first reserved symbol is in every vocabulary that t2t_ext makes, and has no other meaning.
TAG = "<reserved_0>"
TAG_ID = FIRST_TEXT_ID - len(CONTROL_SYMBOLS) + CONTROL_SYMBOLS.index(TAG)
_TEXT = "text"  # the split that chunks of monolingual text belong to
_SUBJECT = "augmented data"

Say = Callable[[str], None]
Models = Mapping[str, Sequence[ChosenRun]]  # forward1, forward2, ..., backward1, ... -> a run, or an ensemble


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Settings of the augmented data.

    Attributes:
      method: One of ``METHODS``.
      output_dir: The folder for the data, which must be one of their own.
      decode_hparams: How translations are searched for.
      max_length: Translations with more tokens, including EOS, count as failed.
      target_text: Files of text in the target language, for back-translation.
      tag: Whether back-translations begin with a tag.
      original_copies: How often the original pairs occur, if the method keeps them at all.
      chunk_pairs: Number of pairs that are translated before they are saved; a killed process loses no more than these.
      overwrite: Whether data that were made in another way are replaced.
    """

    method: str
    output_dir: pathlib.Path
    decode_hparams: DecodeHParams = dataclasses.field(default_factory=DecodeHParams)
    max_length: int = 256
    target_text: Sequence[pathlib.Path] = ()
    tag: bool = True
    original_copies: int = 1
    chunk_pairs: int = DEFAULT_CHUNK_PAIRS
    overwrite: bool = False


class _Finished(Manifest):
    """The manifest of the data that are in the output folder."""

    # A damaged manifest does not say whose data they are, so --overwrite does not replace them either.
    again = "remove this file and run the same command again to make augmented data, or give another --output_data_dir."


class Augmentation:
    """Makes augmented data from a problem's data, or resumes making them."""

    def __init__(self, data: GeneratedData, problem: str, models: Models, config: AugmentConfig, say: Say) -> None:
        """Checks what can be checked; nothing is translated or written yet.

        Args:
          data: The problem's data.
          problem: Name of the problem, in the direction that the data are for.
          models: The runs that translate.
          config: The settings.
          say: Receives messages about the progress, line by line.

        Raises:
          UserError: The method needs other models, text or data, or the shortlist cannot be read.
        """
        one = config.decode_hparams.replace(num_hypotheses=1, return_beams=False)
        self._config = dataclasses.replace(config, decode_hparams=one)
        self._data, self._problem, self._models, self._say = data, problem, models, say
        self._signals = SignalWatch()
        self._unfinished = config.output_dir / f".{data.manifest.problem}.augmenting"
        self._check_method()
        self._check_data()
        default = DecodeHParams().to_dict()
        search = {
            name: value
            for name, value in one.to_dict().items()
            if value != default[name] and name not in NOT_IN_THE_TRANSLATIONS
        }
        settings: dict[str, Any] = {"original_copies": config.original_copies}
        if models:
            settings |= {"decode_hparams": search, "max_length": config.max_length}
            settings |= pseudo_work.shortlist_settings(one)
        if config.target_text:
            settings["tag"] = TAG if config.tag else ""
        self._record: dict[str, Any] = {
            "method": config.method,
            "problem": problem,
            "data": {"digest": data.digest()},
            "models": {name: [checks.described(chosen) for chosen in runs] for name, runs in models.items()},
            "settings": settings,
            "target_text": [{"name": path.name, **describe_file(inputs.on_disk(path))} for path in config.target_text],
        }

    def run(self) -> str:
        """Makes the data.

        Returns:
          The name of the signal that stopped it, or an empty string.

        Raises:
          UserError: Other data are there, a file is damaged, the disk is full, or no translation can be used.
        """
        folder, name = self._config.output_dir, self._data.manifest.problem
        files.remove_leftovers(folder)  # a work folder whose removal was interrupted
        if self._is_finished():
            return ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--output_data_dir={folder} cannot be made: {error.strerror or error}.") from error
        size = sum(each["bytes"] for each in self._data.manifest.files.values())
        files.require_space(folder, (self._config.original_copies + 2 * max(1, len(self._models))) * size)
        chunks = self._chunks()
        settings = {**self._record, "chunk_pairs": self._config.chunk_pairs}
        with WorkFolder.open(self._unfinished, settings, self._config.overwrite, "this augmented data") as work:
            with self._signals.watching():
                try:
                    self._translate_all(work, chunks)
                except Interrupted:
                    self._say(
                        f"Stopped by {self._signals.received}: {sum(map(work.is_done, chunks)):,} of {len(chunks):,} "
                        f"chunks are kept in {work.path}. Run the same command again to resume."
                    )
                    return self._signals.received
            finished = work.path / "finished"
            shutil.rmtree(finished, ignore_errors=True)
            finished.mkdir()
            counts: Counter[str] = Counter()
            record = dict(self._record)
            made = self._made(work, chunks, counts, record)
            copies = 0 if self._config.method == "distillation" else self._config.original_copies
            manifest = augmented.write(finished, self._data, made, copies, record)
            if not counts["made"]:
                reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count)
                raise UserError(
                    f"Nothing was made: no translation can be used ({reasons or 'there is no text'}). Give models that "
                    "translate better, or other text; --overwrite begins again."
                )
            publish(finished, folder, name)
            work.remove()
        self._tell(manifest)
        return ""

    # === Checks ===

    def _check_method(self) -> None:
        """Checks that the method has the models and the text that it needs, and no others."""
        method, config = self._config.method, self._config
        forward, backward = (sum(name.startswith(kind) for name in self._models) for kind in ("forward", "backward"))
        needs = {
            "both_directions": (not forward and not backward, "no models: leave --forward and --backward out"),
            "distillation": (
                forward and not backward,
                "--forward=RUN, a model that translates from source to target, and no --backward",
            ),
            "diversification": (forward or backward, "--forward=RUN[,RUN], --backward=RUN[,RUN] or both"),
            "back_translation": (
                backward == 1 and not forward,
                f"--backward=RUN, one model of {registry.reversed_name(self._problem)} (A+B: an ensemble), "
                "and no --forward",
            ),
        }
        fits, what = needs[method]
        if not fits:
            raise UserError(f"--method={method} needs {what}.")
        if bool(config.target_text) != (method == "back_translation"):
            what = "needs --target_text=FILE, text in the target language" if method == "back_translation" else (
                "takes no --target_text; that is for --method=back_translation"
            )  # fmt: skip
            raise UserError(f"--method={method} {what}.")
        if config.original_copies != 1 and method in ("both_directions", "distillation"):
            raise UserError(f"--original_copies={config.original_copies} does not go with --method={method}.")
        readers.require_unpacked_files(config.target_text, "Correct --target_text.")

    def _check_data(self) -> None:
        """Checks that the data can be augmented in this way."""
        data, method = self._data, self._config.method
        what = f"The data of {self._problem} in {data.data_dir}"
        if data.manifest.augmentation:
            raise UserError(f"{what} were made by t2t_ext-augment themselves. Give those of t2t_ext-datagen.")
        if data.source_feature_size:
            raise UserError(f"{what} have feature vectors as sources: only pairs of texts can be augmented.")
        source, target = data.text_encoders()
        if method == "both_directions" and source.ids_sha256 != target.ids_sha256:
            raise UserError(
                f"{what} have a vocabulary for each side, so that ids of one side mean nothing on the other. Make data "
                "with a joint one (t2t_ext-datagen without --separate_vocab)."
            )
        tags = {corpus["tag"] for corpus in data.manifest.splits["train"].corpora.values() if corpus["tag"]}
        if tags and (method == "both_directions" or any(name.startswith("backward") for name in self._models)):
            raise UserError(
                f"{what} have tags on their sources ({', '.join(sorted(tags))}), which a source that is made of a "
                "target would not have. Make the data without tags, or use --method=distillation."
            )
        if method == "back_translation" and self._config.tag and TAG_ID not in source.control_ids:
            raise UserError(
                f"{what} have a vocabulary without {TAG}, which marks back-translations. Give --untagged, or let "
                "t2t_ext-datagen train the vocabulary."
            )

    def _is_finished(self) -> bool:
        """Returns whether the data already exist and need not be made again."""
        folder = self._config.output_dir
        try:
            found = _Finished.load(manifest_path(folder, self._data.manifest.problem))
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not found.augmentation:
            raise UserError(
                f"--output_data_dir={folder} holds data of t2t_ext-datagen, which stay as they are. Give another."
            )
        before = {name: found.augmentation.get(name) for name in self._record}
        different = pseudo_work.differences(before, self._record)
        damaged = found.damaged_files(folder, checksums=self._config.overwrite)
        if self._config.overwrite and (different or damaged):
            return False
        if different or damaged:
            why = f"were made in another way: {'; '.join(different)}"
            if damaged:
                why = f"lack files, or these have another size: {', '.join(damaged)}"
            raise UserError(
                f"The {_SUBJECT} in {folder} {why}. Give --overwrite to make them again, or another folder."
            )
        if self._unfinished.exists():  # killed while it was cleaning up
            files.remove_directory(self._unfinished)
        self._say(f"The {_SUBJECT} of {self._problem} are in {folder} already; nothing to do.")
        return True

    # === Translating ===

    def _chunks(self) -> list[Chunk]:
        if not self._models:
            return []
        pairs = {"train": self._data.manifest.splits["train"].samples}
        if self._config.target_text:
            pairs = {_TEXT: sum(map(readers.count_lines, self._config.target_text))}
            self._warn_of_undecodable_lines(pairs[_TEXT])
        return pseudo_work.plan(pairs, self._config.chunk_pairs, list(self._models))

    def _warn_of_undecodable_lines(self, lines: int) -> None:
        places = (
            f"{path}:{number}"
            for path in self._config.target_text
            for number, line in enumerate(readers.read_lines(path), 1)
            if _decoded(line) is None
        )
        if first := next(places, ""):
            count = 1 + sum(1 for _ in places)
            self._say(
                f"warning: {count:,} of {lines:,} lines are not UTF-8 (first: {first}) and are left out. Convert the "
                "file, as with iconv -f LATIN1 -t UTF-8."
            )

    def _translate_all(self, work: WorkFolder, chunks: Sequence[Chunk]) -> None:
        """Translates what has not been translated yet, and saves it chunk by chunk."""
        missing = {chunk.name for chunk in chunks if not work.is_done(chunk)}
        if not missing:
            return
        from t2t_ext.translation.translator import Translator

        total = sum(chunk.pairs for chunk in chunks)
        to_do = sum(chunk.pairs for chunk in chunks if chunk.name in missing)
        done = f", {total - to_do:,} of them are there already" if to_do < total else ""
        self._say(f"{total:,} translations by {len(self._models)} model(s){done}.")
        translators = {
            name: Translator.of_runs(tuple(self._models[name]), self._config.decode_hparams)
            for name in dict.fromkeys(chunk.direction for chunk in chunks if chunk.name in missing)
        }
        sources = zip(chunks, self._sources(chunks, missing), strict=True)
        with progress("Translating", to_do, "sentences") as advance:
            for chunk, ids in sources:
                if chunk.name not in missing:
                    continue
                longest, translator = self._config.max_length, translators[chunk.direction]
                work.save(chunk, translate_sources(translator, ids, longest, self._signals, advance))
                if self._signals.received:
                    raise Interrupted

    def _sources(self, chunks: Sequence[Chunk], missing: set[str]) -> Iterator[list[np.ndarray]]:
        """Yields the ids that each chunk's model translates; an empty list for text chunks that are not ``missing``."""
        if self._config.target_text:
            for ids in self._text_ids(chunks, missing):
                yield [np.asarray(each, np.int32) for each in ids]
            return
        store = ExampleStore.load(self._data, "train")
        for chunk in chunks:
            side = 0 if chunk.direction.startswith("forward") else 1
            yield [store.example(number)[side] for number in range(chunk.first, chunk.last)]

    def _text_ids(self, chunks: Sequence[Chunk], wanted: set[str] | None = None) -> Iterator[list[list[int]]]:
        """Yields the ids with EOS of the lines of each chunk of the text; no ids for a line that is not UTF-8."""
        encoder = self._data.text_encoders()[1]
        lines = itertools.chain.from_iterable(map(readers.read_lines, self._config.target_text))
        for chunk in chunks:
            block = list(itertools.islice(lines, chunk.pairs))
            texts = [_decoded(line) for line in block] if wanted is None or chunk.name in wanted else []
            encoded = encoder.encode_batch(encoder.prepare([text or "" for text in texts]), add_eos=True)
            yield [[] if text is None else ids for text, ids in zip(texts, encoded, strict=True)]

    # === Joining ===

    def _made(
        self, work: WorkFolder, chunks: Sequence[Chunk], counts: Counter[str], record: dict[str, Any]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the arrays of the shards of new pairs; records the numbers of pairs when all are made."""
        if self._config.method == "both_directions":
            for arrays in augmented.swapped(self._data):
                counts["made"] += len(arrays["inputs_lengths"])
                yield arrays
        else:
            if self._config.target_text:
                tag = [TAG_ID] if self._config.tag else []
                pairs = augmented.back_translated_pairs(work, chunks, self._text_ids(chunks), tag, counts)
            else:
                keep_gold = self._config.method == "distillation"
                store = ExampleStore.load(self._data, "train")
                pairs = augmented.translated_pairs(work, chunks, store, counts, keep_gold=keep_gold)
            yield from augmented.blocks(pairs, was_reversed=self._data.was_reversed)
        record["counts"] = dict(sorted(counts.items(), key=lambda item: (item[0] != "made", -item[1], item[0])))

    def _tell(self, manifest: Manifest) -> None:
        counts = dict(manifest.augmentation["counts"])
        made, pairs = counts.pop("made", 0), manifest.splits["train"].samples
        before = self._data.manifest.splits["train"].samples
        self._say(f"{made:,} pairs were made; the training set has {pairs:,} in place of {before:,}.")
        for reason, count in counts.items():
            kept = (
                " (the original target stays)"
                if self._config.method == "distillation" and reason != "as another pair"
                else ""
            )
            self._say(f"  not made: {count:,} {reason}{kept}")
        self._say(f"Train on them with --problem={self._problem} --data_dir={self._config.output_dir}.")


def _decoded(line: bytes) -> str | None:
    """Returns the text of a line, or None if it is not UTF-8."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None
