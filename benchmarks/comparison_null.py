"""Measures how often the tests of ``comparison.py`` find a difference between two methods that do not differ.

    python benchmarks/comparison_null.py                                  # 200 pairs of methods, some minutes
    python benchmarks/comparison_null.py --shift=0.02 --shared=0.9        # seeds differ in quality
    python benchmarks/comparison_null.py --paired                         # methods that share runs of every seed
    python benchmarks/comparison_null.py --rows=16 --pairs=50             # whole tables of 16 rows and one control
    python benchmarks/comparison_null.py --rows=16 --shift=0.03 --others=0.5     # other rows differ half as much

Two methods, each with several seeds, translate the same sentences. Whether a token is right depends on its sentence, on
a component that all seeds share (``--shared``, a part of the variance), on chance, and on the seed's quality
(``--shift``, a standard deviation). Nothing depends on the method, so each difference that is found is a type I error.
The tests of ``t2t_ext-compare`` are tried as well, on the first seed of each method. With ``--rows``, the program tells
how many tables have at least one such error: by the protocol (Holm's correction of the larger p), and with
randomization only. It also tells how often the first row is found before any correction.
"""

import argparse
import sys

import _comparison_tests as tests
import numpy as np
from sacrebleu.metrics import BLEU

from t2t_ext.evaluation.comparison import significance

_LONGEST = 20
_THRESHOLD = -0.75  # about 58 BLEU
_OF_SENTENCES, _OF_TOKENS = 0.6, 0.8  # standard deviations of the component that all seeds share
_LEVEL = 0.05


def main() -> int:
    """Simulates pairs of methods and prints a line of results; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--shared", type=float, default=0.9)
    parser.add_argument("--shift", type=float, default=0.0)
    parser.add_argument("--paired", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--others", type=float, default=1.0)
    args = parser.parse_args()
    if args.rows:
        return tables(args)
    tests.SAMPLES = tests.TRIALS = 500
    rng, found, of_one, variances = np.random.default_rng(11), [], [], []
    for _ in range(args.pairs):
        pair = simulated(rng, args, 2)
        variances.append(tests.bleu(pair.sum(axis=2)).var(axis=1, ddof=1).mean())
        tested = tests.difference(*(dict(enumerate(each)) for each in pair), shared=args.paired)
        randomization, interval = tested.p_randomization < _LEVEL, not tested.low <= 0 <= tested.high
        found.append((randomization, interval, tested.p_bootstrap < _LEVEL, randomization and interval))
        of_one.append(compared(*pair[:, 0]))
    shares = [f"{100 * share:.1f} %" for share in np.mean(np.hstack([found, of_one]), axis=0)]
    print(f"{vars(args)}: deviation of seeds {np.sqrt(np.mean(variances)):.2f} BLEU; of {args.pairs} pairs, found by")
    print("randomization {}, interval {}, p of the bootstrap {}, randomization and interval {};".format(*shares[:4]))
    print("of one seed, by t2t_ext-compare, p of the bootstrap {}, randomization {}".format(*shares[4:]))
    return 0


def tables(args: argparse.Namespace) -> int:
    """Simulates tables of rows with one control and prints how many have an error; returns the exit status."""
    tests.SAMPLES = tests.TRIALS = 2000
    rng, wrong, variances = np.random.default_rng(11), [], []
    for _ in range(args.pairs):
        control, *rows = simulated(rng, args, args.rows + 1)
        variances.append(tests.bleu(np.stack([control, *rows]).sum(axis=2)).var(axis=1, ddof=1).mean())
        systems = [dict(enumerate(each)) for each in (control, *rows)]
        pool = [each for each in map(tests.spread, systems) if each]
        tested = [tests.difference(each, systems[0], pool=pool) for each in systems[1:]]
        beyond = np.array([not each.low <= 0 <= each.high for each in tested])
        larger, randomization = (
            np.array(tests.holm([getattr(each, p) for each in tested])) < _LEVEL for p in ("p", "p_randomization")
        )
        wrong.append(((larger & beyond).any(), (randomization & beyond).any(), beyond.any(), beyond[0]))
    shares = [f"{100 * share:.0f} %" for share in np.mean(wrong, axis=0)]
    print(f"{vars(args)}: deviation of seeds {np.sqrt(np.mean(variances)):.2f} BLEU; of {args.pairs} tables of")
    print(
        "{} rows, one at least is found by: Holm of the larger p {}, of the randomization's {},".format(
            args.rows, *shares
        )
    )
    print(f"the interval alone {shares[2]}; the first row by its interval {shares[3]}")
    return 0


def compared(*counts: np.ndarray) -> tuple[bool, bool]:
    """Returns whether t2t_ext-compare's bootstrap and randomization find a difference between two translations."""
    metric = BLEU(references=[["a"]])
    metric._extract_corpus_statistics = lambda lines, references: counts[len(lines) - 1]
    systems = {"first": [""], "second": ["", ""]}
    (tested,) = significance.paired_tests("BLEU", metric, systems, resamples=500, trials=500)
    return tested.p_bootstrap < _LEVEL, tested.p_randomization < _LEVEL


def simulated(rng: np.random.Generator, args: argparse.Namespace, methods: int) -> np.ndarray:
    """Returns BLEU's counts for the translations of all methods: float [methods, seeds, sentences, 10]."""
    reference = rng.integers(7, 19, size=args.sentences)
    length = reference + rng.integers(-1, 2, size=args.sentences)
    shape = args.sentences, _LONGEST
    common = _OF_SENTENCES * rng.normal(size=(args.sentences, 1)) + _OF_TOKENS * rng.normal(size=shape)
    there = np.arange(_LONGEST) < length[:, None]
    totals = [np.maximum(0, length - order) for order in range(4)]

    def counts(shift: float) -> np.ndarray:
        own = np.sqrt(1 - args.shared) * rng.normal(size=shape) + shift * rng.normal()
        right = (np.sqrt(args.shared) * common + own > _THRESHOLD) & there
        run, matches = right, []
        for order in range(1, 5):
            matches.append(run.sum(axis=1))
            run = run[:, :-1] & right[:, order:]
        return np.stack([length, reference, *matches, *totals], axis=1).astype(float)

    shifts = [args.shift * (1 if method < 2 else args.others) for method in range(methods)]
    return np.array([[counts(shift) for _ in range(args.seeds)] for shift in shifts])


if __name__ == "__main__":
    sys.exit(main())
