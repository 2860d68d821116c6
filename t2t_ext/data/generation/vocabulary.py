"""Makes the text encoders of a problem, trained on a sample of the train split, or loads given ones."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from t2t_ext import registry
from t2t_ext.data.features.types import SOURCE, TARGET, Feature, Text
from t2t_ext.data.generation.preparation import SUBWORD_NMT, TextPreparation
from t2t_ext.data.generation.workers import Workers
from t2t_ext.data.text import VOCABULARY_NAMES, sentencepiece_model, subword_nmt_model
from t2t_ext.data.text.sentencepiece_model import SentencePieceModel
from t2t_ext.data.text.special_ids import FIRST_TEXT_ID, UNK_ID
from t2t_ext.data.text.subword_nmt_model import SEPARATOR, SubwordNmtModel
from t2t_ext.data.text.text_container import Subwords
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.data.text.text_steps import TextSteps
from t2t_ext.errors import UserError
from t2t_ext.io import stored
from t2t_ext.problem import Problem, Sample

_SIDES = (SOURCE, TARGET)
Counts = Mapping[str, int]
# Number of texts that a worker prepares at a time.
_PREPARED_AT_ONCE = 10_000
_RUN_CONFIG = "config.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The subword models of both sides.

    Attributes:
      source: Encodes the source.
      target: Encodes the target.
      training: How they were trained, or where they were taken from, for the manifest.
    """

    source: SubwordEncoder
    target: SubwordEncoder
    training: dict[str, Any]

    @property
    def joint(self) -> bool:
        """Whether the ids mean the same on both sides, so that they can share embeddings."""
        return self.source.ids_sha256 == self.target.ids_sha256

    @property
    def one_file(self) -> bool:
        """Whether one file serves both sides: joint ids, and the same steps in the same language."""
        return self.source == self.target


class _RunProblem(TypedDict):
    """The keys of a run's configuration that say what it translates."""

    problem: str
    problem_options: dict[str, Any]


def reused_vocabulary(subword_model: str, vocab_from: str, problem: Problem) -> Vocabulary | None:
    """Returns the vocabulary that the user wants to reuse, or None if one is to be trained.

    Args:
      subword_model: A ``.model`` file for both sides (from SentencePiece or t2t_ext-datagen) or two files, separated by
        a comma (source, target); or empty.
      vocab_from: A run directory whose models are used; or empty. A run may translate in the other direction.
      problem: The problem whose sides source and target are; the result is in the base problem's direction.

    Raises:
      UserError: Both are given, or a file is missing or unusable.
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
        paths = paths[::-1] if _translates_back(vocab_from, problem) else paths
    models = [SubwordEncoder.from_file(path) for path in paths]
    source, target = (models[-1], models[0]) if problem.was_reversed else (models[0], models[-1])
    return Vocabulary(source=source, target=target, training={"reused": [pathlib.Path(path).name for path in paths]})


def _translates_back(run: str, problem: Problem) -> bool:
    """Returns whether a run translates a problem's target into its source; False if that is not known."""
    with contextlib.suppress(OSError, ValueError, UserError):  # the problem may be in a module that is not loaded
        config = stored.read(os.path.join(os.path.expanduser(run), _RUN_CONFIG), _RunProblem)
        of_the_run = registry.problem(config["problem"], **config["problem_options"])
        if all(of_the_run.languages) and all(problem.languages):
            return of_the_run.languages == problem.languages[::-1] != problem.languages
        return of_the_run.data_name == registry.reversed_name(problem.data_name)
    return False


def tags_in_pieces(encoder: SubwordEncoder, tags: Sequence[str]) -> list[str]:
    """Returns the tags that a source vocabulary, which was not trained with them, spells in several subwords.

    Raises:
      UserError: Text steps change a tag, the vocabulary cannot represent one, or two tags get the same ids.
    """
    prepared = encoder.prepare([f"{tag} a" for tag in tags])
    spelt = dict(zip(tags, map(tuple, encoder.encode_batch(tags)), strict=True))
    for tag, text in zip(tags, prepared, strict=True):
        same = [other for other in tags if other != tag and spelt[other] == spelt[tag]]
        why = "its text steps change it" if not text.startswith(f"{tag} ") else ""
        why = why or ("it cannot write it" if UNK_ID in spelt[tag] else f"it writes {same[0]} alike" if same else "")
        if why:
            raise UserError(
                f"The subword model that is given was made without the tag {tag}: {why}. Give one whose data had these "
                "tags, or leave it out and train one."
            )
    return [tag for tag in tags if len([piece for piece in encoder.pieces(spelt[tag]) if piece != "▁"]) > 1]


