"""Tests between the arms of a comparison, fixed before its first run.

A *search* of an arm is a search of its values together with a training of what it chose, with
seeds of its own; its score is MAP@R on all test images at the length of training that the
validation classes choose. The score of an arm is the mean of its J searches.

**Variance of a search.** It holds the noise of the search, of the choice of the length, and of the
seeds of training. Few searches say little about the variance of one arm, so that it is pooled over
all arms: v = Σ_a Σ_j (y_aj − ȳ_a)² / f with f = Σ_a (J_a − 1). Arms differ in it: an arm with
three searches or more has its own variance with J_a − 1 degrees of freedom where that is larger.
An arm whose own variance is more than `OUTLIER` times that of all others together is left out of
the pool, so that one unstable arm does not widen the intervals of all.

**Score of an arm.** A new search with the same budget, on the same test classes, has a score in

    ȳ_a ± t(f_a) √(v_a (1 + 1/J_a)),

for an arm with few searches on average over the arms.

**Difference of two arms**, of their expected scores on classes like the tested ones. Arms are
searched independently and scored on the same C classes:

    se² = C/(C−1) Σ_c (w_c (d_c − D))² + v_a/J_a + v_b/J_b

with the differences d_c of the classes, their shares w_c of the images, D = Σ w_c d_c. The first
term is the variance of a bootstrap over classes; it holds a part of the second and third, so that
intervals are a little too wide. Degrees of freedom after Welch and Satterthwaite; the pooled parts
of both arms are one estimate. Claims and differences from the reference are corrected by
Bonferroni, the tests of all pairs by Holm.

`studies/comparison/simulation.py` checks the coverage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit  # distribution and quantiles of Student's t

from studies.comparison.declaration import Claim, Declaration
from studies.comparison.results import Results

OUTLIER = 10.0  # ratio of an arm's variance to that of all other arms
LEAST = 3  # searches of an arm that has a variance of its own


class Noise(NamedTuple):
    """Variance of a search.

    Attributes:
        arms: a row per arm: `searches` (their number), `variance`, `freedom` (its degrees of
            freedom), `is_pooled`, `spread` (standard deviation of its searches; NaN of one) and
            `ratio` (its variance over that of all other arms; NaN below `LEAST` searches).
        pooled: variance over all arms.
        freedom: degrees of freedom of `pooled`.
        unstable: arms that are left out of the pool.
    """

    arms: pd.DataFrame
    pooled: float
    freedom: int
    unstable: list[str]

    def without(self, arm: Any) -> float:
        """Returns the variance that is pooled over the other arms."""
        others = self.arms.drop([arm, *self.unstable], errors="ignore")
        freedoms = others.searches - 1
        return float((others.spread.fillna(0) ** 2 * freedoms).sum() / max(1, freedoms.sum()))

    def half_width(self, arm: Any, confidence: float = 0.95) -> float:
        """Returns the half-width of the interval in which a new search of an arm scores."""
        row = self.arms.loc[arm]
        error = (row.variance * (1 + 1 / row.searches)) ** 0.5
        return float(stdtrit(row.freedom, (1 + confidence) / 2) * error)

    def half_width_of_mean(self, arm: Any, confidence: float = 0.95) -> float:
        """Returns the half-width of the interval of the expected score of an arm."""
        row = self.arms.loc[arm]
        error = (row.variance / row.searches) ** 0.5
        return float(stdtrit(row.freedom, (1 + confidence) / 2) * error)


class Difference(NamedTuple):
    """Difference of two arms in points of MAP@R, with standard error and degrees of freedom."""

    points: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        """Two-sided p-value of no difference."""
        return float(2 * stdtr(self.freedom, -abs(self.points) / self.error))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Returns the two-sided interval of a confidence."""
        half = float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return self.points - half, self.points + half


