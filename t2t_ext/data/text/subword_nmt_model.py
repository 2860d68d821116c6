"""Learns and applies subword-nmt's byte-pair codes with a vocabulary: ``th@@ e`` for ``the``, as in many papers.

Sennrich, Haddow and Birch 2016, https://aclanthology.org/P16-1162. Words are separated by whitespace. The subwords are
the same as those of the subword-nmt library. This module assigns ids to them, caches the subwords of words, and learns
codes from word counts instead of text.
"""

import collections
import contextlib
import functools
import hashlib
import heapq
import io
import itertools
import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_ext.data.text.sentencepiece_model import MOST_DRAWN_CHARACTERS
from t2t_ext.data.text.special_ids import EOS_ID, FIRST_TEXT_ID, PAD_ID, SPECIAL_PIECES, UNK_ID
from t2t_ext.errors import UserError
from t2t_ext.io import inputs

SEPARATOR = "@@"
_JOIN = re.compile(f"(?<=[^ ]){SEPARATOR}(?: |$)")
# The number of words whose subwords are cached; 300,000 words take about 60 MB.
_MOST_WORDS = 300_000
_MOST_TRIES = 5
# The library's time grows with the square of a word's length: minutes for an image in base64. Longer words than these
# (characters) are segmented here, with the same result.
_LONG_WORD = 400


