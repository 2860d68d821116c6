"""A score of a whole corpus, always with the signature that makes it comparable, and how a metric computes one.

What is computed by which metrics, ``t2t_ext.evaluation.protocols`` says.

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
_MECAB_PACKAGES = {"ja": "MeCab", "ko": "mecab_ko"}
# Languages without whitespace between words: n-grams of anything but characters mean nothing without a segmenter.
_UNSEGMENTED = ("ja", "ko", "th", "lo", "km", "my", "bo", "dz")


@dataclasses.dataclass(frozen=True)
class Score:
    """A score of a whole corpus.

    Attributes:
      name: ``"BLEU"``, ``"chrF2"``, ``"chrF2++"``, ``"TER"`` or ``"NIST"``.
      value: The score, 0 to 100 (TER may exceed 100; NIST is in bits). Higher is better, but for TER.
      signature: sacrebleu's signature: everything that the value depends on besides the texts.
      details: What the value was computed from; for BLEU the n-gram ``precisions`` (percent), ``counts``,
        ``totals``, ``brevity_penalty``, ``hypothesis_length`` and ``reference_length`` (tokens), for TER the number
        of ``edits`` and the average ``reference_length``; for NIST the bits ``by_order`` (1 to 9), the
        ``length_penalty`` and both lengths; mteval's BLEU has the precisions ``by_order`` and ``cumulative`` as well.
      confidence: Half the width of the 95 % confidence interval, or None when it was not asked for.
      mean: The mean over the bootstrap samples, or None.
    """

    name: str
    value: float
    signature: str
    details: dict[str, Any] = dataclasses.field(default_factory=dict)
    confidence: float | None = None
    mean: float | None = None

    def __str__(self) -> str:
        """Returns one line: name, value, confidence, the details that people read, and the signature."""
        return f"{self.name} = {self.format(self.value)}{self.explanation}"

    @property
    def decimals(self) -> int:
        """Number of decimals in a report."""
        return 4 if self.name.startswith("NIST") else 2

    @property
    def higher_is_better(self) -> bool:
        """Whether the higher of two scores is the better one."""
        return not self.name.startswith("TER")

    def format(self, value: float) -> str:
        """Writes a value of this metric as reports do."""
        return f"{value:.{self.decimals}f}"

    @property
    def explanation(self) -> str:
        """What belongs behind the value in a report: confidence, details and the signature."""
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
    """Chooses the tokenizer with which BLEU is usually reported for a target language such as ``"de"``, ``"zh_Hant"``.

    That is ``zh`` for Chinese; for Japanese and Korean sacrebleu's MeCab tokenizers where their packages are installed;
    ``char`` for them otherwise and for other scripts without whitespace between words; ``13a`` for all else.
    """
    code = base_language(language or "")
    if code == "zh":
        return "zh"
    if code in _MECAB_PACKAGES and importlib.util.find_spec(_MECAB_PACKAGES[code]) is not None:
        return f"{code}-mecab"
    return "char" if code in _UNSEGMENTED else DEFAULT_TOKENIZER


def check_tokenizer(name: str) -> None:
    """Raises a UserError if sacrebleu has no tokenizer of that name, or one that cannot be used here."""
    from sacrebleu.metrics import BLEU

    if name not in BLEU.TOKENIZERS:
        known = ", ".join(BLEU.TOKENIZERS)
        raise UserError(f"Unknown tokenizer {name!r}.{suggest(name, BLEU.TOKENIZERS)} Choose one of: {known}.")
    with usable_tokenizer(name):
        BLEU(tokenize=name)


@contextlib.contextmanager
def usable_tokenizer(name: str) -> Iterator[None]:
    """Says in a UserError why a tokenizer of sacrebleu cannot be made: a package is missing, or its model offline."""
    try:
        yield
    except (ImportError, RuntimeError, OSError) as error:
        raise UserError(
            f"The tokenizer {name!r} cannot be used here: {first_line(error)} "
            "Install what it needs, or choose another, such as 'char'."
        ) from error


def check_segments(hypotheses: Sized, references: Sequence[Sized]) -> None:
    """Raises a UserError unless there are references, as many as translations, and at least one of them."""
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
    """Computes a score with a metric of sacrebleu's kind, made with its references.

    With ``n_bootstrap`` samples it has a 95 % confidence interval; 0 for none.

    Raises:
      UserError: ``n_bootstrap`` is negative or 1.
    """
    return score_of_counts(metric, metric._extract_corpus_statistics(list(hypotheses), None), n_bootstrap)


def random_seed() -> int | None:
    """Returns sacrebleu's seed, which the environment variable ``SACREBLEU_SEED`` changes; None: another every time.

    Raises:
      UserError: It is neither a whole number nor ``none``.
    """
    text = os.environ.get("SACREBLEU_SEED", "12345").strip().lower()
    if text == "none":
        return None
    if not text.isascii() or not text.isdecimal():
        raise UserError(f"SACREBLEU_SEED={text}: the seed of sacrebleu's tests is a whole number from 0, or none.")
    return int(text)


def score_of_counts(metric: Any, counts: Any, n_bootstrap: int = 0) -> Score:
    """Computes a score, as ``score_with``, of what a metric counted in each segment.

    The bootstrap samples are those of sacrebleu, which holds all of them at once.

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
        for each in found:  # sacrebleu's mean does not take Python's floats beside NumPy's, such as a 0 beside others
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