def measure_noise(
    scores: pd.Series, pool: Collection[str] | None = None, outlier: float = OUTLIER
) -> Noise:
    """Returns the variance of a search.

    Args:
        scores: a score per arm (index `arm`) and search.
        pool: arms over which the variance is pooled; None: all.
        outlier: ratio of variances above which an arm is left out of the pool.

    Raises:
        ValueError: no arm has two searches.
    """
    groups = scores.groupby(level="arm")
    counts = groups.size()
    freedoms = counts - 1
    if freedoms.sum() < 1:
        raise ValueError("no arm has two searches")
    squares = groups.var(ddof=1).fillna(0) * freedoms
    others = (squares.sum() - squares) / (freedoms.sum() - freedoms).clip(lower=1)
    variances = squares / freedoms.clip(lower=1)
    has_variance = counts >= LEAST
    is_outlier = has_variance & (variances > outlier * others) & (others > 0)
    is_in_pool = ~is_outlier
    if pool is not None:
        is_in_pool &= counts.index.isin(list(pool))
    freedom = int(freedoms[is_in_pool].sum())
    pooled = float(squares[is_in_pool].sum() / max(1, freedom))
    is_pooled = ~(has_variance & (variances > pooled))
    table = {
        "searches": counts,
        "variance": variances.mask(is_pooled, pooled),
        "freedom": freedoms.mask(is_pooled, freedom),
        "is_pooled": is_pooled,
        "spread": groups.std(ddof=1),
        "ratio": (variances / others).where(has_variance & (others > 0)),
    }
    return Noise(pd.DataFrame(table), pooled, freedom, list(counts.index[is_outlier]))


class Pairs:
    """The differences of all pairs of arms.

    Args:
        classes: scores of the test classes, a row per arm, means over its searches.
        images: number of images of each class.
        noise: of a search.
    """

    def __init__(self, classes: pd.DataFrame, images: pd.Series, noise: Noise) -> None:
        share_C = (images / images.sum()).to_numpy()
        scores_AC = classes.to_numpy(float)
        self._points_A = scores_AC @ share_C
        # Of a pair, the differences of two rows are w_c (d_c - D).
        self._deviations_AC = share_C * (scores_AC - self._points_A[:, None])
        self._places = {arm: place for place, arm in enumerate(classes.index)}
        arms = noise.arms.loc[classes.index]
        self._errors_A = (arms.variance / arms.searches).to_numpy()
        self._freedoms_A = arms.freedom.to_numpy(float)
        self._is_pooled_A = arms.is_pooled.to_numpy()
        self._freedom = noise.freedom

    def compare(self, first: Any, second: Any) -> Difference:
        """Returns arm `first` minus arm `second`."""
        pair = [self._places[first], self._places[second]]
        a, b = pair
        classes = self._deviations_AC.shape[1]
        gap_C = self._deviations_AC[a] - self._deviations_AC[b]
        terms = [(classes / (classes - 1) * float(gap_C @ gap_C), classes - 1)]
        pooled = 0.0
        for arm in pair:
            if self._is_pooled_A[arm]:
                pooled += self._errors_A[arm]
            else:
                terms.append((self._errors_A[arm], self._freedoms_A[arm]))
        if pooled:
            terms.append((pooled, self._freedom))
        total = sum(variance for variance, _ in terms)
        freedom = total**2 / sum(variance**2 / freedom for variance, freedom in terms)
        return Difference(float(self._points_A[a] - self._points_A[b]), total**0.5, freedom)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Returns p-values adjusted for testing all of them, in their order (Holm, 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(np.asarray(p_values)[order] * factors))
    return adjusted


