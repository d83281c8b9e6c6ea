"""Checks of runs that other users have sent, before they stand beside published results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import PureWindowsPath
from typing import Any

from dml.core.metric_names import is_score
from dml.runs.folder.stored_run import Result, Summary


def check_scores(summary: Summary) -> None:
    """Checks that scores are fractions, and that each model stands there once.

    Raises:
        ValueError: they do not.
    """
    groups = [summary.jobs]
    if summary.concatenated:
        groups.append(summary.concatenated.repeats)
    for results in groups:
        models = set[tuple[int, int]]()
        for result in results:
            model = result.repeat, result.fold
            name = f"repeat {result.repeat}, fold {result.fold}"
            if model in models:
                raise ValueError(f"{name}: is listed twice")
            models.add(model)
            for metric, value in _list_scores(result):
                if not 0 <= value <= 1:
                    raise ValueError(f"{name}: {metric} is {value:g}, not a fraction from 0 to 1")


def without_folders(options: Any) -> Any:
    """Returns a copy of nested options in which a path is the name of its file or folder.

    Absolute paths, those that begin with `~`, and databases in files: they tell where the sender
    keeps what a run reads.
    """
    if isinstance(options, dict):
        return {name: without_folders(value) for name, value in options.items()}
    if isinstance(options, list):
        return [without_folders(value) for value in options]
    if not isinstance(options, str):
        return options
    path = options.removeprefix("file://").removeprefix("sqlite:///")
    is_place = path.startswith(("/", "~", "\\\\")) or PureWindowsPath(path).drive != ""
    if not is_place and path == options:
        return options
    return PureWindowsPath(path).name


def find_equal_repeats(results: Iterable[Result]) -> list[tuple[int, int]]:
    """Returns the pairs of repeats with equal scores in all folds, as of one run that was copied.

    Repeats have seeds of their own, so that all digits of two are equal only where scores are 0 or
    1; such repeats are left out.
    """
    repeats = defaultdict[int, dict[int, dict[str, float]]](dict)
    for result in results:
        repeats[result.repeat][result.fold] = dict(_list_scores(result))
    equal = []
    for first, second in combinations(repeats, 2):
        values = {value for scores in repeats[first].values() for value in scores.values()}
        if repeats[first] == repeats[second] and not values <= {0.0, 1.0}:
            equal.append((first, second))
    return equal


def _list_scores(result: Result) -> Iterator[tuple[str, float]]:
    """Yields name and value of the scores of a model."""
    for name, value in result.metrics.items():
        if is_score(name):
            yield name, value
