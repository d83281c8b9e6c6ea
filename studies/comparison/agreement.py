"""Agreement of two comparisons that train the same arms on different datasets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from math import atanh, isclose, sqrt, tanh
from statistics import fmean
from typing import NamedTuple

import pandas as pd
from scipy.stats import spearmanr

from studies.comparison.statistics import Comparison

LEAST_ARMS = 4  # below, the interval of a correlation is not defined
SEARCHES = 3  # of an arm, of which single ones are correlated
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
        scores: a row per arm (index): MAP@R here and there, columns `here` and `there`;
            `here_half` and `there_half`, half-widths of the 95 % intervals of these means; and
            `has_failed`, whether its searches failed in one of them.
        correlation: of these scores.
        without_failed: the same without arms whose searches failed in one of them; None for fewer
            than `LEAST_ARMS` arms.
        between: mean ρ of one search here and one there, over all pairs of the first `SEARCHES`.
        within_here, within_there: mean ρ of two of these searches of one comparison.
        pairs: number of pairs of arms.
        same: pairs (better, worse) that the tests of all pairs tell apart in both, in the same
            order.
        changed: pairs (better here, better there) that they tell apart in opposite orders.
        same_learned: how many of `same` are pairs of arms whose searches did not fail.
        claims: a row per claim of both: `better`, `than`, and the columns of
            `Comparison.judge_claims`, with the endings `_here` and `_there`.
    """

    scores: pd.DataFrame
    correlation: Correlation
    without_failed: Correlation | None
    between: float
    within_here: float
    within_there: float
    pairs: int
    same: list[tuple[str, str]]
    changed: list[tuple[str, str]]
    same_learned: int
    claims: pd.DataFrame


def find_agreement(here: Comparison, there: Comparison, without: Sequence[str]) -> Agreement | None:
    """Returns how two comparisons agree; None while they share fewer than four complete arms.

    Args:
        here, there: the comparisons.
        without: arms that are left out, except of the claims.
    """
    ranking_here, ranking_there = here.rank_arms(), there.rank_arms()
    scores = _join_scores(ranking_here, ranking_there, without)
    for name, comparison in {"here": here, "there": there}.items():
        scores[f"{name}_half"] = scores.index.map(comparison.noise.half_width_of_mean)
    arms = list(scores.index)
    if len(arms) < LEAST_ARMS:
        return None
    pairs_here = _pairs_among(here, ranking_here, arms)
    pairs_there = _pairs_among(there, ranking_there, arms)
    reversed_there = {(worse, better) for better, worse in pairs_there}
    learned = scores[~scores.has_failed]
    same = sorted(pairs_here & pairs_there)
    without_failed = None
    if len(learned) >= LEAST_ARMS:
        without_failed = correlate(learned.here, learned.there)
    searches_here, searches_there = _list_searches(here, arms), _list_searches(there, arms)
    return Agreement(
        scores,
        correlate(scores.here, scores.there),
        without_failed,
        _mean_rho(product(searches_here, searches_there)),
        _mean_rho(combinations(searches_here, 2)),
        _mean_rho(combinations(searches_there, 2)),
        len(arms) * (len(arms) - 1) // 2,
        same,
        sorted(pairs_here & reversed_there),
        sum(set(pair) <= set(learned.index) for pair in same),
        _join_claims(here.judge_claims(ranking_here), there.judge_claims(ranking_there)),
    )


def _join_scores(here: pd.DataFrame, there: pd.DataFrame, without: Sequence[str]) -> pd.DataFrame:
    """Returns `Agreement.scores` of the arms that are complete in two rankings."""
    columns, failed = {}, {}
    for name, ranking in {"here": here, "there": there}.items():
        complete = ranking[ranking.complete].set_index("arm")
        columns[name], failed[name] = complete.map_at_r, complete.failed
    scores = pd.DataFrame(columns).dropna().drop(list(without), errors="ignore")
    return scores.assign(has_failed=pd.DataFrame(failed).loc[scores.index].any(axis=1))


def _pairs_among(
    comparison: Comparison, ranking: pd.DataFrame, arms: Sequence[str]
) -> set[tuple[str, str]]:
    """Returns the pairs (better, worse) of some arms that the tests of all pairs tell apart."""
    different = comparison.find_different_pairs(list(ranking.arm))
    return {pair for pair in different if set(pair) <= set(arms)}


def _list_searches(comparison: Comparison, arms: Sequence[str]) -> list[pd.Series]:
    """Returns the scores of some arms in each of the first `SEARCHES` searches that all have."""
    scores = comparison.chosen.map_at_r.unstack("search").loc[list(arms)].dropna(axis=1)
    return [scores[number] for number in scores.columns[:SEARCHES]]


def _mean_rho(pairs: Iterable[tuple[pd.Series, pd.Series]]) -> float:
    return fmean(correlate(*pair).rho for pair in pairs)


def _join_claims(here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Returns `Agreement.claims`."""
    names = ["better", "than"]
    if here.empty or there.empty:
        return pd.DataFrame(columns=names)
    return here.merge(there, on=names, suffixes=("_here", "_there"))
