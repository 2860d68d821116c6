"""Is the difference of two systems more than chance, over all their seeds? Tests of ``comparison.py``.

Both take what BLEU counts in every sentence, for every seed. Sentences are drawn, or exchanged, for all seeds together:
three translations of a sentence are not three sentences.

The bootstrap draws sentences; what seeds add to its variance is a normal number divided by the root of the mean of as
many squares as the estimate has degrees of freedom (Student's t). Seeds' scores vary for two reasons: since the models
differ in quality, and since each translates these sentences by chance better or worse. The second is in the draw of
sentences already, so it is taken out: ``variance - chance`` of ``Spread``. Drawing seeds as well would count it twice.
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

    def turned(self) -> "Difference":
        """Returns the difference of the control to the system."""
        return dataclasses.replace(self, value=0.0 - self.value, low=0.0 - self.high, high=0.0 - self.low)  # 0, not -0


@dataclasses.dataclass(frozen=True)
class Spread:
    """How much seeds differ in test BLEU, of a system or in the difference of two.

    Attributes:
      variance: Of the seeds' values.
      chance: The part of it that comes from the sentences: half the variance of the difference of two seeds over
        samples of sentences.
      degrees: Its degrees of freedom: seeds less one for each system.
    """

    variance: float
    chance: float
    degrees: int

    @classmethod
    def of(cls, values: np.ndarray, drawn: np.ndarray) -> "Spread":
        """Takes the values of seeds, float [seeds], and those in samples of sentences, float [samples, seeds]."""
        seeds = len(values)
        covariance = np.cov(drawn, rowvar=False)
        others = (covariance.sum() - np.trace(covariance)) / (seeds * (seeds - 1))
        return cls(float(values.var(ddof=1)), max(0.0, float(np.trace(covariance) / seeds - others)), seeds - 1)

    @classmethod
    def pooled(cls, spreads: "Sequence[Spread]") -> "Spread | None":
        """Returns the mean of several, by their degrees of freedom; None of none."""
        degrees = sum(each.degrees for each in spreads)
        if not degrees:
            return None
        variance, chance = (
            sum(getattr(each, name) * each.degrees for each in spreads) / degrees for name in ("variance", "chance")
        )
        return cls(variance, chance, degrees)


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


def without_penalty(counts: np.ndarray) -> np.ndarray:
    """Returns counts, float [..., 10], whose BLEU has no brevity penalty: references are as long as translations."""
    even = counts.copy()
    even[..., 1] = even[..., 0]
    return even


def spread(system: Mapping[int, np.ndarray], control: Mapping[int, np.ndarray] | None = None) -> Spread | None:
    """Returns how much a system's seeds differ, or the seeds of its difference to a control; None of less than two.

    Args:
      system: Seed -> counts, float [sentences, 10].
      control: The same.
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
    """Tests a system against its control over the seeds that both have; None without such seeds.

    Args:
      system: Seed -> counts, float [sentences, 10].
      control: The same.
      pool: Spreads of all systems, these two among them, or with ``shared`` of all differences of such pairs. The
        larger of their mean and the pair's own counts, with its own degrees of freedom; without a pool, the pair's.
      shared: Whether both begin with the same run of each seed, so that seeds are pairs.
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
    """Tests a system against its control where they have other seeds; None where one of them has less than two.

    As ``difference``, over all seeds of each. There is no randomization, which exchanges what both have translated:
    its p is 0, and ``seeds`` is the smaller number.
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
    """Returns where the 95 % interval of samples begins and ends, and p: twice the share on the rarer side of 0."""
    low, high = np.percentile(drawn, [2.5, 97.5])
    rarer = min(np.sum(drawn <= 0), np.sum(drawn >= 0))
    return float(low), float(high), float(min(1.0, 2 * (1 + rarer) / (1 + len(drawn))))


def _of_seeds(own: Spread, pool: Spread, share: float) -> np.ndarray:
    """Returns what other seeds would change in each sample: float [samples]."""
    larger = max(own, pool, key=lambda each: each.variance)
    variance = max(0.0, larger.variance - own.chance)
    return np.sqrt(share * variance) * np.random.default_rng(_SEED).standard_t(larger.degrees, size=SAMPLES)


def _scores(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns BLEU of every seed's counts, float [seeds, sentences, 10]: of all sentences, and of samples of them."""
    samples = [_samples(each.tobytes(), counts.shape[1], SAMPLES) for each in counts]
    return bleu(counts.sum(axis=1)), np.stack(samples, axis=1)


@functools.lru_cache(maxsize=256)  # every run is in several pairs, and every pair in several tables
def _samples(counts: bytes, sentences: int, samples: int) -> np.ndarray:
    """Returns BLEU of samples of sentences, float [samples], of counts float64 [sentences, 10] as bytes."""
    rows = np.frombuffer(counts).reshape(sentences, -1)
    drawn = np.split(_drawn(sentences, samples), samples // _AT_ONCE)
    return np.concatenate([bleu(_sums(often, rows)) for often in drawn])


def _randomized(pair: np.ndarray) -> np.ndarray:
    """Returns the difference in trials that exchange translations of a sentence (Riezler & Maxwell 2005)."""
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

    In float32, several times as fast: counts are whole numbers, whose sums it has exactly below 2^24 (a test set of a
    million words is far from it).
    """
    return (often.astype(np.float32) @ counts.astype(np.float32)).astype(float)


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
