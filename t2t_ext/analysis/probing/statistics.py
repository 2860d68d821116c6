"""Confidence intervals and significance tests of accuracies. Imports no TensorFlow.

Intervals: Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference". Tests: the exact test
of McNemar (1947) if each system was trained once. With several seeds a sentence may be right for only some of them, so
the paired bootstrap over test sentences (Koehn 2004) is used instead.
"""

import math
import statistics

import numpy as np

MCNEMAR, BOOTSTRAP = "exact McNemar test", "paired bootstrap over test sentences"
RESAMPLES = 2000
_SEED = 12345  # fixed, so that the same call gives the same result
_AT_ONCE = 50  # resamples; an index for each of their sentences is kept in memory


def wilson(accuracy: float, count: int, level: float = 0.95) -> tuple[float, float]:
    """Returns Wilson's score interval of an accuracy, the share of ``count`` items that are right."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    center = (accuracy + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(accuracy * (1 - accuracy) / count + z**2 / (4 * count**2))
    return max(0.0, center - half), min(1.0, center + half)


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the two-sided p-value of the exact McNemar test on bool [sentences]: whether each system is right."""
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    apart, fewer = only_first + only_second, min(only_first, only_second)
    if not apart:
        return 1.0
    logs = [
        math.lgamma(apart + 1) - math.lgamma(i + 1) - math.lgamma(apart - i + 1) - apart * math.log(2)
        for i in range(fewer + 1)
    ]
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def paired_bootstrap(first: np.ndarray, second: np.ndarray, resamples: int = RESAMPLES) -> float:
    """Returns the two-sided p-value of the paired bootstrap: how often chance alone gives at least this difference.

    Both arguments are float [sentences]: the share of seeds for which a system has each sentence right. The resamples'
    differences are shifted to a mean of zero, the null hypothesis. p is at least 1 / (resamples + 1).
    """
    differences = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    observed = differences.mean()
    random, count, extreme = np.random.default_rng(_SEED), len(differences), 0
    for done in range(0, resamples, _AT_ONCE):
        some = min(_AT_ONCE, resamples - done)
        means = differences[random.integers(count, size=[some, count])].mean(axis=1)
        extreme += int((np.abs(means - observed) >= abs(observed) - 1e-12).sum())
    return (extreme + 1) / (resamples + 1)


def paired_test(first: np.ndarray, second: np.ndarray) -> tuple[str, float]:
    """Returns the suitable test's name and p-value, given bool [seeds, sentences]: whether each system is right."""
    if len(first) == len(second) == 1:
        return MCNEMAR, mcnemar(first[0], second[0])
    return BOOTSTRAP, paired_bootstrap(first.mean(axis=0), second.mean(axis=0))