def train_vocabulary(
    samples: Iterable[Sample],
    features: dict[str, Feature],
    *,
    vocab_size: int,
    joint: bool,
    sample_size: int,
    seed: int,
    workers: Workers,
    preparation: TextPreparation | None = None,
    fit: Callable[[Sequence[str], Sequence[str], Sequence[str], Sequence[str]], np.ndarray] | None = None,
    keep_prepared: Callable[[Sequence[int], Mapping[str, Sequence[str]]], None] | None = None,
) -> Vocabulary:
    """Learns the text steps and trains subword models on a uniform sample of the given samples.

    Args:
      samples: The train split with its original texts; a sample with an attribute ``times`` occurs that often.
      features: The declared features; all text features are used.
      vocab_size: Number of ids of each SentencePiece model. A small corpus may give fewer.
      joint: Whether both sides share the ids.
      sample_size: Maximum number of samples that are kept in memory and trained on.
      seed: Seed for the choice of samples.
      workers: Processes that prepare texts and train separate models in parallel.
      preparation: How text is prepared and segmented; None: no steps, SentencePiece.
      fit: Maps raw sources, raw targets, prepared sources and prepared targets to bool [pairs], the pairs that are
        trained on; None: all.
      keep_prepared: Receives the numbers of the chosen samples, and their prepared texts by feature.

    Raises:
      UserError: There is no text, or the size is too small.
    """
    preparation = preparation or TextPreparation()
    names = {name: feature for name, feature in features.items() if isinstance(feature, Text)}
    joint = joint or len({feature.side for feature in names.values()}) == 1  # one side alone has text
    # Every occurrence of a sample counts; the occurrences of one sample follow each other.
    numbered = ((number, tuple([sample[name] for name in names]), sample) for number, sample in enumerate(samples))
    occurrences = (row[:2] for row in numbered for _ in range(getattr(row[2], "times", 1)))
    read, chosen = uniform_sample(occurrences, sample_size, seed)
    texts: dict[str, list[str]] = {SOURCE: [], TARGET: []}
    for column, feature in enumerate(names.values()):
        for _, row in chosen:
            texts[feature.side].extend(row[column] if feature.multiple else (row[column],))
    raw, steps = dict(texts), {}
    for side in (SOURCE, TARGET):
        steps[side], texts[side] = _learn_steps(preparation, side, texts[side], workers)
    count = len(chosen)
    if keep_prepared:
        # A side whose only text is a single feature has exactly one prepared text per sample.
        columns = {name: texts[each.side] for name, each in names.items() if steps[each.side]}
        columns = {name: column for name, column in columns.items() if len(column) == count}
        keep_prepared([number for number, _ in chosen], columns)
    if fit and len(texts[SOURCE]) == len(texts[TARGET]) == count:
        rows = np.flatnonzero(fit(raw[SOURCE], raw[TARGET], texts[SOURCE], texts[TARGET]))
        texts, count = {side: [lines[row] for row in rows] for side, lines in texts.items()}, len(rows)
    used = {side: len(lines) for side, lines in texts.items()}
    subwords: Mapping[str, Subwords]
    if preparation.subwords == SUBWORD_NMT:
        subwords = _subword_nmt_models(texts, preparation, joint, len(chosen) < read, workers)
    else:
        train = functools.partial(sentencepiece_model.train, vocab_size=vocab_size, tags=preparation.symbols)
        parts = [texts[SOURCE] + texts[TARGET]] if joint else [texts[SOURCE], texts[TARGET]]
        models = [SentencePieceModel(model, "the new model") for model in workers.map(train, parts)]
        subwords = {SOURCE: models[0], TARGET: models[-1]}
    return Vocabulary(
        source=SubwordEncoder.make(steps[SOURCE], subwords[SOURCE]),
        target=SubwordEncoder.make(steps[TARGET], subwords[TARGET]),
        training={
            "asked_size": preparation.vocab_limit if preparation.subwords == SUBWORD_NMT else vocab_size,
            "samples_read": read,
            "samples_used": count,
            "texts_used": {SOURCE: sum(used.values())} if joint else {side: n for side, n in used.items() if n},
        },
    )


