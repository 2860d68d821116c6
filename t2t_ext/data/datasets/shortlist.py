"""Makes a shortlist of the target vocabulary: for every source id, the target ids that its translations may need.

It is estimated from pairs of ids with IBM Model 1 (Brown et al. 1993, https://aclanthology.org/J93-2003): expectation
maximization of t(target id | source id). The source's EOS, which is in every sentence, serves as the empty word.

Legend: A ids that are always candidates, S source ids, V target ids, M candidates of a source id, N examples.
"""

import dataclasses
import io
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Self

import numpy as np

from t2t_ext.data.datasets.example_store import UNREADABLE, ExampleStore
from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID, PAD_ID, UNK_ID
from t2t_ext.data.text.text_encoder import SubwordEncoder
from t2t_ext.errors import UserError
from t2t_ext.io import files, inputs

_ITERATIONS = 4
# Pairs of source and target subwords that are counted at once; this bounds the memory.
_PAIRS_AT_ONCE = 4_000_000
_PARTS_AT_ONCE = 8
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_FIELDS = ("always", "best", "vocabularies")

# Codes int64 [L], ascending: source id x V + target id; and float64 [L], a value for each.
_Lexicon = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Shortlist:
    """The candidates of source ids.

    Attributes:
      always: int32 [A], ascending: ids that are candidates of every sentence.
      best: int32 [S, M], best first, filled up with PAD if a source id has fewer.
      vocabularies: Digests of the source and the target vocabulary (``SubwordEncoder.ids_sha256``).
    """

    always: np.ndarray
    best: np.ndarray
    vocabularies: tuple[str, str]

    @classmethod
    def make(
        cls,
        store: ExampleStore,
        source: SubwordEncoder,
        target: SubwordEncoder,
        *,
        frequent: int,
        candidates: int,
        max_examples: int,
    ) -> Self:
        """Makes a shortlist by counting pairs of ids; the same arguments always give the same shortlist.

        The special ids, the bytes (from which any text can be spelled) and the ``frequent`` most frequent target ids
        are always candidates. Each source id has its ``candidates`` most probable target ids. In a joint vocabulary
        the first is the id itself, for words that are copied. At most ``max_examples`` examples, evenly spaced, are
        counted.
        """
        counts = np.bincount(store.targets, minlength=target.vocab_size)
        special = [index for index, piece in enumerate(target.pieces(range(target.vocab_size))) if _BYTE.match(piece)]
        special += [*range(min(FIRST_TEXT_ID, target.vocab_size)), PAD_ID, EOS_ID, UNK_ID, *target.control_ids]
        always = np.union1d(special, np.argsort(-counts, kind="stable")[:frequent])
        count = min(store.num_examples, max_examples)
        examples = np.arange(count) * store.num_examples // max(count, 1)
        lexicon: _Lexicon | None = None
        for _ in range(_ITERATIONS):
            lexicon = _normalized(_expected_counts(store, examples, target.vocab_size, lexicon), target.vocab_size)
        assert lexicon is not None
        best = _best(lexicon, source.vocab_size, target.vocab_size, candidates)
        if source.ids_sha256 == target.ids_sha256:
            own = np.arange(source.vocab_size, dtype=np.int32)[:, np.newaxis]
            others = np.where(best == own, PAD_ID, best)
            # An id among its own candidates moves to the front; otherwise the last candidate makes room for it.
            order = np.argsort(others == PAD_ID, axis=1, kind="stable")
            best = np.concatenate([own, np.take_along_axis(others, order, axis=1)], axis=1)[:, :candidates]
        return cls(always.astype(np.int32), best, (source.ids_sha256, target.ids_sha256))

    @classmethod
    def read(cls, path: str | os.PathLike, source: SubwordEncoder, target: SubwordEncoder) -> Self:
        """Reads a shortlist for these text encoders.

        Raises:
          UserError: There is no such file, it is not a shortlist, or it is one for other vocabularies.
        """
        how = "t2t_ext-analyze shortlist --output_dir=RUN makes one"
        try:
            with np.load(inputs.on_disk(pathlib.Path(path).expanduser()), allow_pickle=False) as stored:
                always, best, vocabularies = (stored[name] for name in _FIELDS)
        except OSError as error:
            raise UserError(f"The shortlist {path} cannot be read: {error.strerror or error}; {how}.") from error
        except (*UNREADABLE, AttributeError, TypeError) as error:
            raise UserError(f"{path} is not a shortlist; {how}.") from error
        if tuple(vocabularies) != (source.ids_sha256, target.ids_sha256):
            raise UserError(f"The shortlist {path} is one for other subwords than this run's; {how}.")
        return cls(always, best, (source.ids_sha256, target.ids_sha256))

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file that ``read`` reads."""
        content = io.BytesIO()
        vocabularies = np.array(self.vocabularies)
        np.savez_compressed(content, always=self.always, best=self.best, vocabularies=vocabularies)
        files.write_bytes_atomically(path, content.getvalue())

    def write_vmap(self, path: str | os.PathLike, source: SubwordEncoder, target: SubwordEncoder) -> None:
        """Writes CTranslate2's ``vmap.txt``.

        Each line has a source subword, a tab and its candidates; the first line has those that are always candidates.
        """
        pieces = np.array(target.pieces(range(target.vocab_size)), object)
        lines = ["\t" + " ".join(pieces[self.always])]
        for key, row in zip(source.pieces(range(source.vocab_size)), self.best, strict=True):
            if len(found := row[row != PAD_ID]):
                lines.append(f"{key}\t{' '.join(pieces[found])}")
        files.write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def check_reads_text(source_feature_size: int) -> None:
    """Raises a UserError if a run's sources are feature vectors (size above 0), for which there are no shortlists."""
    if source_feature_size:
        raise UserError("A shortlist is made for subwords of the source, and this run reads feature vectors.")


