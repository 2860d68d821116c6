"""Tests of ``comparison.py``: is the difference of two systems, over all their seeds, more than chance?

Both tests use BLEU's counts of every sentence, for every seed. Sentences are drawn or exchanged for all seeds together,
because three translations of a sentence are not three independent sentences.

The bootstrap draws sentences. The variance of the seeds is added to each sample as a draw from Student's t distribution
with as many degrees of freedom as the estimate of that variance has. Seeds' scores vary for two reasons: the models
differ in quality, and each model by chance translates these sentences better or worse. The drawing of sentences already
includes the second, so it is subtracted: ``variance - chance`` of ``Spread``. Drawing seeds as well would count it
twice.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

SAMPLES, TRIALS = 10000, 10000
_SEED = 12345
_AT_ONCE = 500  # samples or trials computed at once, which limits the memory


@dataclasses.dataclass(frozen=True)
class Difference:
    """The mean BLEU of a system minus that of its control, over the seeds of both.

    Attributes:
      value: The difference.
      low: Lower end of its 95 % interval.
      high: Upper end of the interval.
      p_bootstrap: Twice the share of the bootstrap's samples on the rarer side of 0, so that it is below 0.05 if the
        interval does not contain 0.
      p_randomization: Share of trials in which randomly exchanging translations makes at least as great a difference.
      seeds: The number of seeds that both have.
    """

    value: float
    low: float
    high: float
    p_bootstrap: float
    p_randomization: float
    seeds: int

    @property
    def p(self) -> float:
        """The larger of the two p: randomization alone mistakes differences between seeds for those between methods."""
        return max(self.p_bootstrap, self.p_randomization)

    def turned(self) -> "Difference":
        """Returns the difference of the control from the system."""
        return dataclasses.replace(self, value=0.0 - self.value, low=0.0 - self.high, high=0.0 - self.low)  # 0, not -0


@dataclasses.dataclass(frozen=True)
class Spread:
    """How much the seeds of a system differ in test BLEU, or the seeds of the difference of two systems.

    Attributes:
      variance: The variance of the seeds' values.
      chance: The part of the variance that comes from the sentences: half the variance of the difference of two seeds
        over samples of sentences.
      degrees: Its degrees of freedom: for each system, the number of seeds minus one.
    """

    variance: float
    chance: float
    degrees: int

    @classmethod
    def of(cls, values: np.ndarray, drawn: np.ndarray) -> "Spread":
        """Returns the spread of seeds' values, float [seeds], given those on samples of sentences [samples, seeds]."""
        seeds = len(values)
        covariance = np.cov(drawn, rowvar=False)
        others = (covariance.sum() - np.trace(covariance)) / (seeds * (seeds - 1))
        return cls(float(values.var(ddof=1)), max(0.0, float(np.trace(covariance) / seeds - others)), seeds - 1)

    @classmethod
    def pooled(cls, spreads: "Sequence[Spread]") -> "Spread | None":
        """Returns the mean of several spreads, weighted by their degrees of freedom; None if there are none."""
        degrees = sum(each.degrees for each in spreads)
        if not degrees:
            return None
        variance, chance = (
            sum(getattr(each, name) * each.degrees for each in spreads) / degrees for name in ("variance", "chance")
        )
        return cls(variance, chance, degrees)


def bleu(counts: np.ndarray) -> np.ndarray:
    """Returns BLEU, 0 to 100, from summed counts: float [..., 10] -> float [...].

    It equals sacrebleu's: up to 4 words, smoothing "exp", brevity penalty. The counts are the lengths of translation
    and reference, then the matches, then the totals of 1 to 4 words.
    """
    length, reference, matches, totals = counts[..., 0], counts[..., 1], counts[..., 2:6], counts[..., 6:10]
    # The n-th order that has no match counts as 1/2^n matches.
    smoothed = 0.5 ** np.cumsum(matches == 0, axis=-1)
    precisions = np.where(matches == 0, smoothed, matches) / np.maximum(totals, 1)
    penalty = np.exp(np.minimum(0.0, 1 - reference / np.maximum(length, 1)))
    whole = (matches[..., 0] > 0) & (totals[..., 3] > 0)
    return np.where(whole, 100 * penalty * np.exp(np.log(precisions).mean(axis=-1)), 0.0)


def without_penalty(counts: np.ndarray) -> np.ndarray:
    """Returns counts, float [..., 10], whose BLEU has no brevity penalty: with references as long as translations."""
    even = counts.copy()
    even[..., 1] = even[..., 0]
    return even


def spread(system: Mapping[int, np.ndarray], control: Mapping[int, np.ndarray] | None = None) -> Spread | None:
    """Returns the spread of a system's seeds, or of its difference from a control; None with fewer than two seeds.

    Args:
      system: Seed -> counts, float [sentences, 10].
      control: The same for the control.
    """
    seeds = sorted(system if control is None else set(system) & set(control))
    if len(seeds) < 2:
        return None
    values, drawn = _scores(np.stack([system[seed] for seed in seeds]))
    if control is not None:
        others = _scores(np.stack([control[seed] for seed in seeds]))
        values, drawn = values - others[0], drawn - others[1]
    return Spread.of(values, drawn)


