"""Metrics that sacrebleu lacks, written as sacrebleu metrics so that its resampling and paired tests can use them.

* ``MultiBleu``: BLEU as Moses' multi-bleu.perl computes it, optionally with compounds split as in tensor2tensor's
  get_ende_bleu.sh.
* ``MtevalBleu``: BLEU as mteval-v13a computes it.
* ``T2TBleu``: BLEU as tensor2tensor's t2t-bleu computes it.
* ``Nist``: Doddington (2002), "Automatic Evaluation of Machine Translation Quality Using N-gram Co-occurrence
  Statistics", as mteval-v13a computes it.

This module imports sacrebleu, but not TensorFlow. Import it only inside functions, so that commands start fast.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import regex
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.metrics.bleu import BLEUScore, BLEUSignature
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from t2t_ext.version import __version__

COMPOUND_MARK = "##AT##-##AT##"
NIST_ORDER = 5  # highest order in the NIST score; longer n-grams are counted only for the table by order
ASCII_CASE = "lc-ascii"  # in signatures: only A to Z are lower-cased
MTEVAL_ORDERS = 9  # the number of orders that mteval-v13a shows

# Perl compares bytes unless a script requests characters: its \s and lc cover only ASCII.
_COMPOUND = re.compile(rb"([^ \t\n\r\f\v])-([^ \t\n\r\f\v])")
_ASCII_WHITESPACE = " \t\n\r\f\v"
_OTHER_WHITESPACE = re.compile(r"[^\S \t\n\r\f\v]")
_PRIVATE = 0xF0000
_REPLACED_WHITESPACE = re.compile(
    "[" + "".join(chr(_PRIVATE + code) for code in range(0x3001) if _OTHER_WHITESPACE.fullmatch(chr(code))) + "]"
)
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class OwnBleuSignature(BLEUSignature):
    """sacrebleu's signature of BLEU, extended by the version of t2t_ext, which defines the rules."""

    def __init__(self, args: dict[str, Any]) -> None:
        """Fills in the fields from a metric's attributes."""
        super().__init__(args)
        if args["lowercase"]:
            self.info["case"] = args.get("case_signature", "lc")
        self.info["t2t_ext"] = __version__


