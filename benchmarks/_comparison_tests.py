"""Is the difference of two systems more than chance, over all their seeds? Tests of ``comparison.py``.

Both take what BLEU counts in every sentence, for every seed. Sentences are drawn, or exchanged, for all seeds together:
three translations of a sentence are not three sentences.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

SAMPLES, TRIALS = 10000, 10000
_SEED = 12345
_AT_ONCE = 500  # samples, or trials: it bounds the memory


@dataclasses.dataclass(frozen=True)
class Difference:
    """The mean BLEU of a system less that of its control, over the seeds of both.

    Attributes:
      value: The difference.
      low: Where its 95 % interval begins.
      high: Where it ends.
      p_bootstrap: Twice the share of the bootstrap's samples on the rarer side of 0, so that it is below 0.05 where the
        interval does not hold 0.
      p_randomization: Share of trials in which exchanging translations at random makes so great a difference.
      seeds: How many seeds both have.
    """

    value: float
    low: float
    high: float
    p_bootstrap: float
    p_randomization: float
    seeds: int

    @property
    def p(self) -> float:
        """The larger of the two: randomization takes differences of seeds for those of methods."""
        return max(self.p_bootstrap, self.p_randomization)


def bleu(counts: np.ndarray) -> np.ndarray:
    """Returns BLEU, 0 to 100, of counts that were added up: float [..., 10] -> float [...].

    As sacrebleu's: up to 4 words, smoothing "exp", brevity penalty. The counts are lengths of translation and
    reference, then matches, then totals of 1 to 4 words.
    """
    length, reference, matches, totals = counts[..., 0], counts[..., 1], counts[..., 2:6], counts[..., 6:10]
    # The n-th order without a match counts as 1/2^n of one.
    smoothed = 0.5 ** np.cumsum(matches == 0, axis=-1)
    precisions = np.where(matches == 0, smoothed, matches) / np.maximum(totals, 1)
    penalty = np.exp(np.minimum(0.0, 1 - reference / np.maximum(length, 1)))
    whole = (matches[..., 0] > 0) & (totals[..., 3] > 0)
    return np.where(whole, 100 * penalty * np.exp(np.log(precisions).mean(axis=-1)), 0.0)


def difference(system: Mapping[int, np.ndarray], control: Mapping[int, np.ndarray]) -> Difference | None:
    """Tests a system against its control over the seeds that both have; None without such seeds.

    Args:
      system: Seed -> counts, float [sentences, 10].
      control: The same.
    """
    seeds = sorted(set(system) & set(control))
    if not seeds:
        return None
    pair = np.stack([[each[seed] for seed in seeds] for each in (control, system)])  # [2, seeds, sentences, 10]
    scores = bleu(pair.sum(axis=2)).mean(axis=1)
    value = float(scores[1] - scores[0])
    drawn = _bootstrap(pair)
    low, high = np.percentile(drawn, [2.5, 97.5])
    rarer = min(np.sum(drawn <= 0), np.sum(drawn >= 0))
    p_bootstrap = min(1.0, 2 * (1 + rarer) / (1 + len(drawn)))
    p_randomization = (1 + np.sum(np.abs(_randomized(pair)) >= abs(value) - 1e-9)) / (1 + TRIALS)
    return Difference(value, float(low), float(high), float(p_bootstrap), float(p_randomization), len(seeds))


def _bootstrap(pair: np.ndarray) -> np.ndarray:
    """Returns the difference in samples of sentences and, for each system by itself, of seeds (Koehn 2004)."""
    rng = np.random.default_rng(_SEED)
    _, seeds, sentences, _ = pair.shape
    found = []
    for drawn in np.split(_drawn(sentences, SAMPLES), SAMPLES // _AT_ONCE):
        often = drawn.astype(float)
        scores = bleu(np.einsum("bn,ksnc->bksc", often, pair, optimize=True))  # [samples, 2, seeds]
        # Means of as many draws as there are seeds would have too small a variance, by (n - 1) / n (Rao & Wu 1988).
        chosen = rng.integers(seeds, size=(*scores.shape[:2], max(1, seeds - 1)))
        means = np.take_along_axis(scores, chosen, axis=2).mean(axis=2)
        found.append(means[:, 1] - means[:, 0])
    return np.concatenate(found)


def _randomized(pair: np.ndarray) -> np.ndarray:
    """Returns the difference in trials that exchange translations of a sentence (Riezler & Maxwell 2005)."""
    total, gap = pair.sum(axis=2), pair[1] - pair[0]
    found = []
    for exchanged in np.split(_exchanged(pair.shape[2], TRIALS), TRIALS // _AT_ONCE):
        moved = np.einsum("bn,snc->bsc", exchanged.astype(float), gap, optimize=True)
        found.append((bleu(total[1] - moved) - bleu(total[0] + moved)).mean(axis=1))
    return np.concatenate(found)


# Every pair of a table is tested with the same draws.
@functools.lru_cache(maxsize=2)
def _drawn(sentences: int, samples: int) -> np.ndarray:
    """Returns how often each sentence is in each sample: uint8 [samples, sentences]."""
    rng, equal = np.random.default_rng(_SEED), np.full(sentences, 1 / sentences)
    return np.concatenate(
        [rng.multinomial(sentences, equal, size=_AT_ONCE).astype(np.uint8) for _ in range(samples // _AT_ONCE)]
    )


@functools.lru_cache(maxsize=2)
def _exchanged(sentences: int, trials: int) -> np.ndarray:
    """Returns whether each sentence's translations are exchanged in each trial: bool [trials, sentences]."""
    return np.random.default_rng(_SEED).integers(2, size=(trials, sentences), dtype=np.int8).astype(bool)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected for their number (Holm 1979)."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
