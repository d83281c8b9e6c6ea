"""How differently the searches of the arms vary: one pooled number describes none of them well."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import NamedTuple

import pandas as pd
from scipy.stats import chi2

from studies.comparison.statistics import LEAST, Comparison, Noise, measure_noise

FEW = 5  # degrees of freedom, below which two pools are not set side by side


class Range(NamedTuple):
    """The arms that vary least and most, of those that learned and have `LEAST` searches.

    Attributes:
        steady, unsteady: these arms; standard deviations of their searches are `steady_spread`
            and `unsteady_spread`.
        ratio: variance of `unsteady` over that of all other arms; NaN if that is 0.
        is_pooled: whether `unsteady` is in the pool.
        other_pool: pooled standard deviation without `unsteady`, or with it if it is not in the
            pool.
    """

    steady: str
    steady_spread: float
    unsteady: str
    unsteady_spread: float
    ratio: float
    is_pooled: bool
    other_pool: float


def find_range(comparison: Comparison, ranking: pd.DataFrame) -> Range | None:
    """Returns the arms that vary least and most; None if no arm has enough searches.

    Args:
        ranking: of `Comparison.rank_arms`.
    """
    noise = comparison.noise
    is_measured = (ranking.searches >= LEAST) & ~ranking.failed
    spreads = noise.arms.spread[list(ranking[is_measured].arm)].sort_values()
    if spreads.empty:
        return None
    unsteady = str(spreads.index[-1])
    is_pooled = unsteady not in noise.unstable
    if is_pooled:
        other_variance = noise.without(unsteady)
    else:
        other_variance = measure_noise(comparison.chosen.map_at_r, outlier=inf).pooled
    return Range(
        steady=str(spreads.index[0]),
        steady_spread=spreads.iloc[0],
        unsteady=unsteady,
        unsteady_spread=spreads.iloc[-1],
        ratio=noise.arms.ratio[unsteady],
        is_pooled=is_pooled,
        other_pool=other_variance**0.5,
    )


class LargestShare(NamedTuple):
    """The arm whose searches differ most, where none has enough searches to be left out.

    Attributes:
        arm: its name.
        share: its share of the sum of squares behind the pooled variance (0–1).
        other_pool: pooled standard deviation without it.
    """

    arm: str
    share: float
    other_pool: float


def find_largest_share(noise: Noise) -> LargestShare | None:
    """Returns the arm with the largest sum of squares.

    None if any arm has `LEAST` searches, or if fewer than two arms vary.
    """
    arms = noise.arms
    squares = (arms.spread**2 * (arms.searches - 1)).fillna(0)
    if (arms.searches >= LEAST).any() or (squares > 0).sum() < 2:
        return None
    arm = str(squares.idxmax())
    share = float(squares.max() / squares.sum())
    return LargestShare(arm, share, noise.without(arm) ** 0.5)


def pool_gain_error(ranking: pd.DataFrame, searches: int) -> float | None:
    """Returns the standard error of an arm's gain, if the gains of all arms vary alike.

    Args:
        ranking: of `Comparison.rank_arms`.
        searches: number of searches of the arm.

    Returns:
        Points on the validation classes; None if no arm has two searches with all lengths.
    """
    known = ranking[ranking.gain_error.notna()]
    if known.empty:
        return None
    freedoms = known.searches - 1
    variances = known.gain_error**2 * known.searches
    pooled = (variances * freedoms).sum() / freedoms.sum()
    return float((pooled / searches) ** 0.5)


def pool_spread(comparison: Comparison, arms: Collection[str]) -> float | None:
    """Returns the standard deviation pooled over some arms; None from few searches (`FEW`)."""
    noise = measure_noise(comparison.chosen.map_at_r, pool=arms)
    return noise.pooled**0.5 if noise.freedom >= FEW else None


def spread_interval(noise: Noise, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the interval of the pooled standard deviation, if all arms vary alike."""
    tail = (1 - confidence) / 2
    squares = noise.freedom * noise.pooled
    high, low = (squares / chi2.ppf([tail, 1 - tail], noise.freedom)) ** 0.5
    return float(low), float(high)
