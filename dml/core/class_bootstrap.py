"""Means over queries, with intervals over classes: queries of one class are not independent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
AT_ONCE = 1 << 22  # numbers of drawn classes in memory


def draw_class_means(
    values: NDArray[Any], classes: NDArray[Any], draws: int = DRAWS, seed: int = 0
) -> NDArray[np.float64]:
    """Returns means over queries of classes that are drawn with replacement, R×draws.

    A draw takes as many classes as there are, each with all of its queries, and is the same for all
    rows, so that differences of rows are paired (the cluster bootstrap).

    Args:
        values: R×B scores of B queries.
        classes: B classes.
        draws: number of means.
        seed: of the draws.

    Example:
        >>> draw_class_means(np.array([[1.0, 0.0]]), np.array([0, 0]), draws=3)
        array([[0.5, 0.5, 0.5]])
    """
    members, counts = np.unique(classes, return_inverse=True, return_counts=True)[1:]
    number = len(counts)
    sums = np.stack([np.bincount(members, row, number) for row in values])
    random = np.random.default_rng(seed)
    shares = np.full(number, 1 / number)
    step = max(1, AT_ONCE // number)
    means = []
    for start in range(0, draws, step):
        times = random.multinomial(number, shares, size=min(step, draws - start)).astype(np.float64)
        means.append((sums @ times.T) / (times @ counts))
    return np.concatenate(means, axis=1)


def percentile_interval(
    means: NDArray[np.float64], confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the bounds of the percentile interval of drawn means R×draws, R each."""
    tail = 50 * (1 - confidence)
    low, high = np.percentile(means, [tail, 100 - tail], axis=1)
    return low, high
