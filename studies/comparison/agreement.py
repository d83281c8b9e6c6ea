"""Agreement of two comparisons that train the same arms on different datasets."""

from __future__ import annotations

from collections.abc import Sequence
from math import atanh, isclose, sqrt, tanh
from typing import NamedTuple

import pandas as pd
from scipy.stats import spearmanr

from studies.comparison.statistics import Comparison

LEAST_ARMS = 4  # below, the interval of a correlation is not defined
NORMAL_QUANTILE = 1.96  # of two-sided 95 % intervals


class Correlation(NamedTuple):
    """Spearman's ρ of two series, with its 95 % interval.

    The interval is tanh(artanh ρ ± 1.96 √((1 + ρ²/2)/(n − 3))) (Bonett and Wright, 2000).

    Attributes:
        rho: from −1 to 1; NaN where all values of a series are equal.
        low, high: ends of the interval.
        size: number n of pairs.
    """

    rho: float
    low: float
    high: float
    size: int


def correlate(
    first: Sequence[float] | pd.Series, second: Sequence[float] | pd.Series
) -> Correlation:
    """Returns the rank correlation of two series of equal length.

    Raises:
        ValueError: they have fewer than `LEAST_ARMS` values.
    """
    count = len(first)
    if count < LEAST_ARMS:
        raise ValueError(f"a correlation of {count} pairs has no interval")
    rho = float(spearmanr(first, second).statistic)
    if isclose(abs(rho), 1):
        return Correlation(rho, rho, rho, count)
    half = NORMAL_QUANTILE * sqrt((1 + rho**2 / 2) / (count - 3))
    return Correlation(rho, tanh(atanh(rho) - half), tanh(atanh(rho) + half), count)


class Agreement(NamedTuple):
    """What two comparisons say of the arms that have all their searches in both.

    Attributes:
        scores: a row per arm (index): MAP@R here and there, columns `here` and `there`.
        correlation: of these scores.
        searches_here, searches_there: correlation of the first and the second search of the arms.
        pairs: number of pairs of arms.
        same: pairs (better, worse) that the tests of all pairs tell apart in both, in the same
            order.
        changed: pairs (better here, better there) that they tell apart in opposite orders.
        claims: claims (better, than) with the verdict *better* in both.
    """

    scores: pd.DataFrame
    correlation: Correlation
    searches_here: Correlation
    searches_there: Correlation
    pairs: int
    same: list[tuple[str, str]]
    changed: list[tuple[str, str]]
    claims: list[tuple[str, str]]


def find_agreement(here: Comparison, there: Comparison, without: Sequence[str]) -> Agreement | None:
    """Returns how two comparisons agree; None while they share fewer than four complete arms.

    Args:
        here, there: the comparisons.
        without: arms that are left out.
    """
    rankings = {"here": here.rank_arms(), "there": there.rank_arms()}
    columns = {}
    for name, ranking in rankings.items():
        columns[name] = ranking[ranking.complete].set_index("arm").map_at_r
    scores = pd.DataFrame(columns).dropna().drop(list(without), errors="ignore")
    arms = list(scores.index)
    if len(arms) < LEAST_ARMS:
        return None
    pairs_here = _pairs_among(here, rankings["here"], arms)
    pairs_there = _pairs_among(there, rankings["there"], arms)
    reversed_there = {(worse, better) for better, worse in pairs_there}
    return Agreement(
        scores,
        correlate(scores.here, scores.there),
        _correlate_searches(here, arms),
        _correlate_searches(there, arms),
        len(arms) * (len(arms) - 1) // 2,
        sorted(pairs_here & pairs_there),
        sorted(pairs_here & reversed_there),
        sorted(_confirmed(here, rankings["here"]) & _confirmed(there, rankings["there"])),
    )


def _pairs_among(
    comparison: Comparison, ranking: pd.DataFrame, arms: Sequence[str]
) -> set[tuple[str, str]]:
    """Returns the pairs (better, worse) of some arms that the tests of all pairs tell apart."""
    different = comparison.find_different_pairs(list(ranking.arm))
    return {pair for pair in different if set(pair) <= set(arms)}


def _correlate_searches(comparison: Comparison, arms: Sequence[str]) -> Correlation:
    """Returns the correlation of the scores of the first and of the second search."""
    scores = comparison.chosen.map_at_r.unstack("search").loc[list(arms)]
    return correlate(scores[0], scores[1])


def _confirmed(comparison: Comparison, ranking: pd.DataFrame) -> set[tuple[str, str]]:
    """Returns the claims with the verdict *better*."""
    claims = comparison.judge_claims(ranking)
    if claims.empty:
        return set()
    better = claims[claims.verdict == "better"]
    return set(zip(better.better, better.than, strict=True))
