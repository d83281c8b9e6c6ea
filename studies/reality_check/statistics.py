"""Tests between the arms of a study, fixed before its first run.

The score of an arm is MAP@R on all test images, the mean over repeats (seeds) and folds. The
difference of two arms has three independent sources of error: the seeds of each arm, which are not
paired, and the test classes, which are, because both arms are scored on the same ones:

    se² = C/(C−1) Σ_c (w_c (d_c − D))² + s_a²/R_a + s_b²/R_b

with the differences d_c of C classes, their shares w_c of the images, D = Σ w_c d_c, and the
standard deviations s over R repeats. The first term is the variance of a bootstrap over classes;
it holds a part of the seeds' variance too, so that intervals are a little too wide. Degrees of
freedom after Welch and Satterthwaite. Families of tests are corrected by Holm, intervals by
Bonferroni.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from studies.comparison.statistics import Difference, holm
from studies.reality_check.declaration import Claim, Declaration
from studies.reality_check.trainings import IMAGES, Results

NOT_TESTED, STILL_RISING = "not tested", "still rising"


def compare(classes: pd.DataFrame, first: str, second: str) -> Difference:
    """Returns arm `first` minus arm `second`, from `Results.class_scores` of one length."""
    share = (classes.loc[IMAGES] / classes.loc[IMAGES].sum()).to_numpy()
    a_RC, b_RC = (np.atleast_2d(classes.loc[arm]) for arm in (first, second))
    d_C = a_RC.mean(0) - b_RC.mean(0)
    points = float(share @ d_C)
    variances = [len(share) / (len(share) - 1) * float(np.sum((share * (d_C - points)) ** 2))]
    freedoms = [len(share) - 1]
    for scores_R in (a_RC @ share, b_RC @ share):
        variances.append(float(np.var(scores_R, ddof=1)) / len(scores_R))
        freedoms.append(len(scores_R) - 1)
    total = sum(variances)
    freedom = total**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    return Difference(points, total**0.5, freedom)


def choose_lengths(results: Results) -> dict[str, int]:
    """Returns arm → epochs of the training with the best mean validation score."""
    means = results.scores.groupby(["arm", "epochs"]).validation.mean()
    return dict(means.groupby("arm").idxmax().tolist())


def search_noise(study: Declaration, results: Results) -> float:
    """Returns the largest difference, in points, of two arms that differ in their seeds only.

    It is the end of their interval, and holds what the intervals of other pairs do not: that a
    search with another seed chooses other values.
    """
    classes = results.of_length(choose_lengths(results)).class_scores()
    return max(map(abs, compare(classes, *study.same).interval(study.confidence)))


def rank_arms(study: Declaration, results: Results) -> pd.DataFrame:
    """Returns a row per arm, the best first.

    All are those of the length of training that the validation classes choose. Columns: `epochs`,
    `map_at_r` with `low` and `high`, the simultaneous interval of the difference from the
    reference around the reference's score; `rank_low` to `rank_high`, the ranks that the tests of
    all pairs together leave open; `precision_at_1`, `untrained`, `steps`, `stages`, `rising` (see
    `still_rising`), `edges` and `learned`.
    """
    means = ["map_at_r", "precision_at_1", "untrained", "steps", "stages"]
    noise, lengths = search_noise(study, results), choose_lengths(results)
    rising = [arm for arm in lengths if still_rising(study, results, arm)]
    results = results.of_length(lengths)
    by_arm = results.scores.groupby("arm")
    rows = by_arm[means].mean().join(by_arm[["epochs", "edges"]].first())
    rows = rows.sort_values("map_at_r", ascending=False)
    rows["rank_low"], rows["rank_high"] = 1, len(rows)
    for better, worse in _find_different_pairs(list(rows.index), results, study, noise):
        rows.loc[worse, "rank_low"] += 1
        rows.loc[better, "rank_high"] -= 1
    each = 1 - (1 - study.confidence) / (len(rows) - 1)
    center = rows.map_at_r[study.reference]
    classes = results.class_scores()
    intervals = []
    for arm in rows.index:
        interval = (0.0, 0.0)
        if arm != study.reference:
            interval = compare(classes, arm, study.reference).interval(each)
        intervals.append(interval)
    rows[["low", "high"]] = center + np.array(intervals)
    rows["rising"] = rows.index.isin(rising)
    rows["edges"] = rows.edges.fillna("")
    rows["learned"] = rows.map_at_r - rows.untrained >= study.learned
    return rows.reset_index()


def _find_different_pairs(
    arms: Sequence[str], results: Results, study: Declaration, noise: float
) -> Iterator[tuple[str, str]]:
    """Yields the pairs, the better arm first, that the tests of all pairs together tell apart.

    Args:
        arms: the best first.
        results: of one length of training for each arm.
        study: its confidence is that of all pairs together.
        noise: `search_noise`, which a difference has to exceed.
    """
    pairs = list(combinations(arms, 2))
    classes = results.class_scores()
    differences = [compare(classes, *pair) for pair in pairs]
    adjusted = holm([difference.p for difference in differences])
    for pair, difference, p in zip(pairs, differences, adjusted, strict=True):
        if p < 1 - study.confidence and difference.points > noise:
            yield pair


def describe_rank(row: Any) -> str:
    """Returns the ranks of a row of `rank_arms` as text: "3", or "3 to 5"."""
    low, high = row.rank_low, row.rank_high
    return str(low) if low == high else f"{low} to {high}"


def describe_unlearned(study: Declaration) -> str:
    """Returns what holds for an arm that has not learned, as text."""
    return f"less than {study.learned:g} points above the score before training"


def still_rising(study: Declaration, results: Results, arm: str) -> bool:
    """Returns whether more steps may improve an arm.

    They may if the validation score of its longest training is more than `study.plateau` better,
    relative to it, than those of the shorter ones.
    """
    scores = results.scores[results.scores.arm == arm]
    *shorter, longest = scores.groupby("epochs").validation.mean()
    return bool(longest > (1 + study.plateau) * max(shorter))


def judge_claims(study: Declaration, results: Results, ranking: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per claim: `points`, `low`, `high`, `p` (Holm), the `verdict`, and `lengths`.

    `lengths` has the differences of equally long training runs.

    *not tested* if an arm has not learned or has not used its mechanism; *equivalent* if the
    simultaneous interval lies within the margin; *better* or *worse* if it lies beyond
    `search_noise` and Holm's test agrees. Instead of these three, *still rising* if the difference
    of one length of training, the same for both arms, is not within the margin, or has the other
    sign; and *unknown* if an arm whose improvement would change the verdict chose a value at the
    edge of a logarithmic range. Otherwise *unknown*. Claims about arms without results are left
    out, but count as tests.

    Args:
        ranking: of `rank_arms`.
    """
    ranking = ranking.set_index("arm")
    claims = _claims_about(study, set(ranking.index))
    chosen = results.of_length(choose_lengths(results)).class_scores()
    differences = [compare(chosen, claim.better, claim.than) for claim in claims]
    p_values = [difference.p for difference in differences]
    missing = len(study.claims) - len(claims)
    adjusted = holm(p_values + [1.0] * missing)
    equal = []
    for epochs in study.epochs:
        equal.append(results.of_length(dict.fromkeys(ranking.index, epochs)).class_scores())
    each = 1 - (1 - study.confidence) / len(study.claims)
    noise = search_noise(study, results)
    rows = []
    for claim, difference, p in zip(claims, differences, adjusted, strict=False):
        low, high = difference.interval(each)
        arms = ranking.loc[[claim.better, claim.than]]
        points = [compare(classes, claim.better, claim.than).points for classes in equal]
        is_certain = p < 1 - study.confidence and low * high > 0
        if not arms.learned.all() or not _uses_mechanism(claim, arms):
            verdict = NOT_TESTED
        elif max(abs(low), abs(high)) < study.margin:
            verdict = _judge_equivalence(arms, points, study.margin)
        elif is_certain and min(abs(low), abs(high)) > noise:
            verdict = _judge_difference(arms, points, difference.points > 0)
        else:
            verdict = "unknown"
        row = claim.model_dump(exclude={"requires"})
        row |= {"points": difference.points, "low": low, "high": high, "p": p, "verdict": verdict}
        rows.append(row | {"lengths": points})
    return pd.DataFrame(rows)


