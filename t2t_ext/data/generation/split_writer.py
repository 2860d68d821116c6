"""Writes one split: encodes its samples into shards on all cores, and stores the text of a dev or test set."""

import array
import collections
import contextlib
import copy
import dataclasses
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from t2t_ext.data.corpora.readers import ReadReport
from t2t_ext.data.datasets import manifest
from t2t_ext.data.features.float_files import FloatWriter
from t2t_ext.data.features.types import Feature, Floats, Text, UnusableValue, text_features
from t2t_ext.data.generation import cleaning, duplicates, raw_samples
from t2t_ext.data.generation import shards as shard_files
from t2t_ext.data.generation.encoding import Chunk, EncodedChunk, Encoding, encode_chunk
from t2t_ext.data.generation.raw_samples import RawSamples
from t2t_ext.data.generation.shards import Group, Regrouped, Shard, regroup, write_shard
from t2t_ext.data.generation.workers import Workers
from t2t_ext.errors import UserError
from t2t_ext.io.progress import Advance
from t2t_ext.io.progress import progress as shown_progress
from t2t_ext.problem import Sample

SAMPLES_PER_SHARD = 200_000
MOST_BYTES_PER_SHARD = 128 << 20
# Advice if every sample was dropped, mainly for one of these reasons.
_ADVICE = {
    cleaning.LENGTH_RATIO: "Do the lines of both sides belong together? --max_length_ratio=0 takes all.",
    cleaning.TOO_LONG: "Raise --max_tokens, or max_subwords of --cleaning.",
    cleaning.EMPTY: "Every pair has an empty side; check the files.",
    **dict.fromkeys((cleaning.SCRIPT, cleaning.LANGUAGE), "Are the languages right, or are source and target swapped?"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitWriter:
    """Writes a split of a problem into a workspace.

    Attributes:
      directory: The workspace.
      base_name: The problem's name, with which file names begin.
      split: The split's name.
      samples: The samples of the split; one with an attribute ``times`` occurs that often.
      encoding: How samples become arrays; for training, unfit samples are dropped and the others are shuffled.
      workers: The processes that encode and write.
      num_shards: Number of shards of the train split; 0 for one per ``SAMPLES_PER_SHARD`` samples. There are more if
        shards would exceed ``MOST_BYTES_PER_SHARD``.
      progress: Whether to show progress.
    """

    directory: pathlib.Path
    base_name: str
    split: str
    samples: RawSamples
    encoding: Encoding
    workers: Workers
    num_shards: int
    progress: bool = False

    @property
    def _scratch(self) -> pathlib.Path:
        return self.directory / f"{self.split}.chunks"

    def write(self, advance: Advance) -> tuple[manifest.SplitSummary, dict[str, dict[str, Any]]]:
        """Writes the split; ``advance`` receives the number of samples that have been encoded.

        Returns:
          A summary of what was written, and size and SHA-256 of every shard by file name.

        Raises:
          UserError: No sample is left, or texts cannot be written one per line.
        """
        encoding, scratch = self.encoding, self._scratch
        for folder in ("rows", "groups"):
            (scratch / folder).mkdir(parents=True)
        if encoding.training:
            duplicates.prepare_directory(scratch, encoding.cleaning.duplicates)
        chunks, names, floats = self._encode(advance)
        report = self.samples.report
        drops = chunks.drops + collections.Counter(report.drops)
        examples = {reason: f"{report.name_of(number)}: {text}" for reason, (number, text) in chunks.examples.items()}
        first = {**examples, **report.first}
        rows, in_chunks, sizes = chunks.numbers()
        # Chunks hold each sample once; groups and shards hold it as often as it occurs.
        sizes = sizes * in_chunks // np.maximum(rows, 1)
        removed = self._repetitions(rows)
        if removed:
            in_chunks = in_chunks - removed.samples
            if removed.pairs:
                drops[cleaning.DUPLICATE] += removed.pairs
                first.setdefault(cleaning.DUPLICATE, report.repetition(removed.first))
        if not in_chunks.sum():
            raise no_usable_sample(self.base_name, self.split, drops, report)
        count = self._number_of_shards(in_chunks, sizes)
        groups = self._regroup(sizes, removed, count)
        shards = self._write_shards(count, len(groups))
        shutil.rmtree(scratch)
        identical = sum(group.identical for group in groups)
        different = int(rows.sum()) - (removed.pairs if removed else 0)
        unknown = {
            name: sum(group.unknown[name] for group in groups)
            for name in text_features(encoding.features)  # only text features have an unknown id
        }
        summary = manifest.SplitSummary(
            read=int(chunks.read) + sum(report.drops.values()),
            samples=sum(group.samples for group in groups),
            drops={reason: drops[reason] for reason in sorted(drops)},
            notes=dict(sorted(report.notes.items())),
            first=dict(sorted(first.items())),
            tokens={name: sum(group.tokens[name] for group in groups) for name in encoding.features}
            | {name: described["vectors"] for name, described in floats.items()},
            longest={name: max(group.longest[name] for group in groups) for name in encoding.features}
            | {name: described["longest"] for name, described in floats.items()},
            unknown={name: count for name, count in unknown.items() if count},
            identical=identical if identical > manifest.LOUD_IDENTICAL_SHARE * different else 0,
            shards=list(shards),
            texts=names,
            corpora=report.corpora,
            floats=floats,
        )
        return summary, shards

    def _encode(self, advance: Advance) -> tuple["_Chunks", dict[str, list[str]], dict[str, dict[str, Any]]]:
        """Writes the chunks, the float vectors, and the texts of a dev or test set.

        Returns:
          The chunks, the names of the text files, and the descriptions of the files of vectors.
        """
        samples, encoding, chunks = self.samples, self.encoding, _Chunks()
        # In a dev or test set (share=False), a row and its sequence have the same number.
        vectors = {
            name: FloatWriter(self.directory, self.base_name, self.split, name, feature, share=encoding.training)
            for name, feature in encoding.features.items()
            if isinstance(feature, Floats)
        }
        texts: dict[str, list[BinaryIO]] = {}
        with contextlib.ExitStack() as open_files:

            def tasks() -> Iterator[Chunk]:
                # The processes that encode a training split read its scratch files themselves.
                if samples.kept and encoding.training:
                    for index, path in enumerate(samples.files()):
                        yield Chunk(index, index * raw_samples.SAMPLES_PER_CHUNK, path, self._scratch, encoding)
                    return
                numbered = self._numbered(vectors)
                if not encoding.training:
                    numbered = checked_texts(numbered, encoding.features, self.base_name, self.split)
                for index, batch in enumerate(raw_samples.batches(numbered)):
                    if not encoding.training:
                        self._write_lines(batch, texts, open_files)
                    yield Chunk(index, index * raw_samples.SAMPLES_PER_CHUNK, batch, self._scratch, encoding)

            for index, chunk in enumerate(self.workers.map(encode_chunk, tasks())):
                samples.discard(index)
                chunks.add(chunk)
                advance(chunk.read)
        names = {name: [pathlib.Path(file.name).name for file in opened] for name, opened in texts.items()}
        return chunks, names, {name: writer.close() for name, writer in vectors.items()}

    def _repetitions(self, rows: np.ndarray) -> duplicates.Found | None:
        """Returns the repetitions in chunks of ``rows`` int [chunks] samples; None if they are not looked for."""
        kind, total = self.encoding.cleaning.duplicates, int(rows.sum())
        if not self.encoding.training or not total or kind == cleaning.NO:
            return None
        with shown_progress("Finding duplicates", total, "samples", enabled=self.progress) as advance:
            return duplicates.find(
                self._scratch,
                kind,
                chunks=len(rows),
                chunk_size=raw_samples.SAMPLES_PER_CHUNK,
                rows=total,
                workers=self.workers,
                advance=advance,
            )

    def _number_of_shards(self, samples: np.ndarray, sizes: np.ndarray) -> int:
        """Returns the number of shards for chunks of ``samples`` int [chunks] occurrences and ``sizes`` bytes."""
        if not self.encoding.training:
            return 1
        asked = self.num_shards or -(-int(samples.sum()) // SAMPLES_PER_SHARD)
        # The writer and training read a shard as a whole, so its size is limited. No shard is empty.
        return min(max(asked, -(-int(sizes.sum()) // MOST_BYTES_PER_SHARD)), int(samples.max()))

    def _numbered(self, vectors: Mapping[str, FloatWriter]) -> Iterator[Sample]:
        """Yields samples with sequence numbers in place of float vectors; skips samples with unusable vectors."""
        for place, sample in enumerate(self.samples):
            numbered = copy.copy(sample) if vectors else sample
            try:
                for name, writer in vectors.items():
                    number = writer.add(sample[name])
                    numbered[name] = _Sequence(number)
                    numbered[name].name = writer.names[number]
            except UnusableValue as error:
                item = getattr(sample[name], "key", f"sample {place + 1:,}")
                self.samples.report.drop_item(error.reason, item, error.explanation)
                continue
            yield numbered

    def _write_lines(
        self, batch: list[Sample], texts: dict[str, list[BinaryIO]], open_files: contextlib.ExitStack
    ) -> None:
        """Appends the texts of samples, one per line, to the files of each feature; the first batch opens the files."""
        for name, feature in self.encoding.features.items():
            if isinstance(feature, Floats):
                rows = [[sample[name].name] for sample in batch]
            elif isinstance(feature, Text):
                rows = [sample[name] if feature.multiple else [sample[name]] for sample in batch]
            else:
                continue
            if name not in texts:
                names = [manifest.text_name(self.base_name, self.split, name, each) for each in range(len(rows[0]))]
                texts[name] = [open_files.enter_context((self.directory / each).open("wb")) for each in names]
            for number, file in enumerate(texts[name]):
                file.write("".join(f"{row[number]}\n" for row in rows).encode())

    def _regroup(self, sizes: np.ndarray, removed: duplicates.Found | None, shards: int) -> list[Regrouped]:
        """Sorts groups of chunks by shard and removes the chunks; returns the contents of the groups."""
        groups = [
            Group(
                path=self._scratch / "groups" / f"{number:06d}",
                chunks=tuple(self._scratch / "rows" / f"{chunk:06d}" for chunk in range(first, last)),
                first_chunk=first,
                removed=removed.files_of(first, last) if removed else (),
                shards=shards,
                features=tuple(self.encoding.features),
            )
            for number, (first, last) in enumerate(_packed(sizes))
        ]
        done = []
        for group, regrouped in zip(groups, self.workers.map(regroup, groups), strict=True):
            for path in group.chunks:
                path.unlink()
            done.append(regrouped)
        return done

    def _write_shards(self, count: int, groups: int) -> dict[str, dict[str, Any]]:
        names = [manifest.shard_name(self.base_name, self.split, index, count) for index in range(count)]
        tasks = (
            Shard(
                index=index,
                count=count,
                groups=self._scratch / "groups",
                number_of_groups=groups,
                features=tuple(self.encoding.features),
                path=self.directory / name,
                seed=self.encoding.seed if self.encoding.training else None,
            )
            for index, name in enumerate(names)
        )
        written = {}
        shown = self.progress and self.encoding.training
        with shown_progress("Writing shards", count, "shards", enabled=shown) as advance:
            for name, described in zip(names, self.workers.map(write_shard, tasks), strict=True):
                written[name] = described
                advance(1)
        return written


def checked_texts(
    samples: Iterable[Sample], features: Mapping[str, Feature], base_name: str, split: str
) -> Iterator[Sample]:
    """Yields the samples of a dev or test set, whose texts are written one per line.

    Raises:
      UserError: A text contains a line feed, or samples have different numbers of references.
    """
    counts: dict[str, int] = {}
    for number, sample in enumerate(samples, 1):
        for name, feature in text_features(features).items():
            texts = sample[name] if feature.multiple else [sample[name]]
            if len(texts) != counts.setdefault(name, len(texts)):
                raise UserError(
                    f"Samples of the {split} split of {base_name} have different numbers of {name}: sample {number:,} "
                    f"has {len(texts)}, those before it {counts[name]}. Every one needs the same number of references."
                )
            if any("\n" in text for text in texts):
                raise UserError(
                    f"A text of feature {name} in the {split} split of {base_name} holds a line feed (sample "
                    f"{number:,}); take it out in samples()."
                )
        yield sample


class _Chunks:
    """The sizes and drops of all chunks, in a few bytes per chunk.

    Attributes:
      read: Number of samples before any were dropped.
      drops: Number of dropped samples by reason.
      examples: The first sample dropped for each reason: its number, from 0, and a text for people.
    """

    def __init__(self) -> None:
        self.read = 0
        self.drops: collections.Counter = collections.Counter()
        self.examples: dict[str, tuple[int, str]] = {}
        self._numbers = array.array("q")

    def add(self, chunk: EncodedChunk) -> None:
        """Adds the next chunk."""
        self.read += chunk.read
        self.drops += chunk.drops
        self.examples = {**chunk.examples, **self.examples}
        self._numbers.extend((chunk.rows, chunk.samples, chunk.size))

    def numbers(self) -> np.ndarray:
        """Returns int64 [3, chunks]: different samples, their occurrences, and bytes of their arrays."""
        return np.array(self._numbers, np.int64).reshape(-1, 3).T


def _packed(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields, for every group, its first chunk and the chunk after its last."""
    first = total = 0
    for chunk, size in enumerate(sizes.tolist()):
        if chunk > first and total + size > shard_files.BYTES_PER_GROUP:
            yield first, chunk
            first, total = chunk, 0
        total += size
    if len(sizes):
        yield first, len(sizes)


def no_usable_sample(base_name: str, split: str, drops: collections.Counter[str], report: ReadReport) -> UserError:
    """Returns the error that a split has no usable sample, with advice about the most frequent reason."""
    reasons = ", ".join(f"{manifest.in_words(reason)}: {count}" for reason, count in drops.items()) or "there is none"
    message = f"The {split} split of {base_name} has no usable sample ({reasons})."
    if not drops:
        by_weight = any(corpus["pairs"] and not corpus["occurrences"] for corpus in report.corpora.values())
        return UserError(f"{message} The weights of its corpora choose none; raise them." if by_weight else message)
    main, _ = drops.most_common(1)[0]
    if main in report.explanations:
        return UserError(f"{message} {report.first[main]}: {report.explanations[main]}.")
    advice = _ADVICE.get(main, "--cleaning=none takes all." if main in cleaning.REASONS else "")
    return UserError(f"{message} {advice}".rstrip())


class _Sequence(int):
    """The number of a sequence of float vectors, with the name of the sequence."""

    name: str
