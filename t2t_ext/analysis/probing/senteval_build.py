"""Builds probing tasks from a tokenized corpus, following the rules in SentEval's README (Conneau et al. 2018).

Only tasks that can do without a parser are built. Substitutes for SentEval's parser and tagger are described where they
are used (see also docs/decisions/0025). Imports no TensorFlow.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from t2t_ext.analysis.probing.senteval import PARTITIONS, TASKS
from t2t_ext.analysis.probing.senteval_coordination import coordination_inversion
from t2t_ext.analysis.probing.senteval_corpus import (
    DOUBLE_QUOTES,
    Corpus,
    Rows,
    Tokens,
    deal,
    is_punctuation,
    shuffled,
    too_small,
)
from t2t_ext.errors import UserError, suggest

LENGTH_BINS = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 25), (26, 28))
_SHORTEST_WORD = 4  # minimum length of the words of word_content, in characters
# Corpus frequency of the words that odd_man_out removes or inserts.
_RAREST, _COMMONEST = 40, 400
_MOST_RATIO = 2.0  # maximum ratio of the frequencies of two comparable bigrams
_NOUNS, _VERBS = ("NN", "NNS", "NOUN"), ("VERB",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """Settings of the built tasks.

    Attributes:
      sizes: Numbers of training, validation and test sentences.
      seed: Seed of all random choices.
      words: For word_content, the number of words that are classes.
      first_rank: For word_content, the first rank in the vocabulary, from 1, from which these words are taken.
      tags: Word -> part of speech, in the Penn or the universal tag set; None: unknown.
      rarest: For odd_man_out, the minimum corpus frequency of a word that is removed or inserted.
      commonest: For odd_man_out, the maximum corpus frequency.
    """

    sizes: tuple[int, int, int] = (100_000, 10_000, 10_000)
    seed: int = 1
    words: int = 1000
    first_rank: int = 2001
    tags: Mapping[str, str] | None = None
    rarest: int = _RAREST
    commonest: int = _COMMONEST


def build(task: str, corpus: Corpus, settings: BuildSettings) -> Rows:
    """Returns the lines of a task, with balanced classes and no sentence in two partitions, determined by the seed.

    Raises:
      UserError: There is no such task, it cannot be built without a parser or parts of speech, or the corpus is too
        small.
    """
    check_tasks([task], settings.tags is not None)
    random = np.random.default_rng([settings.seed, list(TASKS).index(task)])
    return _BUILDERS[task](corpus, settings, random)


def check_tasks(tasks: Sequence[str], with_tags: bool) -> None:
    """Checks the names of tasks before a corpus is read; ``with_tags`` says whether parts of speech are available.

    Raises:
      UserError: A task is unknown, or needs a parser, or parts of speech that are not available.
    """
    for task in tasks:
        if task not in _BUILDERS:
            reason = "needs a parser" if task in TASKS else "is no probing task"
            raise UserError(
                f"--build_tasks: {task} {reason}; these can be built from tokens alone: {', '.join(_BUILDERS)}."
                f"{suggest(task, _BUILDERS)}"
            )
    if "odd_man_out" in tasks and not with_tags:
        raise UserError(
            "--build_tasks: odd_man_out replaces a noun or a verb with another of the same part of speech, which "
            "tokens do not tell: give --pos_file=FILE, a line WORD TAB TAG for each word (NN, NNS, VB..., NOUN, VERB)."
        )


def sentence_length(corpus: Corpus, settings: BuildSettings, random: np.random.Generator) -> Rows:
    """Builds SentLen: the class is one of six bins of the number of tokens."""
    candidates: dict[str, list[str]] = {str(number): [] for number in range(len(LENGTH_BINS))}
    of_length = {
        length: str(number) for number, (least, most) in enumerate(LENGTH_BINS) for length in range(least, most + 1)
    }
    for sentence in corpus.sentences:
        candidates[of_length[len(sentence)]].append(" ".join(sentence))
    described = {str(number): f" ({least}-{most} tokens)" for number, (least, most) in enumerate(LENGTH_BINS)}
    return deal("sentence_length", corpus, candidates, settings.sizes, random, described)


def word_content(corpus: Corpus, settings: BuildSettings, random: np.random.Generator) -> Rows:
    """Builds WC: the class is the mid-frequency word that a sentence contains.

    Each sentence has exactly one occurrence of these words. The vocabulary consists of lower-cased tokens, sorted by
    frequency and, for equal frequency, alphabetically.
    """
    counts: collections.Counter[str] = collections.Counter()
    for token, count in corpus.counts.items():
        counts[token.lower()] += count
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    words = [word for word in ranked[settings.first_rank - 1 :] if len(word) >= _SHORTEST_WORD][: settings.words]
    if len(words) < settings.words:
        raise UserError(
            f"word_content: the vocabulary of {corpus.path} has {len(ranked):,} words, and from rank "
            f"{settings.first_rank:,} on {len(words):,} of {_SHORTEST_WORD} or more characters; {settings.words:,} are "
            "needed. Give a larger corpus, or smaller --build_words and --build_first_rank."
        )
    candidates: dict[str, list[str]] = {word: [] for word in words}
    for sentence in corpus.sentences:
        found = [word for word in map(str.lower, sentence) if word in candidates]
        if len(found) == 1:
            candidates[found[0]].append(" ".join(sentence))
    return deal("word_content", corpus, candidates, settings.sizes, random)


def bigram_shift(corpus: Corpus, settings: BuildSettings, random: np.random.Generator) -> Rows:
    """Builds BShift: whether two consecutive tokens were swapped (I) or not (O).

    The first token of a sentence, punctuation and equal tokens are never swapped, and sentences with double quotes are
    not used. Unchanged sentences also have tokens that could have been swapped.
    """
    needed = sum(settings.sizes)
    chosen: list[tuple[Tokens, list[int]]] = []
    for i in random.permutation(len(corpus.sentences)):
        places = _shiftable(corpus.sentences[i])
        if places:
            chosen.append((corpus.sentences[i], places))
        if len(chosen) == needed:
            break
    if len(chosen) < needed:
        missing = {"sentences with two tokens to change": (len(chosen), needed)}
        raise too_small("bigram_shift", corpus, settings.sizes, missing)
    rows: Rows = {}
    rest = iter(chosen)
    for partition, size in zip(PARTITIONS, settings.sizes, strict=True):
        rows[partition] = []
        for number in range(size):
            tokens, places = next(rest)
            if number < size // 2:
                place = places[random.integers(len(places))]
                tokens = (*tokens[:place], tokens[place + 1], tokens[place], *tokens[place + 2 :])
            rows[partition].append(("I" if number < size // 2 else "O", " ".join(tokens)))
    return shuffled(rows, random)


def _shiftable(sentence: Tokens) -> list[int]:
    """Returns the positions at which a pair of tokens begins that may be swapped."""
    if not DOUBLE_QUOTES.isdisjoint(sentence):
        return []
    return [
        i
        for i in range(1, len(sentence) - 1)
        if sentence[i] != sentence[i + 1] and not is_punctuation(sentence[i]) and not is_punctuation(sentence[i + 1])
    ]


def odd_man_out(corpus: Corpus, settings: BuildSettings, random: np.random.Generator) -> Rows:
    """Builds SoMo: whether a noun or verb was replaced by another of the same part of speech (C) or not (O).

    Both words occur 40 to 400 times in the corpus (by default). The bigrams of the new word with its neighbors occur in
    the corpus at least half and at most twice as often as those of the original. Each new word is inserted into
    sentences of one partition only. Unchanged sentences also have a word that could have been replaced.
    """
    words = _exchangeable(corpus, settings)
    after, before = _neighbors(corpus, words)
    ordered = sorted(words)
    shares = np.array(settings.sizes) / sum(settings.sizes)
    homes = dict(zip(ordered, random.choice(PARTITIONS, size=len(ordered), p=shares), strict=True))
    wanted = {
        (partition, label): size // 2 if label == "C" else size - size // 2
        for partition, size in zip(PARTITIONS, settings.sizes, strict=True)
        for label in "CO"
    }
    rows: Rows = {partition: [] for partition in PARTITIONS}
    left = dict(wanted)
    for i in random.permutation(len(corpus.sentences)):
        if not any(left.values()):
            break
        sentence = corpus.sentences[i]
        found = {place: others for place in range(1, len(sentence) - 1)
                 if (others := _exchanges(sentence, place, words, after, before))}  # fmt: skip
        if not found:
            continue
        place = list(found)[random.integers(len(found))]
        other = found[place][random.integers(len(found[place]))]
        key = (str(homes[other]), "C")
        if left[key]:
            sentence = (*sentence[:place], other, *sentence[place + 1 :])
        else:
            key = max(
                ((partition, "O") for partition in PARTITIONS), key=lambda each: left[each] / max(1, wanted[each])
            )
            if not left[key]:
                continue
        left[key] -= 1
        rows[key[0]].append((key[1], " ".join(sentence)))
    missing = {
        f"{partition} {label}": (wanted[partition, label] - count, wanted[partition, label])
        for (partition, label), count in left.items()
        if count
    }
    if missing:
        raise too_small("odd_man_out", corpus, settings.sizes, missing)
    return shuffled(rows, random)


def _exchangeable(corpus: Corpus, settings: BuildSettings) -> dict[str, str]:
    """Returns word -> tag for the common nouns and verbs within the frequency range."""
    tags = settings.tags or {}
    found = {}
    for word, count in corpus.counts.items():
        tag = tags.get(word, "")
        if settings.rarest <= count <= settings.commonest and (tag in _NOUNS + _VERBS or tag.startswith("VB")):
            found[word] = tag
    if len(found) < 2:
        raise UserError(
            f"odd_man_out: of the words of {corpus.path} that occur {settings.rarest} to {settings.commonest} times, "
            f"--pos_file knows {len(found)} as nouns or verbs. Give a larger corpus, or more words with tags "
            f"{', '.join(_NOUNS)}, VB... or VERB."
        )
    return found


_Counts = dict[str, collections.Counter[str]]


def _neighbors(corpus: Corpus, words: Mapping[str, str]) -> tuple[_Counts, _Counts]:
    """Returns the counts of the given words after each token, and before each token."""
    after: _Counts = collections.defaultdict(collections.Counter)
    before: _Counts = collections.defaultdict(collections.Counter)
    for sentence in corpus.sentences:
        for left, right in itertools.pairwise(sentence):
            if right in words:
                after[left][right] += 1
            if left in words:
                before[right][left] += 1
    return after, before


def _exchanges(sentence: Tokens, place: int, words: Mapping[str, str], after: _Counts, before: _Counts) -> list[str]:
    """Returns the words that may replace the word at a position, sorted."""
    word = sentence[place]
    if word not in words:
        return []
    sides = after[sentence[place - 1]], before[sentence[place + 1]]
    return sorted(
        other
        for other in sides[0].keys() & sides[1].keys()
        if other != word
        and words[other] == words[word]
        and all(abs(math.log(counts[other] / counts[word])) <= math.log(_MOST_RATIO) + 1e-9 for counts in sides)
    )


_BUILDERS: Mapping[str, Callable[[Corpus, BuildSettings, np.random.Generator], Rows]] = {
    "sentence_length": sentence_length,
    "word_content": word_content,
    "bigram_shift": bigram_shift,
    "odd_man_out": odd_man_out,
    "coordination_inversion": lambda corpus, settings, random: coordination_inversion(
        corpus, settings.sizes, settings.tags, random
    ),
}
BUILT = tuple(_BUILDERS)