class Comparison:
    """The results of a comparison with what its tests share.

    Attributes:
        study: the declaration.
        results: the tables.
        chosen: a row per arm and search: the run of the length that validation prefers.
        noise: of a search, in points of MAP@R.
        images: number of images of each class.
        compare: two names → the first arm minus the second, a `Difference`.

    Args:
        noise: None: the declared estimate, by `measure_noise`.
    """

    def __init__(self, study: Declaration, results: Results, noise: Noise | None = None) -> None:
        self.study, self.results = study, results
        self.chosen = results.choose_lengths()
        self.noise = noise or measure_noise(self.chosen.map_at_r)
        self.images = results.images()
        classes = results.class_scores().groupby(level="arm").mean()
        self.compare = Pairs(classes, self.images, self.noise).compare

    def gains(self) -> pd.DataFrame:
        """Returns a row per arm: the `gain` of its longest training, and the `gain_error`.

        The gain is that over the shorter length with the best mean, in points on the validation
        classes, as the mean over the searches; its error is the standard error of this mean, NaN
        of one search. Both are NaN where a search lacks a length, since the loss did not stay
        finite.
        """
        scores = self.results.runs().validation.unstack().reindex(columns=self.study.epochs)
        *shorter, longest = self.study.epochs
        rows = {}
        for arm, of_arm in scores.groupby("arm"):
            gains = pd.Series(dtype=float)
            if of_arm.notna().all(axis=None):
                best = of_arm[shorter].mean().idxmax()
                gains = of_arm[longest] - of_arm[best]
            rows[arm] = {"gain": gains.mean(), "gain_error": gains.sem()}
        return pd.DataFrame.from_dict(rows, orient="index")

    def least_half_width(self) -> float:
        """Returns the half-width of a claim's interval for two arms of the pooled variance.

        Their classes add to it.
        """
        each = 1 - (1 - self.study.confidence) / max(1, len(self.study.claims))
        error = (2 * self.noise.pooled / self.study.claimed_searches) ** 0.5
        return float(stdtrit(self.noise.freedom, (1 + each) / 2) * error)

    def rank_arms(self) -> pd.DataFrame:
        """Returns a row per arm, the best first.

        Columns: `searches` (their number), `map_at_r`, `precision_at_1`, `untrained` (means over
        searches), `half` (half-width of the interval of a new search), `spread` (standard deviation
        of its searches), `is_pooled` (whether `half` is that of the pooled variance), `stages` and
        `best_step` (least of its searches), `points`, `low`, `high` (the difference from the
        reference with its simultaneous interval), `rank_low` to `rank_high` (ranks that the tests
        of all pairs leave open), `gain`, `gain_error` (of `gains`), `rising` (`gain` is
        `study.plateau` or more, or unknown), `edges` (options that more than half of its searches
        chose at the end of a range), `failed` (its searches found nothing better than before
        training) and `complete` (it has all searches that are declared).
        """
        arms = self.chosen.groupby(level="arm")
        means = ["map_at_r", "precision_at_1", "untrained"]
        rows = arms[means].mean().join(arms[["stages", "best_step"]].min())
        rows = rows.sort_values("map_at_r", ascending=False)
        rows.insert(0, "searches", arms.size())
        rows["half"] = rows.index.map(self.noise.half_width)
        rows = rows.join(self.noise.arms[["spread", "is_pooled"]])
        rows["rank_low"], rows["rank_high"] = 1, len(rows)
        for better, worse in self.find_different_pairs(list(rows.index)):
            rows.loc[worse, "rank_low"] += 1
            rows.loc[better, "rank_high"] -= 1
        each = 1 - (1 - self.study.confidence) / (len(rows) - 1)
        differences = []
        for arm in rows.index:
            difference = (0.0, 0.0, 0.0)
            if arm != self.study.reference:
                tested = self.compare(arm, self.study.reference)
                difference = (tested.points, *tested.interval(each))
            differences.append(difference)
        rows[["points", "low", "high"]] = differences
        rows = rows.join(self.gains())
        rows["rising"] = ~(rows.gain < self.study.plateau)
        rows["edges"] = arms.edges.agg(_common_edges)
        rows["failed"] = rows.map_at_r <= rows.untrained
        rows["complete"] = rows.searches >= rows.index.map(self.study.count_searches)
        return rows.reset_index()

    def find_different_pairs(self, arms: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yields the pairs, the better arm first, that the tests of all pairs tell apart.

        Args:
            arms: the best first.
        """
        pairs = list(combinations(arms, 2))
        adjusted = holm([self.compare(*pair).p for pair in pairs])
        for pair, p in zip(pairs, adjusted, strict=True):
            if p < self.study.rank_level:
                yield pair

    def judge_claims(self, ranking: pd.DataFrame) -> pd.DataFrame:
        """Returns a row per claim: `points`, `low`, `high`, `p` and the `verdict` (`VERDICTS`).

        p-values and intervals are corrected by Bonferroni for all declared claims. Claims about
        arms without results are left out.

        Args:
            ranking: of `rank_arms`.
        """
        ranking = ranking.set_index("arm")
        count = max(1, len(self.study.claims))
        each = 1 - (1 - self.study.confidence) / count
        rows = []
        for claim in self.study.claims:
            if not {claim.better, claim.than} <= set(ranking.index):
                continue
            difference = self.compare(claim.better, claim.than)
            low, high = difference.interval(each)
            arms = ranking.loc[[claim.better, claim.than]]
            rows.append(
                {
                    **claim.model_dump(exclude={"requires"}),
                    "points": difference.points,
                    "low": low,
                    "high": high,
                    "p": min(1.0, difference.p * count),
                    "verdict": judge(self.study, claim, arms, (low, high)),
                }
            )
        return pd.DataFrame(rows)


# Verdict → when it is given; the first that holds counts.
VERDICTS = {
    "not finished": "an arm lacks searches that are declared",
    "search failed": "the searches of an arm found nothing better than before training",
    "not tested": "in a search, a part of the method was not used by the tested weights of most "
    "folds: CCP was in its first stage, or the memory of XBM was not used yet",
    "still rising": "an arm gains {plateau} points or more with the longest training, on average "
    "on the validation classes, or a search of it lacks a length",
    "equivalent": "the interval lies within ±{margin} points, even if it excludes 0, and neither "
    "arm chose the end of its range",
    "better": "the interval lies above 0, and the arm behind did not choose the end of its range",
    "worse": "the interval lies below 0, and the arm behind did not choose the end of its range",
    "unknown": "none of these",
}


def judge(
    study: Declaration,
    claim: Claim,
    arms: pd.DataFrame,
    interval: tuple[float, float],
) -> str:
    """Returns the verdict on a claim, of `VERDICTS`.

    Args:
        arms: the rows of both arms in the ranking, arm `better` first.
        interval: of their difference.
    """
    obstacle = _find_obstacle(claim, arms)
    if obstacle:
        return obstacle
    better, than = arms.iloc[0], arms.iloc[1]
    low, high = interval
    if study.margin is not None and max(-low, high) < study.margin:
        return "unknown" if arms.edges.any() else "equivalent"
    if low <= 0 <= high:
        return "unknown"
    behind = than if low > 0 else better
    if behind.edges:
        return "unknown"  # a wider range may improve the arm that is behind
    return "better" if low > 0 else "worse"


def _find_obstacle(claim: Claim, arms: pd.DataFrame) -> str:
    """Returns the verdict on a claim that no interval decides; empty if the interval does.

    Args:
        arms: see `judge`.
    """
    if not arms.complete.all():
        return "not finished"
    if arms.failed.any():
        return "search failed"
    better = arms.iloc[0]
    if any(better[column] < least for column, least in claim.requires.items()):
        return "not tested"
    if arms.rising.any():
        return "still rising"
    return ""


def describe_verdict(claim: Any) -> str:
    """Returns a verdict; with the reason where the interval alone would tell more.

    Args:
        claim: its row of `Comparison.judge_claims`.
    """
    excludes_0 = claim.low > 0 or claim.high < 0
    if claim.verdict == "unknown" and excludes_0:
        return "unknown: end of a range"
    return claim.verdict


def describe_rank(low: int, high: int) -> str:
    """Returns ranks as text: "3", or "3–5"."""
    return str(low) if low == high else f"{low}–{high}"  # noqa: RUF001


def _common_edges(edges: pd.Series) -> str:
    """Returns the options that are edges of more than half of an arm's searches."""
    options = pd.Series(" ".join(edges).split(), dtype=str).value_counts()
    return " ".join(sorted(options[options > len(edges) / 2].index))
