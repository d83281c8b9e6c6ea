"""Coverage of the intervals of a comparison, in simulated ones.

A simulated comparison has the arms, numbers of searches and claims of a declaration, and scores
drawn from the first edition of heads_emoji:

- each arm is one of the finished study, drawn with replacement; the arms of the first claim are
  the same one, so that their expected difference is 0;
- each search of an arm draws its trials with replacement from the trials of that arm, apart from
  the first, with which every search begins; the best validation score gives the score of the
  search, times the slope of test scores over validation scores;
- each training draws a repeat of the finished study: its deviation from the mean of the repeats,
  class by class;
- test classes are drawn with replacement, the same for all arms.

The expected score of an arm is the mean over all searches that could be drawn.

A finished search of the first edition has trials that are alike, so that the best of those that are
drawn hardly varies. Once a comparison has tables, its measured noise is simulated too: an arm is
one of its arms (drawn with replacement), and the noise of a search is normal with the standard
deviation of the searches of that arm. Two searches tell little about one arm: all arms have the
pooled noise then, and a third simulation has arms that vary as differently as those of a similar
comparison with more searches.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dml.core.errors import UserError, first_line
from studies.comparison.declaration import Declaration
from studies.comparison.results import Results
from studies.comparison.statistics import LEAST, Pairs, holm, measure_noise
from studies.comparison.table_files import IMAGES, SUFFIX

FIRST_EDITION = "1cb43c7d"  # commit that has its tables


class SourceArm(NamedTuple):
    """An arm of a finished study.

    Attributes:
        trials: T scores of its trials, the first that of the defaults, in points of test scores.
        classes: R×C scores of the test classes, of R repeats.
    """

    trials: np.ndarray
    classes: np.ndarray

    def expected(self) -> float:
        """Returns the expected score of a search."""
        first, *others = self.trials
        scores = np.sort(others)
        count = len(scores)
        shares = np.arange(count + 1) / count
        chances = np.diff(shares**count)  # that the best of the drawn ones is this
        return float(chances @ np.maximum(scores, first))

    def draw_searches(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Returns count×C scores of the test classes, minus those of the expected search."""
        first, *others = self.trials
        drawn = rng.choice(others, (count, len(others)))
        noise = np.maximum(drawn.max(1), first) - self.expected()
        repeats = len(self.classes)
        # Deviations from the mean of few repeats are too small.
        scale = (repeats / (repeats - 1)) ** 0.5
        deviations = scale * (self.classes - self.classes.mean(0))
        return noise[:, None] + deviations[rng.integers(repeats, size=count)]