class SubwordNmtModel:
    """The subword model of one side: the codes, the table of ids, and the subwords that this side may use."""

    kind = "subword_nmt"

    def __init__(
        self,
        codes: str,
        counts: Mapping[str, int],
        allowed: Iterable[str] | None = None,
        tags: Sequence[str] = (),
        origin: str = "the given codes",
    ) -> None:
        """Creates a model.

        Args:
          codes: The content of a codes file.
          counts: The number of occurrences of each subword in the training text, in the order of the ids. Tags are not
            included; the first subword has the id after the last tag.
          allowed: The subwords that this side may use; others are split further (subword-nmt's ``--vocabulary``). None
            allows all subwords.
          tags: Words that are never segmented; their ids come before those of the subwords.
          origin: Where the codes came from, for messages.

        Raises:
          UserError: The text does not consist of codes.
        """
        self.codes, self.counts, self.tags = codes, dict(counts), tuple(tags)
        self.allowed = None if allowed is None else frozenset(allowed)
        self._bpe = _apply_bpe(codes, self.allowed, origin)
        self._pieces = [*SPECIAL_PIECES, *self.tags, *self.counts]
        self._ids = {piece: index for index, piece in enumerate(self._pieces) if index >= FIRST_TEXT_ID}
        self._words: dict[str, tuple[str, tuple[int, ...]]] = {}

    @property
    def size(self) -> int:
        """The number of ids, including special ids."""
        return len(self._pieces)

    @property
    def ids_sha256(self) -> str:
        """The digest of the meaning of the ids."""
        return hashlib.sha256("\n".join([self.kind, *self._pieces]).encode()).hexdigest()

    @property
    def control_ids(self) -> tuple[int, ...]:
        """The ids of control symbols, without PAD, EOS and UNK."""
        return tuple(range(UNK_ID + 1, FIRST_TEXT_ID))

    def encode(self, texts: Sequence[str], add_eos: bool) -> list[list[int]]:
        """Returns the ids of each text; subwords outside the table become ``UNK_ID``."""
        end = [EOS_ID] if add_eos else []
        return [
            [*itertools.chain.from_iterable(self._word(word)[1] for word in text.split(" ") if word), *end]
            for text in texts
        ]

    def sample(self, texts: Sequence[str], dropout: float, seed: int, add_eos: bool) -> list[list[int]]:
        """Returns the ids of texts when each merge is skipped with probability ``dropout``; the seed decides which.

        The table contains only subwords of the usual segmentation. Other subwords are split further, like those that
        are not in ``allowed``. If a sampled word still has more unknown subwords than usual, it is sampled again a few
        times and then segmented as usual. Words of more than 5,000 characters are always segmented as usual.
        """
        before = random.getstate()  # the library uses Python's global generator
        random.seed(seed)
        try:
            end = [EOS_ID] if add_eos else []
            return [
                [*itertools.chain.from_iterable(self._sampled(word, dropout) for word in text.split(" ") if word), *end]
                for text in texts
            ]
        finally:
            random.setstate(before)
            self._drawing_bpe.cache.clear()

    @functools.cached_property
    def _drawing_bpe(self) -> Any:
        """The library's object that splits subwords outside the table; separate, because such objects cache words."""
        there = frozenset(self._ids)
        return _apply_bpe(self.codes, there if self.allowed is None else there & self.allowed, "the codes")

    def _sampled(self, word: str, dropout: float) -> Sequence[int]:
        """Returns the ids of a word when some merges are skipped."""
        usual = self._word(word)[1]
        for _ in range(0 if word in self.tags or len(word) > MOST_DRAWN_CHARACTERS else _MOST_TRIES):
            pieces = self._drawing_bpe.segment_tokens([word], dropout)
            ids = [self._ids.get(piece, UNK_ID) for piece in pieces]
            if ids.count(UNK_ID) <= usual.count(UNK_ID):
                return ids
        return usual

    def segment(self, text: str) -> str:
        """Returns the subwords of a text, separated by spaces, as ``subword-nmt apply-bpe`` writes them."""
        return " ".join(self._word(word)[0] for word in text.split(" ") if word)

    def join(self, written: str) -> str:
        """Joins space-separated subwords into words."""
        return _JOIN.sub("", written)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words that ids stand for; PAD, EOS and control symbols are ignored."""
        silent = {PAD_ID, EOS_ID, *self.control_ids}
        return self.join(" ".join(self._pieces[index] for index in ids if index not in silent))

    def piece(self, index: int) -> str:
        """Returns the written form of an id."""
        return self._pieces[index]

    def text(self, index: int) -> bytes:
        """Returns the UTF-8 text that an id stands for inside a line, with a space at the end of each complete word."""
        piece = self._pieces[index]
        joined = _JOIN.sub("", piece)
        return joined.encode() if joined != piece else f"{piece} ".encode()

    def starts_word(self, index: int) -> bool:
        """Returns True: any id may follow a complete word, because each subword itself shows whether it ends a word."""
        del index
        return True

    def _word(self, word: str) -> tuple[str, tuple[int, ...]]:
        """Returns the subwords of a word, as text and as ids."""
        found = self._words.get(word)
        if found is None:
            if len(self._words) >= _MOST_WORDS:
                self._words.clear()
            pieces = [word] if word in self.tags else _segmented(self._bpe, word)
            found = " ".join(pieces), tuple(self._ids.get(piece, UNK_ID) for piece in pieces)
            self._words[word] = found
        return found


def count_words(texts: Iterable[str]) -> collections.Counter:
    """Returns the number of occurrences of each word, in the order of first occurrence."""
    words: collections.Counter = collections.Counter()
    for text in texts:
        words.update(word for word in text.split(" ") if word)
    return words


def learn_codes(words: Mapping[str, int], num_merges: int) -> str:
    """Learns the same byte-pair codes that ``subword-nmt learn-bpe`` learns from the text.

    Args:
      words: The number of occurrences of each word, in the order of first occurrence.
      num_merges: The maximum number of merge operations; learning stops earlier when no symbol pair occurs twice.

    Returns:
      The content of the codes file.

    Raises:
      UserError: There are no words to learn from.
    """
    from subword_nmt import learn_bpe

    # Words that contain whitespace (such as no-break spaces in untokenized text) could not be read back from a file.
    counted = [f"{word} {count}" for word, count in words.items() if word.split() == [word]]
    if not any(len(word) > 1 for word in words):
        raise UserError(
            "The training text has no word of two characters to learn byte-pair codes from; check the train files, "
            "and that words are separated by spaces (Chinese: --source_steps=jieba or characters)."
        )
    codes = io.StringIO()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # hides the library's own progress bar
        learn_bpe.learn_bpe(counted, codes, num_merges, is_dict=True)
    return codes.getvalue()


def count_subwords(words: Mapping[str, int], codes: str, allowed: Iterable[str] | None = None) -> collections.Counter:
    """Returns the number of occurrences of each subword in a text with these word counts."""
    bpe = _apply_bpe(codes, None if allowed is None else frozenset(allowed), "the codes")
    counts: collections.Counter = collections.Counter()
    for word, count in words.items():
        for piece in _segmented(bpe, word):
            counts[piece] += count
    return counts


def _segmented(bpe: Any, word: str) -> list[str]:
    """Returns the subwords of a word, as the library's object writes them."""
    if len(word) > _LONG_WORD:
        from subword_nmt import apply_bpe

        end = [*word, "</w>"] if bpe.version == (0, 1) else [*word[:-1], f"{word[-1]}</w>"]
        pieces = _merged(end, bpe.bpe_codes)
        pieces[-1] = pieces[-1].removesuffix("</w>")
        pieces = pieces if pieces[-1] else pieces[:-1]
        if bpe.vocab:
            pieces = apply_bpe.check_vocab_and_split(pieces, bpe.bpe_codes_reverse, bpe.vocab, SEPARATOR)
        return [*(piece + SEPARATOR for piece in pieces[:-1]), pieces[-1]]
    try:
        return bpe.segment_tokens([word])
    finally:
        bpe.cache.clear()


