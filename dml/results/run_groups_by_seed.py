"""Finished runs in groups that differ only in seed and repeats, ranked by their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from dml.results.option_columns import group_key
from dml.results.run_list import ListedRun, State


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a score over runs, 0–1."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return fmean(self.values)

    def format(self) -> str:
        """Returns `44.20 ± 0.31` in percent; no ± for a single value."""
        mean = f"{100 * self.mean:.2f}"
        return mean if len(self.values) == 1 else f"{mean} ± {100 * stdev(self.values):.2f}"


@dataclass(frozen=True)
class SeedGroup:
    """Finished runs that differ only in seed and repeats.

    Attributes:
        runs: in the order of their seeds, at least one.
        rank: from 1, among groups of the same data and protocol.
    """

    runs: tuple[ListedRun, ...]
    rank: int = 0

    @property
    def score(self) -> Spread | None:
        """The score that selects the epoch; None if a run lacks it."""
        return self._spread(lambda run: run.score)

    def format_test(self, metric: str) -> str:
        """Returns a metric on the test images; empty if a run lacks it."""
        found = self._spread(lambda run: run.scores.get(metric))
        return "" if found is None else found.format()

    def _spread(self, value: Callable[[ListedRun], float | None]) -> Spread | None:
        values = [found for run in self.runs if (found := value(run)) is not None]
        return Spread(tuple(values)) if len(values) == len(self.runs) else None


def group_by_seed(runs: Iterable[ListedRun]) -> list[tuple[ListedRun, ...]]:
    """Returns the finished runs in groups that differ only in seed and repeats."""
    groups: dict[object, list[ListedRun]] = {}
    for run in runs:
        if run.state == State.FINISHED:
            groups.setdefault(group_key(run), []).append(run)
    return [tuple(sorted(same, key=lambda run: run.seed)) for same in groups.values()]


def rank_groups(runs: Iterable[ListedRun]) -> list[SeedGroup]:
    """Returns groups of runs, best first among those of the same data and protocol."""
    groups = [SeedGroup(same) for same in group_by_seed(runs)]

    def place(group: SeedGroup) -> tuple[str, str]:
        labels = group.runs[0].labels
        return labels["data"], labels["protocol"]

    def order(group: SeedGroup) -> tuple[str, str, float]:
        score = group.score
        return (*place(group), 0.0 if score is None else -score.mean)

    ranked: list[SeedGroup] = []
    for group in sorted(groups, key=order):
        same = [one for one in ranked if place(one) == place(group)]
        ranked.append(SeedGroup(group.runs, len(same) + 1))
    return ranked