def _claims_about(study: Declaration, arms: set[str]) -> list[Claim]:
    """Returns the claims that compare two of the arms."""
    return [claim for claim in study.claims if {claim.better, claim.than} <= arms]


def _uses_mechanism(claim: Claim, arms: pd.DataFrame) -> bool:
    """Returns whether the first of two arms, rows of the ranking, has what the claim requires."""
    better = arms.iloc[0]
    return all(better[column] >= least for column, least in claim.requires.items())


def _judge_equivalence(arms: pd.DataFrame, points: Sequence[float], margin: float) -> str:
    """Returns the verdict on two arms whose difference is within the margin.

    Args:
        arms: the rows of both in the ranking.
        points: differences of equally long training runs.
        margin: of equivalence.
    """
    if max(map(abs, points)) >= margin:
        return STILL_RISING
    return "unknown" if arms.edges.any() else "equivalent"


def _judge_difference(arms: pd.DataFrame, points: Sequence[float], is_better: bool) -> str:
    """Returns the verdict on two arms that differ; `is_better` says whether the first is ahead."""
    if min(points) * max(points) <= 0:
        return STILL_RISING
    behind = 1 if is_better else 0
    if arms.edges.iloc[behind]:
        return "unknown"  # a wider range may improve the arm that is behind
    return "better" if is_better else "worse"
