"""Augmented data as they are stored: the shards of the original pairs, and shards of the new pairs.

Imports no TensorFlow.
"""

import dataclasses
import itertools
import pathlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from t2t_ext.data.datasets.example_store import ExampleStore
from t2t_ext.data.datasets.generated import GeneratedData
from t2t_ext.data.datasets.manifest import Manifest, describe_file, manifest_path, shard_name
from t2t_ext.data.generation.shards import npz_bytes
from t2t_ext.io import files
from t2t_ext.pseudo.work import Chunk, WorkFolder

Pair = tuple[Sequence[int], Sequence[int]]  # ids of source and target with EOS
MOST_PAIRS = 200_000  # per shard
_SIDES = ("inputs", "targets")


def swapped(data: GeneratedData) -> Iterator[dict[str, np.ndarray]]:
    """Yields the arrays of every shard of training pairs, with source and target exchanged."""
    for path in data.shard_paths("train"):
        with np.load(path, allow_pickle=False) as shard:
            arrays = dict(shard)
        both = (_SIDES, _SIDES[::-1])
        yield {f"{to}{end}": arrays[f"{side}{end}"] for side, to in zip(*both, strict=True) for end in ("", "_lengths")}


def translated_pairs(
    work: WorkFolder, chunks: Sequence[Chunk], store: ExampleStore, counts: Counter[str], *, keep_gold: bool
) -> Iterator[Pair]:
    """Yields the pairs that models made from training pairs.

    Args:
      work: Holds the chunks: ``forward1`` etc. are translations of the sources, ``backward1`` etc. of the targets.
      chunks: All chunks; those of a model are in order, and every model's chunks contain the same pairs.
      store: The training pairs.
      counts: Receives the number of pairs made and, by reason, not made.
      keep_gold: Whether a pair without translation is kept unchanged, once (distillation). Otherwise it is left out,
        and so are translations that are equal to the original pair.
    """
    models = dict.fromkeys(chunk.direction for chunk in chunks)
    of_models = [[chunk for chunk in chunks if chunk.direction == model] for model in models]
    for parts in zip(*of_models, strict=True):
        loaded = [(chunk.direction.startswith("forward"), work.load(chunk)) for chunk in parts]
        for place, number in enumerate(range(parts[0].first, parts[0].last)):
            source, target = (ids.tolist() for ids in store.example(number))
            seen = set() if keep_gold else {(*source, *target)}
            for is_forward, translations in loaded:
                failure, found = translations.failures[place], np.asarray(translations.ids[place]).tolist()
                if failure:
                    counts[failure] += 1
                    if not keep_gold:
                        continue
                    found = target
                pair = (source, found) if is_forward else (found, target)
                key = (*pair[0], *pair[1])  # EOS separates source and target
                if key in seen:
                    counts["as another pair"] += not failure
                    continue
                seen.add(key)
                counts["made"] += not failure
                yield pair


def back_translated_pairs(
    work: WorkFolder, chunks: Iterable[Chunk], targets: Iterable[Sequence[Sequence[int]]], tag: Sequence[int],
    counts: Counter[str],
) -> Iterator[Pair]:  # fmt: skip
    """Yields pairs of a model's translations and the text that they were made from.

    Args:
      work: Holds the chunks.
      chunks: Chunks of the text's lines, in order.
      targets: The ids of the lines of every chunk.
      tag: Ids that every source begins with.
      counts: Receives the number of pairs made and, by reason, not made.
    """
    for chunk, lines in zip(chunks, targets, strict=True):
        loaded = work.load(chunk)
        for source, target, failure in zip(loaded.ids, lines, loaded.failures, strict=True):
            counts[failure or "made"] += 1
            if not failure:
                yield [*tag, *np.asarray(source).tolist()], target


def blocks(pairs: Iterable[Pair], *, was_reversed: bool) -> Iterator[dict[str, np.ndarray]]:
    """Yields the arrays of shards of pairs; those of ``NAME_rev`` are in NAME's direction."""
    iterator = iter(pairs)
    while block := list(itertools.islice(iterator, MOST_PAIRS)):
        arrays: dict[str, np.ndarray] = {}
        for side, name in enumerate(_SIDES[::-1] if was_reversed else _SIDES):
            flat = np.concatenate([np.asarray(pair[side], np.int32) for pair in block])
            arrays[name] = flat.astype(np.uint16) if flat.max() < 1 << 16 else flat
            arrays[f"{name}_lengths"] = np.array([len(pair[side]) for pair in block], np.int32)
        yield arrays


def write(
    folder: pathlib.Path,
    data: GeneratedData,
    made: Iterable[dict[str, np.ndarray]],
    copies: int,
    record: dict[str, Any],
) -> Manifest:
    """Writes a complete set of data files into an empty folder, the original and the new pairs; returns its manifest.

    Args:
      folder: The folder.
      data: The original data, from which dev and test sets, subword models and settings are taken.
      made: Arrays of the new shards, in the base problem's direction.
      copies: How often the original pairs occur.
      record: What the manifest says about the augmentation; filled in while ``made`` is read.
    """
    original = data.manifest
    train = original.splits["train"]
    samples = copies * train.samples
    tokens = {side: copies * count for side, count in train.tokens.items()}
    longest = dict(train.longest) if copies else dict.fromkeys(train.longest, 0)
    unnamed = []
    for number, arrays in enumerate(made):
        path = folder / f".{number:05d}"
        files.write_bytes_atomically(path, npz_bytes(arrays))
        unnamed.append(path)
        for side in _SIDES:
            lengths = arrays[f"{side}_lengths"]
            tokens[side] += int(lengths.sum())
            longest[side] = max(longest[side], int(lengths.max(initial=0)))
        samples += len(arrays["inputs_lengths"])
    kept = copies * train.shards
    shards = [shard_name(original.problem, "train", number, len(kept) + len(unnamed)) for number in
              range(len(kept) + len(unnamed))]  # fmt: skip
    for name, shard in zip(kept, shards, strict=False):
        shutil.copyfile(data.data_dir / name, folder / shard)
    for path, shard in zip(unnamed, shards[len(kept) :], strict=True):
        path.rename(folder / shard)
    for name in original.files:
        if name not in train.shards:
            shutil.copyfile(data.data_dir / name, folder / name)
    split = dataclasses.replace(train, samples=samples, tokens=tokens, longest=longest, shards=shards)
    names = [*shards, *(name for name in original.files if name not in train.shards)]
    manifest = dataclasses.replace(
        original,
        splits={**original.splits, "train": split},
        files={name: describe_file(folder / name) for name in names},
        augmentation=record,
    )
    files.write_text_atomically(manifest_path(folder, original.problem), manifest.to_json())
    return manifest
