"""Means, confidence intervals over repeats, and significance tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np


def t_half_width(std: float, n: int, confidence: float = 0.95) -> float:
    """Returns the half-width of the t-interval of n ≥ 2 values with standard deviation `std`."""
    return _t_quantile(n - 1, confidence) * std / n**0.5


def _t_quantile(freedom: float, confidence: float = 0.95) -> float:
    """Returns the half-width of an interval of Student's t, in standard errors."""
    from scipy.special import stdtrit  # imported late, as below; scipy.stats takes a second

    return float(stdtrit(freedom, (1 + confidence) / 2))


def std_of_half_width(half: float, n: int, confidence: float = 0.95) -> float:
    """Returns the standard deviation of n ≥ 2 values from the half-width of their t-interval."""
    return half / t_half_width(1.0, n, confidence)


def mean_per_repeat(scores: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Returns repeat → mean score of its folds, from (repeat, score) of every model."""
    folds: dict[int, list[float]] = {}
    for repeat, score in scores:
        folds.setdefault(repeat, []).append(score)
    return {repeat: sum(fold_scores) / len(fold_scores) for repeat, fold_scores in folds.items()}


@dataclass(frozen=True)
class Estimate:
    """Estimate of one number from its repeats.

    Attributes:
        values: one per repeat, at least one.
    """

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of repeats."""
        return len(self.values)

    @cached_property
    def mean(self) -> float:
        """Mean over the repeats."""
        return float(np.mean(self.values))

    @cached_property
    def ci95(self) -> float | None:
        """Half-width of the 95 % t-interval of the mean (n − 1 degrees of freedom).

        None for one repeat. Folds are no repeats: those of one repeat are not independent.
        """
        return None if self.std is None else t_half_width(self.std, self.n)

    @cached_property
    def std(self) -> float | None:
        """Standard deviation of the repeats (n − 1); None for one repeat."""
        return None if self.n == 1 else float(np.std(self.values, ddof=1))

    @property
    def half_width(self) -> float | None:
        """Half-width of the 95 % t-interval; None for fewer than three repeats."""
        return self.ci95 if self.n > 2 else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of two repeats; half-width of the 95 % t-interval of three or more."""
        return self.std if self.n == 2 else self.half_width

    def format(self, digits: int = 2) -> str:
        """Returns mean and half of the 95 % t-interval, `46.27 ± 0.31`.

        Of one or two repeats the values, `46.1, 46.4`.

        Args:
            digits: number of decimals.
        """
        if self.n < 3:
            return ", ".join(f"{value:.{digits}f}" for value in self.values)
        return f"{self.mean:.{digits}f} ± {self.half_width:.{digits}f}"

    @property
    def moments(self) -> Moments | None:
        """Mean, standard deviation and n, as `welch` takes them; None for one repeat."""
        return None if self.std is None else Moments(self.mean, self.std, self.n)


def combine_scores(
    results: Sequence[dict[str, Any]], key: str = "metrics"
) -> dict[str, dict[str, Any]]:
    """Returns means over the folds of each repeat, then mean and 95 % t-interval over repeats.

    Args:
        results: per job `repeat` and scores.
        key: of the scores.

    Returns:
        Per metric `mean`, `ci95` (half-width) and `std` (both None for one repeat), and `repeats`.
    """
    combined = {}
    for name in results[0][key]:
        if not all(name in result[key] for result in results):
            continue  # a metric of the user's that failed
        scores = mean_per_repeat((result["repeat"], result[key][name]) for result in results)
        mean = Estimate(tuple(scores.values()))
        combined[name] = {"mean": mean.mean, "ci95": mean.ci95, "std": mean.std, "repeats": mean.n}
    return combined


@dataclass(frozen=True)
class Moments:
    """Mean, standard deviation (n − 1) and number of values."""

    mean: float
    std: float
    n: int


def welch(a: Moments | None, b: Moments | None) -> float | None:
    """Returns the two-sided p-value of Welch's t-test; variances may differ.

    Returns:
        The p-value; None if a sample is missing or has fewer than two values, or if both have
        zero variance.
    """
    if a is None or b is None or min(a.n, b.n) < 2 or a.std == b.std == 0:
        return None
    from scipy.special import stdtr

    errors = a.std**2 / a.n, b.std**2 / b.n
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / (a.n - 1) + errors[1] ** 2 / (b.n - 1))
    return 2 * float(stdtr(freedom, -abs(a.mean - b.mean) / sum(errors) ** 0.5))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected by Holm's step-down method for multiple tests, in the same order.

    Rejecting hypotheses with at most 5 % bounds the probability of any false rejection by 5 %
    (Holm, Scandinavian Journal of Statistics 1979).
    """
    corrected = [0.0] * len(p_values)
    maximum = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        maximum = max(maximum, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = maximum
    return corrected


class ClusteredMean(NamedTuple):
    """Mean of values that belong to clusters, such as queries to classes.

    Attributes:
        mean: of all values.
        half_width: of the 95 % interval of the mean; None for a single cluster.
        clusters: their number.
    """

    mean: float
    half_width: float | None
    clusters: int


def clustered_mean(values: np.ndarray, clusters: np.ndarray) -> ClusteredMean:
    """Returns the mean of values, and its 95 % t-interval over clusters, which may differ in size.

    The population is that of the clusters: another sample would have other clusters, each with all
    its values. The variance is the bias-reduced one of Bell and McCaffrey (Survey Methodology 2002,
    "CR2"), V = Σ_g (Σ_{i∈g} (x_i − x̄))² / (1 − w_g) / N², with the share w_g of cluster g in the N
    values, and the degrees of freedom are Satterthwaite's for it,
    1 / (Σ w² + (Σ w²/(1−w))² − Σ (w²/(1−w))²): those of G clusters of one size are G − 1. Without a
    correction, and by a bootstrap, intervals of ten clusters are too short.

    Args:
        values: N numbers, at least one.
        clusters: N integers or texts, equal for values of one cluster.
    """
    mean = float(np.mean(values))
    _, numbers, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    if len(counts) == 1:
        return ClusteredMean(mean, None, 1)
    share_G = counts / len(values)
    sum_G = np.bincount(numbers, values - mean)
    variance = np.sum(sum_G**2 / (1 - share_G)) / len(values) ** 2
    leverage_G = share_G**2 / (1 - share_G)
    freedom = 1 / (np.sum(share_G**2) + np.sum(leverage_G) ** 2 - np.sum(leverage_G**2))
    half = _t_quantile(float(freedom)) * float(np.sqrt(variance))
    return ClusteredMean(mean, half, len(counts))