class MultiBleu(BLEU):
    """BLEU of tokenized text as multi-bleu.perl computes it.

    Words are separated by ASCII whitespace. With several references, the closest length is used (the shorter one if two
    are equally close). There is no smoothing: without any matching 4-gram the score is 0. Lower-casing (``-lc``)
    affects only A to Z, since the script reads bytes.
    """

    _SIGNATURE_TYPE = OwnBleuSignature

    def __init__(
        self,
        *,
        lowercase: bool = False,
        split_compounds: bool = False,
        references: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Creates the metric; ``split_compounds`` splits hyphenated words in hypotheses and references."""
        self._split_compounds = split_compounds
        self.case_signature = ASCII_CASE
        # The attributes are set first, since this preprocesses and counts the references.
        super().__init__(lowercase=lowercase, force=True, tokenize="none", smooth_method="none", references=references)
        self.tokenizer_signature = "none+compounds" if split_compounds else "none"

    def _preprocess_segment(self, sent: str) -> str:
        if self._split_compounds:
            sent = split_compounds(sent)
        if self.lowercase:
            sent = ascii_lower(sent)
        # In Perl, U+00A0 and the like are part of words, but Python splits at them: use private-use characters instead.
        return _OTHER_WHITESPACE.sub(lambda found: chr(_PRIVATE + ord(found[0])), sent).strip(_ASCII_WHITESPACE)

    @staticmethod
    def as_written(token: str) -> str:
        """Returns a token with the whitespace that the text has in place of private-use characters."""
        return _REPLACED_WHITESPACE.sub(lambda found: chr(ord(found[0]) - _PRIVATE), token)


class MtevalBleu(BLEU):
    """BLEU of plain text as mteval-v13a computes it: sacrebleu's BLEU with tokenizer ``13a``, counted up to 9-grams.

    The score uses orders 1 to 4. The result's ``by_order`` and ``cumulative`` are the two tables that mteval-v13a
    prints. Lower-casing affects only A to Z.
    """

    def __init__(self, *, lowercase: bool = False, references: Sequence[Sequence[str]] | None = None) -> None:
        """Creates the metric; the script ignores case by default (``lowercase=True``) and respects it with ``-c``."""
        super().__init__(
            lowercase=lowercase, force=True, tokenize="13a", max_ngram_order=MTEVAL_ORDERS, references=references
        )
        if lowercase:  # otherwise the score is sacrebleu's own
            self.case_signature = ASCII_CASE
            self._SIGNATURE_TYPE = OwnBleuSignature

    def _preprocess_segment(self, sent: str) -> str:
        return self.tokenizer((ascii_lower(sent) if self.lowercase else sent).rstrip())

    def _compute_score_from_stats(self, stats: Any) -> BLEUScore:
        counts, totals = list(stats[2 : 2 + MTEVAL_ORDERS]), list(stats[2 + MTEVAL_ORDERS :])
        lengths = int(stats[0]), int(stats[1])
        score = BLEU.compute_bleu(counts[:4], totals[:4], *lengths, smooth_method="exp", max_ngram_order=4)
        every = BLEU.compute_bleu(counts, totals, *lengths, smooth_method="exp", max_ngram_order=MTEVAL_ORDERS)
        cumulative = [_geometric_mean(every.precisions[: n + 1]) * every.bp for n in range(MTEVAL_ORDERS)]
        vars(score).update(by_order=list(every.precisions), cumulative=cumulative)
        return score


class T2TBleu(BLEU):
    """BLEU as tensor2tensor's t2t-bleu computes it from plain text.

    Its tokenizer separates punctuation that is not between decimal digits, and all symbols. sacrebleu's ``intl``
    differs for digits that are not decimal (``½``). Orders with 0 matches count as 1/2, 1/4, ... of a match in turn.
    Orders without any n-gram add nothing to the sum of logarithms, whereas other tools give 0.
    """

    _SIGNATURE_TYPE = OwnBleuSignature

    def __init__(self, *, lowercase: bool = False, references: Sequence[Sequence[str]] | None = None) -> None:
        """Creates the metric; ``lowercase=True`` is ``BLEU_uncased``. t2t-bleu itself takes one set of references."""
        super().__init__(lowercase=lowercase, force=True, tokenize="none", smooth_method="exp", references=references)
        self.tokenizer_signature = "t2t"

    def _preprocess_segment(self, sent: str) -> str:
        return t2t_tokenize(sent.lower() if self.lowercase else sent)

    def _compute_score_from_stats(self, stats: Any) -> BLEUScore:
        length, reference_length = int(stats[0]), int(stats[1])
        counts = [int(count) for count in stats[2 : 2 + self.max_ngram_order]]
        totals = [int(total) for total in stats[2 + self.max_ngram_order :]]
        halved, precisions = 1.0, []
        for count, total in zip(counts, totals, strict=True):
            if total and not count:
                halved /= 2
            precisions.append((count or halved) / total if total else 0.0)
        mean = math.exp(sum(math.log(p) for p in precisions if p) / len(precisions)) if any(precisions) else 0.0
        penalty = 1.0
        if length < reference_length:
            penalty = math.exp(1 - reference_length / length) if length else 0.0
        percent = [100 * p for p in precisions]
        return BLEUScore(100 * mean * penalty, counts, totals, percent, penalty, length, reference_length)


class NistScore(Score):
    """A NIST score with its parts.

    Attributes:
      by_order: Information per n-gram of the translation, in bits, for orders 1 to 9, times the penalty.
      length_penalty: The factor for short translations, 0 to 1.
      hypothesis_length: Number of tokens of the translation.
      reference_length: Number of reference tokens, averaged over the references.
    """

    def __init__(
        self, by_order: list[float], length_penalty: float, hypothesis_length: float, reference_length: float
    ) -> None:
        """Creates the score: the sum of the first five orders."""
        super().__init__("NIST", sum(by_order[:NIST_ORDER]))
        self.by_order, self.length_penalty = by_order, length_penalty
        self.hypothesis_length, self.reference_length = hypothesis_length, reference_length


class NistSignature(Signature):
    """The settings that a NIST score depends on besides the texts, in sacrebleu's style."""

    def __init__(self, args: dict[str, Any]) -> None:
        """Fills in the fields from a metric's attributes."""
        super().__init__(args)
        self.info.update(
            {
                "case": ASCII_CASE if args["lowercase"] else "mixed",
                "tok": args["tokenizer_signature"],
                "n": NIST_ORDER,
                "zero": "mteval" if args["mteval_zero"] else "no",
                "t2t_ext": __version__,
            }
        )


class Nist(Metric):
    """NIST (Doddington 2002, equation 3) as mteval-v13a computes it.

    The information of an n-gram in bits is log2(count of its first n-1 words / count of the n-gram), both counted in
    all references together. For single words, the numerator is the number of all words of all references. A
    translation's n-gram matches at most as often as it occurs in the reference that has it most often. For each order,
    the information of matching n-grams is summed and divided by the number of the translation's n-grams; the results
    for orders 1 to 5 are added up. The penalty is exp(b log(r)^2), r = min(1, length / mean reference length), with
    b such that it is 0.5 at r = 2/3.

    With ``mteval_zero``, one peculiarity of mteval is reproduced. The word "0" is false in Perl, so mteval treats a
    bigram that begins with "0" as if it had no first word: the numerator is then the number of all words.
    """

    _SIGNATURE_TYPE = NistSignature
    whole_corpus = True  # an n-gram's information depends on all references

    def __init__(
        self,
        *,
        lowercase: bool = False,
        mteval_zero: bool = True,
        references: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Creates the metric; ``mteval_zero`` weights bigrams that begin with "0" as mteval-v13a does."""
        super().__init__()
        self.lowercase = lowercase
        self.mteval_zero = mteval_zero
        self._tokenizer = Tokenizer13a()
        self.tokenizer_signature = self._tokenizer.signature()
        if references is not None:
            self._ref_cache = self._cache_references(references)

    def _preprocess_segment(self, sent: str) -> str:
        return self._tokenizer(ascii_lower(sent) if self.lowercase else sent)

    def _cache_references(self, references: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        cache = super()._cache_references(references)
        counts: Counter[tuple[str, ...]] = Counter()
        for segment in cache:
            for ngrams in segment.pop("all_ngrams"):
                counts.update(ngrams)
        words = sum(count for ngram, count in counts.items() if len(ngram) == 1)
        beginnings = {**counts, (): words}
        if self.mteval_zero:
            beginnings[("0",)] = words
        for segment in cache:
            segment["information"] = {
                ngram: math.log2(beginnings[ngram[:-1]] / counts[ngram]) for ngram in segment["most"]
            }
        return cache

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        all_ngrams = [_ngrams(reference.split()) for reference in refs]
        most: Counter[tuple[str, ...]] = Counter()
        for ngrams in all_ngrams:
            most |= ngrams
        length = sum(len(reference.split()) for reference in refs) / len(refs)
        return {"all_ngrams": all_ngrams, "most": most, "length": length}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        words = hypothesis.split()
        most, weights = ref_kwargs["most"], ref_kwargs["information"]
        information = [0.0] * MTEVAL_ORDERS
        for ngram, count in _ngrams(words).items():
            if ngram in most:
                information[len(ngram) - 1] += weights[ngram] * min(count, most[ngram])
        totals = [float(max(0, len(words) - order)) for order in range(MTEVAL_ORDERS)]
        return [*information, *totals, ref_kwargs["length"]]

    def _compute_score_from_stats(self, stats: Any) -> NistScore:
        information = [float(value) for value in stats[:MTEVAL_ORDERS]]
        totals = [float(value) for value in stats[MTEVAL_ORDERS:-1]]
        penalty = nist_length_penalty(totals[0], float(stats[-1]))
        by_order = [penalty * bits / max(total, 1.0) for bits, total in zip(information, totals, strict=True)]
        return NistScore(by_order, penalty, totals[0], float(stats[-1]))

    def _aggregate_and_compute(self, stats: Any) -> NistScore:
        return self._compute_score_from_stats([math.fsum(column) for column in zip(*stats, strict=True)])


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if all(values) else 0.0


def nist_length_penalty(hypothesis_length: float, reference_length: float) -> float:
    """Returns NIST's penalty factor for short translations, which is 0.5 at two thirds of the references' length."""
    if hypothesis_length >= reference_length:
        return 1.0
    if hypothesis_length <= 0:
        return 0.0
    return 0.5 ** ((math.log(hypothesis_length / reference_length) / math.log(1.5)) ** 2)


def split_compounds(text: str) -> str:
    """Splits hyphenated words, ``a-b`` into ``a ##AT##-##AT## b``, as get_ende_bleu.sh does.

    As in that script, matches are found from left to right, in bytes rather than characters, and do not overlap: in
    ``x-y-z`` only the first hyphen is split, since ``y`` belongs to the first match.
    """
    mark = rf"\1 {COMPOUND_MARK} \2".encode()
    return _COMPOUND.sub(mark, text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def ascii_lower(text: str) -> str:
    """Returns the text with A to Z lower-cased and all other letters unchanged."""
    return text.translate(_ASCII_LOWER)


def t2t_tokenize(text: str) -> str:
    """Returns the tokens of a text, separated by spaces, as tensor2tensor's t2t-bleu tokenizes it."""
    text = _NONDIGIT_PUNCTUATION.sub(r"\1 \2 ", text)
    text = _PUNCTUATION_NONDIGIT.sub(r" \1 \2", text)
    return " ".join(_SYMBOL.sub(r" \1 ", text).split())


_NONDIGIT_PUNCTUATION = regex.compile(r"([^\d])(\p{P})")
_PUNCTUATION_NONDIGIT = regex.compile(r"(\p{P})([^\d])")
_SYMBOL = regex.compile(r"(\p{S})")


def _ngrams(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + order])
        for order in range(1, MTEVAL_ORDERS + 1)
        for start in range(len(words) - order + 1)
    )
