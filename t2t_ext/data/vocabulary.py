"""Gets the subword models of a problem: trained on a sample of the train split, or reused."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from t2t_ext.data.features import SOURCE, TARGET, Feature, Text
from t2t_ext.data.text_encoder import SubwordEncoder, train_subword_encoder
from t2t_ext.data.workers import Workers
from t2t_ext.errors import UserError
from t2t_ext.persistence.run_directory import VOCABULARY_NAMES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The subword models of both sides.

    Attributes:
      source: Encodes the source.
      target: Encodes the target; equal to ``source`` where they are joint.
      training: How they were trained, or where they were taken from, for the manifest.
    """

    source: SubwordEncoder
    target: SubwordEncoder
    training: dict[str, Any]

    @property
    def joint(self) -> bool:
        """Whether one model serves both sides."""
        return self.source == self.target


def reused_vocabulary(subword_model: str, vocab_from: str, was_reversed: bool) -> Vocabulary | None:
    """Returns the vocabulary that the user wants to reuse, or None where one is to be trained.

    Args:
      subword_model: A SentencePiece ``.model`` file for both sides, or two, comma separated (source, target); or empty.
      vocab_from: A run directory whose models are taken; or empty.
      was_reversed: Whether source and target are those of ``NAME_rev``; the result is in the base problem's direction.

    Raises:
      UserError: Both are given, or what is given is not there or not usable.
    """
    if not subword_model and not vocab_from:
        return None
    if subword_model and vocab_from:
        raise UserError("--subword_model and --vocab_from both say which subword model to use; give one of them.")
    if subword_model:
        paths = [os.path.expanduser(path) for path in subword_model.split(",")]
        if len(paths) > 2:
            raise UserError(f"--subword_model={subword_model} names {len(paths)} files; give one, or source,target.")
    else:
        paths = [os.path.join(os.path.expanduser(vocab_from), name) for name in VOCABULARY_NAMES.values()]
        if not all(map(os.path.isfile, paths)):
            raise UserError(
                f"--vocab_from={vocab_from} is not a run directory: {' and '.join(VOCABULARY_NAMES.values())} are not "
                f"in it. Give the --output_dir of a trained run, or a model file with --subword_model."
            )
    models = [SubwordEncoder.from_file(path) for path in paths]
    source, target = (models[-1], models[0]) if was_reversed else (models[0], models[-1])
    return Vocabulary(source=source, target=target, training={"reused": [pathlib.Path(path).name for path in paths]})


def train_vocabulary(
    samples: Iterable[dict[str, Any]],
    features: dict[str, Feature],
    *,
    vocab_size: int,
    joint: bool,
    sample_size: int,
    seed: int,
    workers: Workers,
) -> Vocabulary:
    """Trains subword models on a uniform sample of the given samples.

    Args:
      samples: The train split.
      features: Its declaration; all text features are used.
      vocab_size: Number of ids of each model. A small corpus may give less.
      joint: Whether both sides share one model.
      sample_size: At most so many samples are kept in memory and trained on.
      seed: Of the choice.
      workers: Where separate models are trained at the same time.

    Raises:
      UserError: There is no text, or the size is too small.
    """
    names = {name: feature for name, feature in features.items() if isinstance(feature, Text)}
    read, chosen = uniform_sample((tuple(sample[name] for name in names) for sample in samples), sample_size, seed)
    texts: dict[str, list[str]] = {SOURCE: [], TARGET: []}
    for number, feature in enumerate(names.values()):
        side = SOURCE if joint else feature.side
        for row in chosen:
            texts[side].extend(row[number] if feature.multiple else (row[number],))
    jobs = [(texts[SOURCE], vocab_size)] if joint else [(texts[side], vocab_size) for side in (SOURCE, TARGET)]
    models = [SubwordEncoder.from_bytes(model) for model in workers.map(_train, jobs)]
    return Vocabulary(
        source=models[0],
        target=models[-1],
        training={
            "asked_size": vocab_size,
            "samples_read": read,
            "samples_used": len(chosen),
            "texts_used": {side: len(lines) for side, lines in texts.items() if lines},
        },
    )


def uniform_sample(items: Iterable[Any], size: int, seed: int) -> tuple[int, list[Any]]:
    """Chooses items of a stream, every one with the same probability, in bounded memory.

    Reservoir sampling that draws a random number only when an item is taken: algorithm L of
    Li 1994, "Reservoir-sampling algorithms of time complexity O(n(1+log(N/n)))".

    Args:
      items: The stream.
      size: How many to choose; fewer if there are not so many.
      seed: Of the choice.

    Returns:
      How many items there were, and the chosen ones (in no particular order, the same for the same seed).
    """
    generator = np.random.default_rng([seed, 0])
    chosen: list[Any] = []
    weight = 1.0
    count = next_taken = 0
    for count, item in enumerate(items, 1):
        if count <= size:
            chosen.append(item)
            if count < size:
                continue
        elif count == next_taken:
            chosen[int(generator.integers(size))] = item
        else:
            continue
        weight *= np.exp(np.log(1.0 - generator.random()) / size)
        next_taken = count + _skip(generator, weight)
    return count, chosen


def _skip(generator: np.random.Generator, weight: float) -> int:
    """Returns how far away the next item to be taken is, at least 1."""
    if weight >= 1.0:
        return 1
    return int(min(np.log(1.0 - generator.random()) / np.log1p(-weight), 1e15)) + 1


def _train(job: tuple[list[str], int]) -> bytes:
    texts, vocab_size = job
    return train_subword_encoder(texts, vocab_size).model_bytes


def with_progress(samples: Iterable[Any], advance: Any, every: int = 8192) -> Iterator[Any]:
    """Passes samples on and reports their number now and then."""
    count = 0
    for count, sample in enumerate(samples, 1):
        if count % every == 0:
            advance(every)
        yield sample
    advance(count % every)