class MeasuredArm(NamedTuple):
    """An arm of a comparison with several searches.

    Attributes:
        classes: S×C scores of the test classes, of S searches.
        spread: standard deviation of a search.
        images: number of images of each class.
    """

    classes: np.ndarray
    spread: float
    images: np.ndarray

    def draw_searches(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Returns count×C scores of the test classes, minus those of the expected search."""
        searches = len(self.classes)
        deviations = self.classes - self.classes.mean(0)
        deviations -= (deviations @ self.images / self.images.sum())[:, None]  # is in `spread`
        deviations *= (searches / (searches - 1)) ** 0.5
        noise = rng.normal(0, self.spread, count)
        return noise[:, None] + deviations[rng.integers(searches, size=count)]


Source = Mapping[str, SourceArm | MeasuredArm]


class Coverage(NamedTuple):
    """Shares of simulated comparisons.

    Attributes:
        noise: median of the pooled standard deviation of a search, in points.
        search: intervals of an arm's score that contain the score of a new search.
        pair: 95 % intervals of the difference of a claim that contain the expected one.
        claims: comparisons in which all simultaneous intervals of claims do.
        references: comparisons in which all intervals of differences from the reference do.
        ranks: comparisons in which the tests of all pairs find no difference between arms, or of
            the wrong sign, where there is none.
        different: comparisons in which the claim about two equal arms excludes 0.
        equivalent: margin → comparisons in which its interval lies within the margin.
    """

    noise: float
    search: float
    pair: float
    claims: float
    references: float
    ranks: float
    different: float
    equivalent: dict[float, float]


def simulate(
    study: Declaration,
    source: Source,
    images: np.ndarray,
    margins: Sequence[float],
    comparisons: int,
    seed: int = 0,
    are_equal: bool = False,
) -> Coverage:
    """Returns the coverage of the intervals of a comparison.

    Args:
        study: whose arms, searches and claims are made.
        source: arms of a finished study.
        images: number of images of its C classes.
        margins: of equivalence, in points.
        comparisons: number of simulated comparisons.
        seed: of the draws.
        are_equal: whether all arms have the same expected score.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(comparisons):
        rows.append(_Simulated(study, source, images, rng, are_equal).describe())
    table = pd.DataFrame(rows)
    ends, noise = table.pop("end"), float(table.pop("noise").median())
    equivalent = {margin: float((ends < margin).mean()) for margin in margins}
    return Coverage(noise, **table.mean().to_dict(), equivalent=equivalent)


class _Simulated:
    """A simulated comparison; arguments as those of `simulate`."""

    def __init__(
        self,
        study: Declaration,
        source: Source,
        images: np.ndarray,
        rng: np.random.Generator,
        are_equal: bool,
    ) -> None:
        self.study = study
        arms = list(study.arms)
        names = dict(zip(arms, rng.choice(sorted(source), len(arms)).tolist(), strict=True))
        names[study.claims[0].than] = names[study.claims[0].better]
        drawn = rng.integers(len(images), size=len(images))
        everywhere = images / images.sum()
        share = images[drawn] / images[drawn].sum()
        self.expected: dict[str, float] = {}
        self.new: dict[str, float] = {}  # score of another search of each arm
        classes, scores = {}, {}
        for arm, name in names.items():
            mean_C = source[name].classes.mean(0)
            if are_equal:
                mean_C = mean_C - everywhere @ mean_C
            count = study.count_searches(arm)
            searches_SC = mean_C + source[name].draw_searches(count + 1, rng)
            self.expected[arm] = float(everywhere @ mean_C)
            classes[arm] = searches_SC[:count, drawn].mean(0)
            *known, self.new[arm] = (searches_SC[:, drawn] @ share).tolist()
            for search, score in enumerate(known):
                scores[arm, search] = score
        self.scores = pd.Series(scores).rename_axis(["arm", "search"])
        self.noise = measure_noise(self.scores)
        self.compare = Pairs(pd.DataFrame(classes).T, pd.Series(images[drawn]), self.noise).compare

    def describe(self) -> dict[str, float]:
        """Returns what holds, by the names of `Coverage`, and `end`.

        `end` is the far end of the interval of the claim about two equal arms.
        """
        claims = [(claim.better, claim.than) for claim in self.study.claims]
        reference = self.study.reference
        others = [(arm, reference) for arm in self.study.arms if arm != reference]
        alpha = 1 - self.study.confidence
        low, high = self.compare(*claims[0]).interval(1 - alpha / len(claims))
        return {
            "noise": self.noise.pooled**0.5,
            "search": self._share_of_new_searches(),
            "pair": float(np.mean(self._contain(claims, 1 - alpha))),
            "claims": all(self._contain(claims, 1 - alpha / len(claims))),
            "references": all(self._contain(others, 1 - alpha / len(others))),
            "ranks": not self._finds_wrong_pair(),
            "different": low * high > 0,
            "end": max(-low, high),
        }

    def _share_of_new_searches(self) -> float:
        """Returns the share of arms whose interval contains the new search."""
        means = self.scores.groupby(level="arm").mean()
        inside = []
        for arm, score in self.new.items():
            inside.append(abs(score - means[arm]) <= self.noise.half_width(arm))
        return float(np.mean(inside))

    def _contain(self, pairs: Sequence[tuple[str, str]], confidence: float) -> list[bool]:
        """Returns of each pair whether the interval contains the expected difference."""
        inside = []
        for first, second in pairs:
            low, high = self.compare(first, second).interval(confidence)
            inside.append(low <= self.expected[first] - self.expected[second] <= high)
        return inside

    def _finds_wrong_pair(self) -> bool:
        """Returns whether the tests of all pairs find a difference that is none, or reversed."""
        pairs = list(combinations(self.study.arms, 2))
        differences = [self.compare(*pair) for pair in pairs]
        adjusted = holm([difference.p for difference in differences])
        for (first, second), difference, p in zip(pairs, differences, adjusted, strict=True):
            truth = self.expected[first] - self.expected[second]
            if p < self.study.rank_level and difference.points * truth <= 0:
                return True
        return False


def read_first_edition() -> tuple[dict[str, SourceArm], np.ndarray]:
    """Returns the arms of the first edition and the number of images of each class.

    Scores are those of the shorter training, which the trials have too.

    Raises:
        UserError: git does not have its commit.
    """
    trials, scores, classes = map(_read_first_edition, ("trials", "scores", "classes"))
    short = scores.epochs.min()
    means = scores[scores.epochs == short].groupby("arm")[["validation", "map_at_r"]].mean()
    slope = float(np.polyfit(means.validation, means.map_at_r, 1)[0])
    table = classes.set_index(["arm", "epochs"]).drop(columns="repeat")
    source = {}
    for arm, rows in trials.groupby("arm"):
        values = slope * rows.sort_values("number").value.to_numpy()
        source[str(arm)] = SourceArm(values, table.loc[(arm, short)].to_numpy(float))
    return source, table.loc[IMAGES].iloc[0].to_numpy(float)


def measured_source(results: Results) -> tuple[dict[str, MeasuredArm], np.ndarray]:
    """Returns the arms of a comparison with their measured noise, and its images of each class.

    An arm with fewer than three searches has the pooled noise; an arm with one is left out.
    """
    scores = results.choose_lengths().map_at_r
    noise, classes = measure_noise(scores), results.class_scores()
    images = results.images().to_numpy(float)
    source = {}
    for arm, row in noise.arms.iterrows():
        if row.searches < 2:
            continue
        spread = noise.pooled**0.5 if row.searches < LEAST else row.spread
        source[str(arm)] = MeasuredArm(classes.loc[arm].to_numpy(float), spread, images)
    return source, images


def vary_noise(source: Mapping[str, MeasuredArm], similar: Results) -> dict[str, MeasuredArm]:
    """Returns arms that vary as differently as those of a similar comparison.

    Each arm of `source` is there once for each arm of `similar`, with the ratio of the standard
    deviation of that one to their root mean square. Standard deviations of three to five searches
    also differ by chance, so that arms hardly vary more differently than these.
    """
    spreads = measure_noise(similar.choose_lengths().map_at_r).arms.spread.dropna()
    ratios = spreads / (spreads**2).mean() ** 0.5
    varied = {}
    for name, arm in source.items():
        for other, ratio in ratios.items():
            varied[f"{name} {other}"] = arm._replace(spread=arm.spread * ratio)
    return varied


def _read_first_edition(name: str) -> pd.DataFrame:
    """Returns a table of the first edition, which is in the history of this repository."""
    file = f"{FIRST_EDITION}:docs/results/reality_check/{name}{SUFFIX}"
    command = ["git", "-C", str(Path(__file__).parent), "show", file]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        reason = first_line(UserError(done.stderr.decode())).rstrip(".")
        raise UserError(
            f"the first edition: {reason}; its tables are in the history of the repository, which "
            f"a clone has (a shallow one after: git fetch --unshallow)"
        )
    return pd.read_csv(io.BytesIO(done.stdout), compression="xz", dtype={"arm": str})
