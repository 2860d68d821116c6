"""Tests whether a difference between two systems is more than chance, with sacrebleu's paired tests.

Paired bootstrap resampling: Koehn (2004), "Statistical Significance Tests for Machine Translation Evaluation".
Paired approximate randomization: Riezler and Maxwell (2005), "On Some Pitfalls in Automatic Evaluation and
Significance Testing for MT". The seed is sacrebleu's; the environment variable SACREBLEU_SEED changes it.
"""

import dataclasses
import itertools
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_ext.evaluation.scores import random_seed

if TYPE_CHECKING:
    import numpy as np

DEFAULT_RESAMPLES = 1000
DEFAULT_TRIALS = 10000
_FEWEST_TRIALS = 1000
_FEWEST_RESAMPLES = 200
# The default numbers are as many as fit into 1.5 GB if all are held at once, as sacrebleu does. For each segment, a
# trial takes two bytes and a number of 8 bytes,
_TRIAL_BYTES_PER_SEGMENT = 10
# and a resample takes up to 26 counts of 4 bytes (chrF2++) and an index.
_RESAMPLE_BYTES_PER_SEGMENT = 112
_MEMORY = 1_500_000_000
_BLOCK = 300_000_000  # bytes of the trials that are held at once
_ROUNDING = 1e-9  # tolerance for scores of the same counts added up in a different order


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """The tests of a system against a baseline in one metric.

    Attributes:
      label: The metric's label.
      baseline: The baseline's name.
      system: The other system's name.
      difference: The system's score minus the baseline's.
      p_bootstrap: The share of resamples in which chance alone gives at least this difference. As in sacrebleu (and
        Moses' script), absolute differences are centered, so p is hardly larger than in a one-sided test.
      p_randomization: The share of trials in which randomly swapping translations gives at least this difference;
        two-sided.
      signature_bootstrap: sacrebleu's signature of the bootstrap test.
      signature_randomization: sacrebleu's signature of the randomization test.
    """

    label: str
    baseline: str
    system: str
    difference: float
    p_bootstrap: float
    p_randomization: float
    signature_bootstrap: str
    signature_randomization: str


def affordable_trials(segments: int, trials: int = DEFAULT_TRIALS) -> int:
    """Returns the default number of trials of approximate randomization, at least 1,000."""
    return min(trials, max(_FEWEST_TRIALS, _MEMORY // (_TRIAL_BYTES_PER_SEGMENT * max(1, segments))))


def affordable_resamples(segments: int, resamples: int = DEFAULT_RESAMPLES) -> int:
    """Returns the default number of bootstrap samples, at least 200."""
    return min(resamples, max(_FEWEST_RESAMPLES, _MEMORY // (_RESAMPLE_BYTES_PER_SEGMENT * max(1, segments))))


def paired_tests(
    label: str,
    metric: Any,
    systems: Mapping[str, Sequence[str]],
    *,
    resamples: int = DEFAULT_RESAMPLES,
    trials: int = DEFAULT_TRIALS,
    all_pairs: bool = False,
) -> list[PairedTest]:
    """Tests every system against the first or, with ``all_pairs``, against every system before it.

    ``metric`` is a sacrebleu metric (or a compatible one) created with its references. Tests against the first system
    come first. The random numbers are the same as in ``sacrebleu.significance.PairedTest``, but samples and trials are
    not all held in memory at once.
    """
    import numpy as np

    names = list(systems)
    counts = {name: np.array(metric._extract_corpus_statistics(list(lines), None)) for name, lines in systems.items()}
    real = {name: float(metric._aggregate_and_compute(each).score) for name, each in counts.items()}
    seed = random_seed()
    drawn = secrets.randbits(64) if seed is None else seed  # the same for all systems: the tests are paired
    sampled = {name: _resampled(metric, each, resamples, drawn) for name, each in counts.items()}
    signatures = {}
    for test, samples in (("bs", resamples), ("ar", trials)):
        signature = metric.get_signature()
        signature.info.pop("bs", None)  # left from a confidence interval computed before
        signature.update("seed", "none" if seed is None else str(seed))
        signature.update(test, samples)
        signatures[test] = signature.format()
    tests = []
    for baseline, name in itertools.combinations(names, 2):
        if baseline != names[0] and not all_pairs:
            break
        difference = abs(real[baseline] - real[name])
        spread = np.abs(sampled[name] - sampled[baseline])
        swapped = _swapped(metric, counts[baseline], counts[name], trials, drawn)
        tests.append(
            PairedTest(
                label,
                baseline,
                name,
                real[name] - real[baseline],
                _p_value(spread - spread.mean(), difference),
                _p_value(swapped, difference),
                signatures["bs"],
                signatures["ar"],
            )
        )
    return tests


def _resampled(metric: Any, counts: "np.ndarray", samples: int, seed: int) -> "np.ndarray":
    """Returns the scores of bootstrap samples; the same seed draws the same segments."""
    import numpy as np

    rng, table, size = np.random.default_rng(seed), counts.astype(np.float32), len(counts)
    drawn = (table[rng.choice(size, size=size)].sum(0) for _ in range(samples))
    return np.array([metric._compute_score_from_stats(each).score for each in drawn])


def _swapped(metric: Any, baseline: "np.ndarray", system: "np.ndarray", trials: int, seed: int) -> "np.ndarray":
    """Returns, for each trial, the absolute score difference after randomly swapping translations of segments."""
    import numpy as np

    rng, differences = np.random.default_rng(seed), []
    # Random bits are drawn in words of 32. With whole words per block, the bits equal those of a single draw.
    at_once = max(32, _BLOCK // (_TRIAL_BYTES_PER_SEGMENT * len(baseline)) // 32 * 32)
    for start in range(0, trials, at_once):
        kept = rng.integers(2, size=(min(at_once, trials - start), len(baseline)), dtype=bool)
        sides = kept @ baseline + ~kept @ system, ~kept @ baseline + kept @ system
        first, second = (np.array([metric._aggregate_and_compute(x).score for x in side[:, None]]) for side in sides)
        differences.append(np.abs(first - second))
    return np.concatenate(differences)


def _p_value(differences: "np.ndarray", real: float) -> float:
    """Returns the share of differences that are at least as large as the real one, with 1 added to both counts.

    sacrebleu counts only larger ones. It therefore reports a significant difference between systems that differ in a
    single sentence.
    """
    return (int((differences >= real - _ROUNDING).sum()) + 1) / (len(differences) + 1)
