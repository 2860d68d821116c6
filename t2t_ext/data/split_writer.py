"""Writes one split: its samples encoded on all cores into shards, and a dev or test set's text beside them."""

import collections
import contextlib
import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from t2t_ext.data import manifest, sharding
from t2t_ext.data.features import Text
from t2t_ext.data.progress import Advance
from t2t_ext.data.readers import ReadReport
from t2t_ext.data.sharding import Chunk, EncodedChunk, Encoding, Shard
from t2t_ext.data.workers import Workers
from t2t_ext.errors import UserError

SAMPLES_PER_CHUNK = 16384
SAMPLES_PER_SHARD = 200_000
# What to do where every sample was dropped for one of these reasons.
_ADVICE = {
    sharding.LENGTH_RATIO: "Do the lines of both sides belong together? --max_length_ratio=0 takes all.",
    sharding.TOO_LONG: "Raise --max_tokens, or leave it out.",
    "empty": "Every pair has an empty side; check the files.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitWriter:
    """Writes the splits of a problem into a workspace.

    Attributes:
      directory: The workspace.
      base_name: The problem's name, which begins the file names.
      workers: The processes that encode and write.
      num_shards: Of the train split; 0 for one per ``SAMPLES_PER_SHARD`` samples.
    """

    directory: pathlib.Path
    base_name: str
    workers: Workers
    num_shards: int

    def write(
        self, split: str, samples: Iterable[dict[str, Any]], encoding: Encoding, report: ReadReport, advance: Advance
    ) -> tuple[manifest.SplitSummary, dict[str, dict[str, Any]]]:
        """Writes one split.

        Args:
          split: Its name.
          samples: Checked samples.
          encoding: How they become arrays; where it is for training, unfit ones are dropped and all are shuffled.
          report: What the reading of ``samples`` drops or changes; complete once they have been read.
          advance: Told how many samples have been encoded.

        Returns:
          What was written, and size and SHA-256 of every shard by file name.

        Raises:
          UserError: No sample is left; or texts do not fit into files of lines.
        """
        scratch = self.directory / f"{split}.chunks"
        scratch.mkdir()
        texts = {} if encoding.training else _text_features(encoding)
        with contextlib.ExitStack() as open_files:
            lines = _LineFiles(self.directory, self.base_name, split, texts, open_files)
            tasks = _chunks(samples, encoding, scratch, lines)
            chunks: list[EncodedChunk] = []
            for chunk in self.workers.map(sharding.encode_chunk, tasks):
                chunks.append(chunk)
                advance(chunk.rows + chunk.drops.total())
        shards = self._write_shards(split, chunks, encoding, report)
        shutil.rmtree(scratch)
        drops = sum((chunk.drops for chunk in chunks), collections.Counter(report.drops))
        rows = sum(chunk.rows for chunk in chunks)
        summary = manifest.SplitSummary(
            read=rows + drops.total(),
            samples=rows,
            drops=dict(sorted(drops.items())),
            notes=dict(sorted(report.notes.items())),
            first=dict(sorted(report.first.items())),
            tokens={name: sum(chunk.tokens[name] for chunk in chunks) for name in encoding.features},
            longest={name: max(chunk.longest[name] for chunk in chunks) for name in encoding.features},
            shards=list(shards),
            texts=lines.names,
        )
        return summary, shards

    def _write_shards(
        self, split: str, chunks: list[EncodedChunk], encoding: Encoding, report: ReadReport
    ) -> dict[str, dict[str, Any]]:
        rows = sum(chunk.rows for chunk in chunks)
        if not rows:
            reasons = sum((chunk.drops for chunk in chunks), collections.Counter(report.drops))
            raise no_usable_sample(self.base_name, split, reasons, report)
        count = 1
        if encoding.training:
            # No shard is empty, whatever was asked for.
            count = min(self.num_shards or -(-rows // SAMPLES_PER_SHARD), max(chunk.rows for chunk in chunks))
        names = [manifest.shard_name(self.base_name, split, index, count) for index in range(count)]
        tasks = (
            Shard(
                index=index,
                count=count,
                chunks=chunks,
                features=tuple(encoding.features),
                path=self.directory / name,
                seed=encoding.seed if encoding.training else None,
            )
            for index, name in enumerate(names)
        )
        return dict(zip(names, self.workers.map(sharding.write_shard, tasks), strict=True))


def no_usable_sample(base_name: str, split: str, drops: collections.Counter[str], report: ReadReport) -> UserError:
    """Returns the error that every sample of a split was dropped.

    Args:
      base_name: The problem's name.
      split: The split.
      drops: Number of dropped samples by reason.
      report: Where what reading dropped occurred first.
    """
    reasons = ", ".join(f"{reason}: {count}" for reason, count in drops.items()) or "there is none"
    message = f"The {split} split of {base_name} has no usable sample ({reasons})."
    if not drops:
        return UserError(message)
    main, _ = drops.most_common(1)[0]
    if main in report.explanations:
        return UserError(f"{message} {report.first[main]}: {report.explanations[main]}.")
    advice = _ADVICE.get(main)
    return UserError(f"{message} {advice}" if advice else message)


class _LineFiles:
    """The text files of a dev or test set, one sentence a line."""

    def __init__(
        self,
        directory: pathlib.Path,
        base_name: str,
        split: str,
        features: dict[str, Text],
        open_files: contextlib.ExitStack,
    ) -> None:
        self.names: dict[str, list[str]] = {name: [] for name in features}
        self._directory, self._base_name, self._split = directory, base_name, split
        self._features, self._open_files = features, open_files
        self._files: dict[str, list[BinaryIO]] = {}

    def write(self, batch: list[dict[str, Any]]) -> None:
        """Appends the texts of samples to the files.

        Raises:
          UserError: A text holds a line feed, or samples have different numbers of references.
        """
        for name, feature in self._features.items():
            rows = [sample[name] if feature.multiple else [sample[name]] for sample in batch]
            opened = self._opened(name, len(rows[0]))
            if any(len(row) != len(opened) for row in rows):
                raise UserError(
                    f"Samples of the {self._split} split of {self._base_name} have different numbers of {name}; "
                    f"every one needs the same number of references."
                )
            for number, file in enumerate(opened):
                column = [row[number] for row in rows]
                if any("\n" in text for text in column):
                    raise UserError(
                        f"A text of feature {name} in the {self._split} split of {self._base_name} holds a line feed; "
                        f"take it out in samples()."
                    )
                file.write("".join(f"{text}\n" for text in column).encode())

    def _opened(self, name: str, count: int) -> list[BinaryIO]:
        if name not in self._files:
            self.names[name] = [
                manifest.text_name(self._base_name, self._split, name, reference) for reference in range(count)
            ]
            paths = [self._directory / file for file in self.names[name]]
            self._files[name] = [self._open_files.enter_context(path.open("wb")) for path in paths]
        return self._files[name]


def _text_features(encoding: Encoding) -> dict[str, Text]:
    return {name: feature for name, feature in encoding.features.items() if isinstance(feature, Text)}


def _chunks(
    samples: Iterable[dict[str, Any]], encoding: Encoding, directory: pathlib.Path, lines: _LineFiles
) -> Iterator[Chunk]:
    samples = iter(samples)
    for index in itertools.count():
        batch = list(itertools.islice(samples, SAMPLES_PER_CHUNK))
        if not batch:
            return
        lines.write(batch)
        columns = {name: [sample[name] for sample in batch] for name in encoding.features}
        yield Chunk(index, columns, directory / f"{index:06d}", encoding)