def _blocks(store: ExampleStore, examples: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields blocks of subword pairs: source ids, target ids, and the number of the target subword in the block."""
    sources = store.input_lengths[examples].astype(np.int64)
    targets = store.target_lengths[examples].astype(np.int64) - 1  # without EOS
    ends = np.cumsum(sources * targets)
    numbers = (ends - 1) // _PAIRS_AT_ONCE
    for rows in np.split(np.arange(len(examples)), np.flatnonzero(np.diff(numbers)) + 1):
        each = targets[rows]  # target subwords of each example
        first = np.repeat(store.target_offsets[examples[rows]], each)
        at = first + np.arange(len(first)) - np.repeat(np.cumsum(each) - each, each)
        wide = np.repeat(sources[rows], each)  # source subwords beside each target subword
        group = np.repeat(np.arange(len(at)), wide)
        begin = np.repeat(store.input_offsets[examples[rows]], each)
        within = np.arange(len(group)) - (np.cumsum(wide) - wide)[group]
        yield store.inputs[begin[group] + within].astype(np.int64), store.targets[at[group]].astype(np.int64), group


def _expected_counts(store: ExampleStore, examples: np.ndarray, size: int, lexicon: _Lexicon | None) -> _Lexicon:
    """Returns how often source ids are expected to produce target ids; without a lexicon, all are equally probable."""
    parts: list[_Lexicon] = []
    for sources, targets, group in _blocks(store, examples):
        codes, inverse = np.unique(sources * size + targets, return_inverse=True)
        known = np.ones(len(codes)) if lexicon is None else lexicon[1][np.searchsorted(lexicon[0], codes)]
        weights = known[inverse]
        weights /= np.bincount(group, weights)[group]
        parts.append((codes, np.bincount(inverse, weights, minlength=len(codes))))
        if len(parts) == _PARTS_AT_ONCE:
            parts = [_sum(parts)]
    return _sum(parts)


def _sum(parts: list[_Lexicon]) -> _Lexicon:
    if not parts:
        return np.zeros([0], np.int64), np.zeros([0])
    codes, inverse = np.unique(np.concatenate([codes for codes, _ in parts]), return_inverse=True)
    return codes, np.bincount(inverse, np.concatenate([values for _, values in parts]), minlength=len(codes))


def _normalized(counts: _Lexicon, size: int) -> _Lexicon:
    """Returns t(target id | source id), at least 1e-300, since values rounded to 0 would cause a division 0 / 0."""
    codes, values = counts
    sources = codes // size
    return codes, np.maximum(values / np.maximum(np.bincount(sources, values), 1e-300)[sources], 1e-300)


def _best(lexicon: _Lexicon, sources: int, size: int, most: int) -> np.ndarray:
    """Returns the most probable target ids per source id, int32 [sources, most]; smaller ids first among equals."""
    codes, values = lexicon
    order = np.lexsort((codes, -values, codes // size))
    codes = codes[order]
    starts = np.searchsorted(codes // size, np.arange(sources))
    ranks = np.arange(len(codes)) - starts[codes // size]
    best = np.full([sources, most], PAD_ID, np.int32)
    kept = ranks < most
    best[codes[kept] // size, ranks[kept]] = codes[kept] % size
    return best
