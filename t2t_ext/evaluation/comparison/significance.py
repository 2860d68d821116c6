"""Is a difference between two systems more than chance? sacrebleu's paired tests.

Paired bootstrap resampling: Koehn (2004), "Statistical Significance Tests for Machine Translation Evaluation".
Paired approximate randomization: Riezler and Maxwell (2005), "On Some Pitfalls in Automatic Evaluation and
Significance Testing for MT". Seeds are fixed (sacrebleu's, SACREBLEU_SEED changes them).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

DEFAULT_RESAMPLES = 1000
DEFAULT_TRIALS = 10000
_FEWEST_TRIALS = 1000
_FEWEST_RESAMPLES = 200
# sacrebleu holds all trials at once: two bytes and a number of 8 bytes for each segment of each of them;
_TRIAL_BYTES_PER_SEGMENT = 10
# and all resamples: up to 26 counts of 4 bytes (chrF2++) and an index.
_RESAMPLE_BYTES_PER_SEGMENT = 112
_MEMORY = 1_500_000_000


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """A system against the baseline in one metric.

    Attributes:
      label: The metric.
      baseline: The baseline's name.
      system: The other system's name.
      difference: The system's score minus the baseline's.
      p_bootstrap: The share of resamples in which chance alone makes so great a difference.
      p_randomization: The share of trials in which swapping translations at random does.
      signature_bootstrap: sacrebleu's signature of the first test.
      signature_randomization: That of the second.
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
    """Returns how many trials of approximate randomization fit into an array of 1.5 GB, 1,000 at the least."""
    return min(trials, max(_FEWEST_TRIALS, _MEMORY // (_TRIAL_BYTES_PER_SEGMENT * max(1, segments))))


def affordable_resamples(segments: int, resamples: int = DEFAULT_RESAMPLES) -> int:
    """Returns how many bootstrap samples fit into an array of 1.5 GB, 200 at the least."""
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
    """Tests every system against the first, or with ``all_pairs`` against every one that comes before it.

    The metric is of sacrebleu's kind, made with its references. Tests against the first system come first.
    """
    from sacrebleu import significance

    names = list(systems)
    if all_pairs:
        rests = ({name: systems[name] for name in names[first:]} for first in range(len(names) - 1))
        tests = (paired_tests(label, metric, rest, resamples=resamples, trials=trials) for rest in rests)
        return list(itertools.chain.from_iterable(tests))
    named: list[tuple[str, Sequence[str]]] = [(name, list(lines)) for name, lines in systems.items()]
    found: dict[str, tuple[Any, str]] = {}
    for test, samples in (("bs", resamples), ("ar", trials)):
        signatures, columns = significance.PairedTest(named, {label: metric}, None, test, samples)()
        (signature,) = signatures.values()
        (results,) = (column for name, column in columns.items() if name != "System")
        found[test] = results, signature.format()
    (bootstrap, bootstrap_signature), (randomization, randomization_signature) = found["bs"], found["ar"]
    return [
        PairedTest(
            label,
            names[0],
            names[number],
            float(bootstrap[number].score - bootstrap[0].score),
            float(bootstrap[number].p_value),
            float(randomization[number].p_value),
            bootstrap_signature,
            randomization_signature,
        )
        for number in range(1, len(names))
    ]