def difference(
    system: Mapping[int, np.ndarray],
    control: Mapping[int, np.ndarray],
    *,
    pool: Sequence[Spread] = (),
    shared: bool = False,
) -> Difference | None:
    """Returns the test of a system against its control over the seeds that both have; None if there are none.

    Args:
      system: Seed -> counts, float [sentences, 10].
      control: The same for the control.
      pool: Spreads of all systems, including these two; with ``shared``, of the differences of all such pairs. Their
        mean or the pair's own spread is used, whichever is larger, with its own degrees of freedom. Without a pool,
        the pair's own is used.
      shared: Whether both begin with the same run for each seed, so that their results are paired by seed.
    """
    seeds = sorted(set(system) & set(control))
    if not seeds:
        return None
    pair = np.stack([[each[seed] for seed in seeds] for each in (control, system)])  # [2, seeds, sentences, 10]
    values, samples = zip(*map(_scores, pair), strict=True)
    value = float(values[1].mean() - values[0].mean())
    drawn = (samples[1] - samples[0]).mean(axis=1)
    if len(seeds) > 1:
        if shared:
            own = Spread.of(values[1] - values[0], samples[1] - samples[0])
        else:
            own = Spread.pooled([Spread.of(*each) for each in zip(values, samples, strict=True)])
        drawn = drawn + _of_seeds(own, Spread.pooled(pool) or own, (1 if shared else 2) / len(seeds))
    low, high, p_bootstrap = _interval(drawn)
    p_randomization = (1 + np.sum(np.abs(_randomized(pair)) >= abs(value) - 1e-9)) / (1 + TRIALS)
    return Difference(value, low, high, p_bootstrap, float(p_randomization), len(seeds))


def difference_of_means(
    system: Mapping[int, np.ndarray], control: Mapping[int, np.ndarray], *, pool: Sequence[Spread] = ()
) -> Difference | None:
    """Returns the test of a system against a control with different seeds; None if either has fewer than two.

    It is like ``difference``, but over all seeds of each. There is no randomization, because that exchanges
    translations of the same seed: its p is 0, and ``seeds`` is the smaller number.
    """
    if min(len(system), len(control)) < 2:
        return None
    found = [_scores(np.stack([each[seed] for seed in sorted(each)])) for each in (control, system)]
    own = Spread.pooled([Spread.of(*each) for each in found])
    assert own is not None
    (of_control, drawn_of_control), (of_system, drawn_of_system) = found
    drawn = drawn_of_system.mean(axis=1) - drawn_of_control.mean(axis=1)
    drawn += _of_seeds(own, Spread.pooled(pool) or own, 1 / len(system) + 1 / len(control))
    value = float(of_system.mean() - of_control.mean())
    low, high, p = _interval(drawn)
    return Difference(value, low, high, p, 0.0, min(len(system), len(control)))


def _interval(drawn: np.ndarray) -> tuple[float, float, float]:
    """Returns the ends of the samples' 95 % interval, and p: twice the share on the rarer side of 0."""
    low, high = np.percentile(drawn, [2.5, 97.5])
    rarer = min(np.sum(drawn <= 0), np.sum(drawn >= 0))
    return float(low), float(high), float(min(1.0, 2 * (1 + rarer) / (1 + len(drawn))))


def _of_seeds(own: Spread, pool: Spread, share: float) -> np.ndarray:
    """Returns the change in each sample that other seeds would cause: float [samples]."""
    larger = max(own, pool, key=lambda each: each.variance)
    variance = max(0.0, larger.variance - own.chance)
    return np.sqrt(share * variance) * np.random.default_rng(_SEED).standard_t(larger.degrees, size=SAMPLES)


def _scores(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns BLEU of every seed's counts, float [seeds, sentences, 10].

    Returns:
      BLEU of all sentences, float [seeds], and of samples of sentences, float [samples, seeds].
    """
    samples = [_samples(each.tobytes(), counts.shape[1], SAMPLES) for each in counts]
    return bleu(counts.sum(axis=1)), np.stack(samples, axis=1)


@functools.lru_cache(maxsize=256)  # every run is in several pairs, and every pair in several tables
def _samples(counts: bytes, sentences: int, samples: int) -> np.ndarray:
    """Returns BLEU of samples of sentences, float [samples]; ``counts`` is float64 [sentences, 10] as bytes."""
    rows = np.frombuffer(counts).reshape(sentences, -1)
    drawn = np.split(_drawn(sentences, samples), samples // _AT_ONCE)
    return np.concatenate([bleu(_sums(often, rows)) for often in drawn])


def _randomized(pair: np.ndarray) -> np.ndarray:
    """Returns the differences in trials that exchange translations of sentences (Riezler & Maxwell 2005).

    Args:
      pair: Counts of control and system, float [2, seeds, sentences, 10].
    """
    total, gap = pair.sum(axis=2), pair[1] - pair[0]
    seeds, sentences, columns = gap.shape
    gap = gap.transpose(1, 0, 2).reshape(sentences, seeds * columns)
    found = []
    for exchanged in np.split(_exchanged(sentences, TRIALS), TRIALS // _AT_ONCE):
        moved = _sums(exchanged, gap).reshape(-1, seeds, columns)
        found.append((bleu(total[1] - moved) - bleu(total[0] + moved)).mean(axis=1))
    return np.concatenate(found)


def _sums(often: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the sums of counts [sentences, n] in samples [samples, sentences]: float64 [samples, n].

    It computes in float32, which is several times as fast. Counts are integers, and their sums are exact below 2^24 (a
    test set of a million words is far from that).
    """
    return (often.astype(np.float32) @ counts.astype(np.float32)).astype(float)


# Cached, because every pair in a table is tested with the same draws.
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
