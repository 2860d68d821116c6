"""The distribution that sampling should draw from, in NumPy, and a test whether counts agree with a distribution."""

import numpy as np


def truncated(logits, *, temperature=1.0, top_k=0, top_p=1.0, forbidden=()):
    """Returns the distribution, float64 [V], after temperature, top-k and nucleus truncation, in this order."""
    logits = np.array(logits, np.float64) / temperature
    logits[list(forbidden)] = -np.inf
    order = sorted(np.flatnonzero(np.isfinite(logits)), key=lambda v: -logits[v])
    if top_k:
        order = order[:top_k]
    probabilities = np.exp(logits[order] - logits[order[0]])
    probabilities /= probabilities.sum()
    kept = 1
    while probabilities[:kept].sum() < top_p and kept < len(order):
        kept += 1
    result = np.zeros(len(logits))
    result[order[:kept]] = probabilities[:kept] / probabilities[:kept].sum()
    return result


def chi_square_excess(counts, probabilities):
    """Returns Pearson's statistic minus its 99.9% quantile (Wilson and Hilferty's approximation); < 0 means agreement.

    Outcomes expected fewer than 5 times are pooled. An outcome of probability 0 that occurs gives infinity.
    """
    counts, probabilities = np.asarray(counts, np.float64), np.asarray(probabilities, np.float64)
    if counts[probabilities == 0].any():
        return np.inf
    expected = counts.sum() * probabilities
    rare = expected < 5
    groups = [(counts[i], expected[i]) for i in np.flatnonzero(~rare)]
    if expected[rare].sum() > 0:
        groups.append((counts[rare].sum(), max(expected[rare].sum(), 1e-9)))
    freedom = max(len(groups) - 1, 1)
    statistic = sum((count - mean) ** 2 / mean for count, mean in groups)
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.0902 * np.sqrt(2 / (9 * freedom))) ** 3
    return statistic - quantile