def _merged(symbols: Sequence[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Returns symbols after all merges: always those of the pair of the lowest rank, from left to right.

    The time is that of sorting the places, n log n for n symbols.
    """
    left: list[str] = list(symbols)  # "" where a symbol was merged into the one before
    following, before = list(range(1, len(left) + 1)), list(range(-1, len(left) - 1))

    def rank_at(place: int) -> int | None:
        after = following[place]
        return ranks.get((left[place], left[after])) if after < len(left) else None

    heap = [(rank, place) for place in range(len(left)) if (rank := rank_at(place)) is not None]
    heapq.heapify(heap)
    while heap:
        lowest, changed = heap[0][0], []
        while heap and heap[0][0] == lowest:
            place = heapq.heappop(heap)[1]
            if not left[place] or rank_at(place) != lowest:  # changed since it was noted
                continue
            after = following[place]
            left[place], left[after] = left[place] + left[after], ""
            following[place] = following[after]
            if following[place] < len(left):
                before[following[place]] = place
            changed.append(place)
        # Noted only after all pairs of this rank are merged, as the library does.
        for place in {*changed, *(before[place] for place in changed if before[place] >= 0)}:
            if (rank := rank_at(place)) is not None:
                heapq.heappush(heap, (rank, place))
    return [symbol for symbol in left if symbol]


def by_frequency(counts: Mapping[str, int], most: int = 0) -> dict[str, int]:
    """Returns the subwords by decreasing frequency; equally frequent ones are in the order of their characters.

    At most ``most`` subwords are kept; 0 keeps all.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dict(ranked[:most] if most else ranked)


def read_codes(path: str) -> str:
    """Returns the content of a codes file.

    Raises:
      UserError: The file cannot be read, or it contains no valid codes.
    """
    codes = _read(path, "--bpe_codes")
    lines = codes.rstrip("\r\n").split("\n")
    if not any(line.strip() and not line.startswith("#version") for line in lines):
        raise UserError(f"--bpe_codes={path} holds no merge: give the file that subword-nmt learn-bpe wrote.")
    if empty := next((number for number, line in enumerate(lines, 1) if not line.strip()), 0):
        raise UserError(f"--bpe_codes={path}, line {empty} is empty; each line is a pair of symbols. Take it out.")
    _apply_bpe(codes, None, f"--bpe_codes={path}")
    return codes


def read_counts(path: str) -> dict[str, int]:
    """Returns the subword counts of a vocabulary file with lines ``subword count``, as ``get-vocab`` writes it.

    Raises:
      UserError: The file cannot be read, or a line has another form.
    """
    counts: dict[str, int] = {}
    for number, line in enumerate(_read(path, "--bpe_vocab").split("\n"), start=1):
        if not line:
            continue
        piece, _, count = line.rstrip("\r").rpartition(" ")
        if not piece or not count.isdigit():
            raise UserError(
                f"--bpe_vocab={path}, line {number}: {line[:60]!r} is not 'subword count'; give the file that "
                "subword-nmt get-vocab wrote."
            )
        counts[piece] = int(count)
    return counts


def _read(path: str, flag: str) -> str:
    try:
        with open(inputs.on_disk(path), encoding="utf-8-sig", newline="\n") as file:
            return file.read()
    except OSError as error:
        raise UserError(f"{flag}={path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{flag}={path} is not UTF-8 ({error.reason}); is it the right file?") from error


def _apply_bpe(codes: str, allowed: frozenset[str] | None, origin: str) -> Any:
    from subword_nmt.apply_bpe import BPE

    lines = codes.rstrip("\n").split("\n")
    first = 2 if lines[0].startswith("#version:") else 1
    for number, line in enumerate(lines[first - 1 :], start=first):
        if len(line.strip("\r\n ").split(" ")) != 2 and line:
            raise UserError(
                f"{origin}, line {number}: {line[:60]!r} is not a pair of symbols; give a file of codes as subword-nmt "
                "learn-bpe writes it."
            )
    if first == 2 and lines[0].strip() not in ("#version: 0.1", "#version: 0.2"):
        raise UserError(f"{origin} has {lines[0].strip()!r}; codes of versions 0.1 and 0.2 can be used.")
    if len(lines) < first or not lines[first - 1]:
        # The library needs at least one pair; this one never occurs in text.
        codes = (f"{lines[0]}\n" if first == 2 else "") + "\u0000 \u0000"
    return BPE(io.StringIO(codes, newline="\n"), vocab=allowed)