def uniform_sample(items: Iterable[Any], size: int, seed: int) -> tuple[int, list[Any]]:
    """Chooses items of a stream, all with the same probability, in bounded memory.

    Reservoir sampling that draws random numbers only when an item is taken: algorithm L of
    Li 1994, "Reservoir-sampling algorithms of time complexity O(n(1+log(N/n)))".

    Returns:
      The number of items in the stream, and ``size`` chosen items, or all if there are fewer (in no particular
      order, but the same for the same seed).
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
        next_taken = count + 1
        if weight < 1.0:
            next_taken += int(min(np.log(1.0 - generator.random()) / np.log1p(-weight), 1e15))
    return count, chosen


def with_progress(samples: Iterable[Any], advance: Any, every: int = 8192) -> Iterator[Any]:
    """Passes samples on and reports their number to ``advance`` every ``every`` samples and at the end."""
    count = 0
    for count, sample in enumerate(samples, 1):
        if count % every == 0:
            advance(every)
        yield sample
    advance(count % every)


def _learn_steps(
    preparation: TextPreparation, side: str, texts: list[str], workers: Workers
) -> tuple[TextSteps, list[str]]:
    """Returns a side's text steps with what they have learned, and the texts after these steps."""
    names, language = getattr(preparation, f"{side}_steps"), getattr(preparation, f"{side}_language")
    if not texts:  # this side's features are not text, so its steps cannot learn
        names = tuple(name for name in names if name not in TextSteps(names, language).unlearned)
    tags = preparation.tags if names or preparation.subwords == SUBWORD_NMT else ()
    steps, since = TextSteps(names, language, tags=tags), ""
    for name in steps.unlearned:
        texts = _prepared(steps.until(name), texts, since, workers)
        steps, since = steps.with_learned(name, steps.learn(name, texts)), name
    return steps, _prepared(steps, texts, since, workers)


def _prepared(steps: TextSteps, texts: list[str], since: str, workers: Workers) -> list[str]:
    if not steps:
        return texts
    parts = (texts[start : start + _PREPARED_AT_ONCE] for start in range(0, len(texts), _PREPARED_AT_ONCE))
    return list(itertools.chain.from_iterable(workers.map(functools.partial(steps.prepare, since=since), parts)))


def _subword_nmt_models(
    texts: Mapping[str, list[str]], preparation: TextPreparation, joint: bool, sampled: bool, workers: Workers
) -> dict[str, SubwordNmtModel]:
    """Returns the subword-nmt model of each side, made from prepared texts.

    If these texts are only a sample of the training text (``sampled``), all subwords that the codes can give get ids,
    whether they occur here or not.

    Raises:
      UserError: There are no words, a file cannot be used, or the limit leaves no room for subwords.
    """
    limit, tags = preparation.vocab_limit, preparation.tags
    room = limit - FIRST_TEXT_ID - len(tags)
    if limit and room < 1:
        raise UserError(f"--vocab_size={limit} is too small: {limit - room} ids are special ones.")
    words = {side: subword_nmt_model.count_words(texts[side]) for side in _SIDES}
    for tag, counter in itertools.product(tags, words.values()):
        counter.pop(tag, None)
    together = words[SOURCE] + words[TARGET]
    if preparation.bpe_codes:
        learned = [subword_nmt_model.read_codes(path) for path in preparation.bpe_codes]
    else:
        learn = functools.partial(subword_nmt_model.learn_codes, num_merges=preparation.num_merges)
        learned = list(workers.map(learn, [together] if joint else [words[side] for side in _SIDES]))
    codes = {SOURCE: learned[0], TARGET: learned[-1]}
    files = [subword_nmt_model.read_counts(path) for path in preparation.bpe_vocab]
    seen: dict[str, collections.Counter[str]] = {}
    allowed: dict[str, list[str] | None] = dict.fromkeys(_SIDES)
    for side in _SIDES:
        count = functools.partial(subword_nmt_model.count_subwords, words[side], codes[side])
        seen[side] = collections.Counter(files[0 if side == SOURCE else -1]) if files else count()
        if preparation.vocab_threshold:
            chosen = [piece for piece, times in seen[side].items() if times >= preparation.vocab_threshold]
            allowed[side], seen[side] = chosen, seen[side] if files else count(chosen)
        if sampled and not files:
            seen[side].update(dict.fromkeys(_possible(codes[side], together if joint else words[side]), 0))
        for tag in tags:
            seen[side].pop(tag, None)  # they may be in a given vocabulary
    if joint:
        seen[SOURCE].update(seen[TARGET])
        seen[TARGET] = seen[SOURCE]
    return {
        side: SubwordNmtModel(
            codes[side], subword_nmt_model.by_frequency(seen[side], room if limit else 0), allowed[side], tags
        )
        for side in _SIDES
    }


def _possible(codes: str, words: Iterable[str]) -> Iterator[str]:
    """Yields the subwords that codes can give: single characters and merged symbols, inside words and at their end."""
    for character in set(itertools.chain.from_iterable(words)):
        yield from (character, character + SEPARATOR)
    for line in codes.rstrip("\n").split("\n"):
        if not line.startswith("#version:"):
            symbol = line.replace(" ", "").rstrip("\r")
            yield symbol.removesuffix("</w>") if symbol.endswith("</w>") else symbol + SEPARATOR
