"""Which models a protocol trains, on which classes, and how their scores combine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dml.data.base import ImageIndex, View
from dml.evaluation import Split
from dml.reporting.statistics import mean_interval


@dataclass(frozen=True)
class Job:
    """One model to train.

    Attributes:
        repeat, fold: which one, from 0.
        train: what it is trained on.
        validation: what its best epoch is picked on.
        test: what it is reported on.
    """

    repeat: int
    fold: int
    train: View
    validation: Split
    test: Split

    @property
    def name(self) -> str:
        """Folder name of the job."""
        return f"repeat{self.repeat}-fold{self.fold}"


def jobs(splits: str, repeats: int, index: ImageIndex) -> list[Job]:
    """All models of a run, in the order of their repeats.

    Args:
        splits: `published`: the dataset's own train and test classes, the epoch picked on test.
        repeats: how many times the whole is done.
        index: the dataset.
    """
    if splits != "published":
        raise ValueError(f"splits: no '{splits}'; valid is 'published'")
    test = published_test(index)
    return [Job(repeat, 0, index.view("train"), test, test) for repeat in range(repeats)]


def published_test(index: ImageIndex) -> Split:
    """The dataset's own test: query against gallery if it has them, else the test images."""
    if (index.roles == "query").any():
        return Split(index.view("query"), index.view("gallery"))
    return Split(index.view("test"))


def combine(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean over the folds of each repeat, then mean and 95 % t-interval over repeats.

    Args:
        results: per job `repeat` and `metrics`.

    Returns:
        Per metric `mean`, `ci95` (half-width, None for one repeat) and `repeats`.
    """
    by_repeat: dict[int, list[dict[str, float]]] = {}
    for result in results:
        by_repeat.setdefault(result["repeat"], []).append(result["metrics"])
    combined = {}
    for name in results[0]["metrics"]:
        values = [sum(m[name] for m in folds) / len(folds) for folds in by_repeat.values()]
        mean, half = mean_interval(values)
        combined[name] = {"mean": mean, "ci95": half, "repeats": len(values)}
    return combined
