"""Verdicts on claims with other estimates of the noise of a search, and without one search.

The declared estimate (`studies/comparison/statistics.py`) decides. It pools the variance over arms
that vary differently, and leaves out an arm beyond a threshold: a reader wants to know which
verdicts depend on that.
"""

from __future__ import annotations

from math import inf

import pandas as pd

from studies.comparison.statistics import Comparison, Noise, measure_noise

# What stands in the columns of `find_sensitive_claims`.
OWN_VARIANCES = "own variances"
WITHOUT_A_SEARCH = "without a search"
EXPLANATIONS = {
    OWN_VARIANCES: "those of the two arms alone (Welch's test), which are less certain",
    "pool of all arms": "with those that are left out as unstable",
    "pool of the claims' arms": "only arms in claims",
    "pool without failed arms": "without those that found nothing better than before training",
    WITHOUT_A_SEARCH: "how often the interval excludes 0 if one search of either arm is left out",
}
ESTIMATES = frozenset(EXPLANATIONS) - {WITHOUT_A_SEARCH}
# After the explanation of own variances, where each comes from two searches.
FEW_SEARCHES = (
    "; each comes from two searches alone: such intervals are too narrow, and *better* or *worse* "
    "in this column is no verdict"
)


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
        OWN_VARIANCES: use_own_variances(comparison.noise),
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


def describe_without_a_search(comparison: Comparison, better: str, than: str) -> str:
    """Returns how often the interval of a claim excludes 0 if a search of its arms is left out."""
    results, study = comparison.results, comparison.study
    each = 1 - (1 - study.confidence) / len(study.claims)
    searches = sorted(pair for pair in results.searches() if pair[0] in (better, than))
    excluded = 0
    for arm, number in searches:
        scores = results.scores
        is_left_out = (scores.arm == arm) & (scores.search == number)
        rest = Comparison(study, results._replace(scores=scores[~is_left_out]))
        low, high = rest.compare(better, than).interval(each)
        excluded += low > 0 or high < 0
    return f"excludes 0 in {excluded} of {len(searches)} cases"


def find_sensitive_claims(comparison: Comparison, ranking: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per claim that is judged better or worse, or would be by another estimate.

    Columns are `better`, `than`, `verdict` (the declared one), a column of texts for each of
    `list_estimates` (verdict and interval), and `without a search`
    (`describe_without_a_search`). An estimate that is the declared one for all claims has none.

    Args:
        comparison: with the declared estimate.
        ranking: of `Comparison.rank_arms`.
    """
    claims = comparison.judge_claims(ranking)
    if claims.empty:
        return claims
    rows = claims[["better", "than", "verdict"]].copy()
    is_shown = claims.verdict.isin(["better", "worse"])
    for name, noise in list_estimates(comparison, ranking).items():
        other = Comparison(comparison.study, comparison.results, noise).judge_claims(ranking)
        if other.equals(claims):
            continue
        is_shown |= other.verdict != claims.verdict
        texts = []
        for row in other.itertuples():
            texts.append(f"{row.verdict} ({row.low:+.2f} to {row.high:+.2f})")
        rows[name] = texts
    rows = rows[is_shown]
    cases = []
    for row in rows.itertuples():
        cases.append(describe_without_a_search(comparison, row.better, row.than))
    return rows.assign(**{WITHOUT_A_SEARCH: cases})
