"""Means and their uncertainty over repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float | None]:
    """Mean and half-width of its Student-t interval (n − 1 degrees of freedom).

    Args:
        values: one per repeat, never per fold: folds of one repeat are not independent.
        confidence: 0–1.

    Returns:
        (mean, half-width); the half-width is None for a single value.

    Raises:
        ValueError: no values.
    """
    if len(values) == 0:
        raise ValueError("values: a mean needs at least one")
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if len(array) == 1:
        return mean, None
    quantile = stats.t.ppf((1 + confidence) / 2, len(array) - 1)
    return mean, float(quantile * array.std(ddof=1) / np.sqrt(len(array)))
