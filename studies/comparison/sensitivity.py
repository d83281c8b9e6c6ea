"""Verdicts on claims with other estimates of the noise of a search.

The declared estimate (`studies/comparison/statistics.py`) decides. It pools the variance over arms
that vary differently, and leaves out an arm beyond a threshold: a reader wants to know which
verdicts depend on that.
"""

from __future__ import annotations

from math import inf

import pandas as pd

from studies.comparison.statistics import Comparison, Noise, measure_noise


def list_estimates(comparison: Comparison, ranking: pd.DataFrame) -> dict[str, Noise]:
    """Returns description → estimate of the noise, other than the declared one.

    A pool in which no arm has two searches is left out.

    Args:
        comparison: with the declared estimate.
        ranking: of `Comparison.rank_arms`.
    """
    scores, claimed = comparison.chosen.map_at_r, comparison.study.claimed()
    learned = ranking[~ranking.failed].arm
    estimates = {
        "own variances": use_own_variances(comparison.noise),
        "pool of all arms": measure_noise(scores, outlier=inf),
        "pool of the claims' arms": measure_noise(scores, pool=claimed),
        "pool without failed arms": measure_noise(scores, pool=learned),
    }
    return {name: noise for name, noise in estimates.items() if noise.freedom}


def use_own_variances(noise: Noise) -> Noise:
    """Returns an estimate in which each arm has its own variance (Welch's test).

    An arm with one search keeps the pooled one.
    """
    arms = noise.arms.copy()
    has_variance = arms.searches > 1
    arms["variance"] = arms.variance.mask(has_variance, arms.spread**2)
    arms["freedom"] = arms.freedom.mask(has_variance, arms.searches - 1)
    arms["is_pooled"] = ~has_variance
    return noise._replace(arms=arms)


def find_sensitive_claims(comparison: Comparison, ranking: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per claim of which another estimate changes the verdict.

    Columns are `better`, `than`, `verdict` (the declared one) and a column of texts for each of
    `list_estimates`: verdict and interval.

    Args:
        comparison: with the declared estimate.
        ranking: of `Comparison.rank_arms`.
    """
    claims = comparison.judge_claims(ranking)
    if claims.empty:
        return claims
    rows = claims[["better", "than", "verdict"]].copy()
    is_sensitive = pd.Series(False, rows.index)
    for name, noise in list_estimates(comparison, ranking).items():
        other = Comparison(comparison.study, comparison.results, noise).judge_claims(ranking)
        is_sensitive |= other.verdict != claims.verdict
        texts = []
        for row in other.itertuples():
            texts.append(f"{row.verdict} ({row.low:+.2f} to {row.high:+.2f})")
        rows[name] = texts
    return rows[is_sensitive]
