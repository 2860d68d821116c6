"""Reads a tokenized corpus for building probing tasks, and divides sentences into partitions. Imports no TensorFlow."""

import collections
import dataclasses
import functools
import pathlib
import sys
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_ext.analysis.probing.senteval import PARTITIONS
from t2t_ext.data.corpora import readers
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs

SHORTEST, LONGEST = 5, 28  # tokens of a sentence, as in SentEval's corpus
DOUBLE_QUOTES = frozenset('"“”„‟«»＂〝〞') | {"``", "''", "&quot;"}

Tokens = tuple[str, ...]
# Partition -> (class, sentence) of every line, in order.
Rows = dict[str, list[tuple[str, str]]]


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
    """Distinct sentences of ``SHORTEST`` to ``LONGEST`` tokens.

    Attributes:
      path: The file.
      sentences: The tokens of each sentence.
      lines: Number of lines in the file.
      left_out: Reason -> number of lines left out for it.
    """

    path: pathlib.Path
    sentences: Sequence[Tokens]
    lines: int
    left_out: Mapping[str, int]

    @functools.cached_property
    def counts(self) -> collections.Counter[str]:
        """The frequency of each token."""
        return collections.Counter(token for sentence in self.sentences for token in sentence)

    @functools.cached_property
    def inner_counts(self) -> collections.Counter[str]:
        """The frequency of each token except at the start of a sentence, so that its case is the word's own."""
        return collections.Counter(token for sentence in self.sentences for token in sentence[1:])


def read_corpus(path: files.PathLike) -> Corpus:
    """Reads a plain or compressed corpus with one sentence per line and tokens separated by spaces.

    Raises:
      UserError: The file cannot be read or has no usable sentence.
    """
    path = pathlib.Path(path)
    if not inputs.is_file(path):
        raise UserError(f"There is no file {path} (--build_from).")
    sentences: dict[Tokens, None] = {}
    left_out: collections.Counter[str] = collections.Counter()
    lines = 0
    for line in readers.read_lines(path):
        lines += 1
        try:
            tokens = tuple(map(sys.intern, line.decode("utf-8").split()))
        except UnicodeDecodeError:
            left_out["not UTF-8"] += 1
            continue
        if not SHORTEST <= len(tokens) <= LONGEST:
            left_out[f"not {SHORTEST} to {LONGEST} tokens"] += 1
        elif tokens in sentences:
            left_out["a sentence that was there before"] += 1
        else:
            sentences[tokens] = None
    if not sentences:
        raise UserError(
            f"{path} has no sentence of {SHORTEST} to {LONGEST} tokens in its {lines:,} lines. Give a tokenized "
            "corpus, one sentence a line, tokens separated by spaces."
        )
    return Corpus(path, list(sentences), lines, dict(left_out))


def read_tags(path: files.PathLike) -> dict[str, str]:
    """Reads words' parts of speech, one ``WORD TAB TAG`` per line; if a word appears twice, the first tag is used.

    Raises:
      UserError: The file cannot be read, is empty, or has a line in another format.
    """
    if not inputs.is_file(path):
        raise UserError(f"There is no file {path} (--pos_file).")
    tags: dict[str, str] = {}
    for number, line in enumerate(readers.read_lines(path), 1):
        fields = line.decode("utf-8", errors="replace").split("\t")
        if len(fields) != 2 or not fields[0].strip() or not fields[1].strip():
            raise UserError(f"{path}, line {number}: expected WORD TAB TAG, such as house<TAB>NN.")
        tags.setdefault(fields[0].strip(), fields[1].strip())
    if not tags:
        raise UserError(f"{path} is empty: there are no parts of speech (--pos_file).")
    return tags


def is_punctuation(token: str) -> bool:
    """Returns whether a token has neither a letter nor a digit."""
    return not any(unicodedata.category(character)[0] in "LN" for character in token)


def too_small(
    task: str, corpus: Corpus, sizes: Sequence[int], missing: Mapping[str, tuple[int, int]], classes: int = 2
) -> UserError:
    """Returns the error for a corpus that is too small for a task.

    ``missing`` is item -> (number available, number needed). ``classes`` is the number of classes, the smallest
    possible size of a partition.
    """
    shown = "; ".join(f"{what}: {have:,} of {need:,}" for what, (have, need) in list(missing.items())[:6])
    more = f"; and {len(missing) - 6:,} more" if len(missing) > 6 else ""
    share = min(have / need for have, need in missing.values())
    possible = [int(size * share) for size in sizes]
    advice = (
        f"It is enough for about --build_sizes={','.join(map(str, possible))}; give smaller sizes or a larger corpus"
        if min(possible) >= classes
        else "Give a larger corpus"
    )
    return UserError(
        f"{task}: {corpus.path} ({len(corpus.sentences):,} sentences of {SHORTEST} to {LONGEST} tokens) is too small: "
        f"{shown}{more}. {advice}."
    )


def deal(
    task: str,
    corpus: Corpus,
    candidates: Mapping[str, list[str]],
    sizes: Sequence[int],
    random: np.random.Generator,
    describe: Mapping[str, str] | None = None,
) -> Rows:
    """Divides sentences with known classes into partitions with balanced classes and no common sentences.

    ``candidates`` are class -> its sentences; no sentence belongs to two classes. ``describe`` gives descriptions of
    classes for messages.

    Raises:
      UserError: A class has too few sentences, or a partition is smaller than the number of classes.
    """
    names = list(candidates)
    if min(sizes) < len(names):
        raise UserError(
            f"{task}: a partition of {min(sizes):,} sentences cannot have all {len(names):,} classes. Give larger "
            "--build_sizes."
        )
    # The first classes get the remainder.
    count = len(names)
    by_partition = [[size // count + (number < size % count) for number in range(count)] for size in sizes]
    needed = {name: sum(each[number] for each in by_partition) for number, name in enumerate(names)}
    missing = {
        f"class {name}{(describe or {}).get(name, '')}": (len(candidates[name]), need)
        for name, need in needed.items()
        if len(candidates[name]) < need
    }
    if missing:
        raise too_small(task, corpus, sizes, missing, len(names))
    rows: Rows = {partition: [] for partition in PARTITIONS}
    for number, name in enumerate(names):
        order = iter(random.permutation(len(candidates[name]))[: needed[name]])
        for partition, each in zip(PARTITIONS, by_partition, strict=True):
            rows[partition] += [(name, candidates[name][next(order)]) for _ in range(each[number])]
    return shuffled(rows, random)


def shuffled(rows: Rows, random: np.random.Generator) -> Rows:
    """Returns the partitions with their lines in random order."""
    return {name: [lines[i] for i in random.permutation(len(lines))] for name, lines in rows.items()}


def write_rows(path: files.PathLike, rows: Rows) -> None:
    """Writes a task to a file in SentEval's format.

    Raises:
      UserError: The file cannot be written.
    """
    lines = [f"{name}\t{label}\t{sentence}\n" for name in PARTITIONS for label, sentence in rows[name]]
    files.write_text_atomically(path, "".join(lines))
