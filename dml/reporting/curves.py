"""Curves over training: scores against epochs with bands over repeats, and against time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dml.core.statistics import Estimate
from dml.reporting.collect import Run
from dml.reporting.groups import Group
from dml.reporting.pictures import Picture, drawn, legend, style
from dml.runs.console import is_score, title


@dataclass(frozen=True)
class Curve:
    """A value at the evaluations that all repeats of a group have.

    Attributes:
        name: of the group.
        number: of its color, the same in all pictures of a report.
        x: epochs, or minutes of training.
        estimates: one per x, over repeats.
        tails: of each repeat what comes after the shortest one's end, as x and values.
    """

    name: str
    number: int
    x: np.ndarray
    estimates: tuple[Estimate, ...]
    tails: tuple[tuple[np.ndarray, np.ndarray], ...]

    @property
    def mean(self) -> np.ndarray:
        """At each x."""
        return np.array([one.mean for one in self.estimates])

    @property
    def half(self) -> np.ndarray:
        """Half-width of the 95 % t-interval at each x; 0 for one repeat."""
        return np.array([one.ci95 or 0.0 for one in self.estimates])


def learning_curves(named: Sequence[tuple[str, Group]], column: str | None) -> Iterator[Picture]:
    """One picture per dataset: a column of `history.csv` against epochs, a line per group.

    Args:
        named: groups with their names.
        column: to draw; None: the metric that chose the epoch.
    """
    for data, what, own in _by_data(named):
        what = column or what
        curves = _curves(own, what)
        if curves:
            label = f"{title(what)}, percent" if is_score(what) else what.replace("_", " ")
            yield drawn(
                partial(_draw, curves=curves, x_label="epoch", y_label=label),
                f"{title(what)} during training on {data}; bands: 95 % intervals over repeats",
                f"Learning curves on {data}. {_ends(curves, 'epoch')}",
            )


def runtime(named: Sequence[tuple[str, Group]]) -> Iterator[Picture]:
    """One picture per dataset: the selecting score against minutes of training."""
    for data, what, own in _by_data(named):
        curves = _curves(own, what, timed=True)
        devices = {str(run.summary.get("device")) for _, _, group in own for run in group.runs}
        if curves:
            x_label, y_label = "minutes of training", f"{title(what)}, percent"
            yield drawn(
                partial(_draw, curves=curves, x_label=x_label, y_label=y_label),
                f"{title(what)} against training time on {data}, on {', '.join(sorted(devices))}",
                f"Score against training time on {data}. {_ends(curves, 'minute')}",
            )


def _by_data(
    named: Sequence[tuple[str, Group]],
) -> Iterator[tuple[str, str, list[tuple[int, str, Group]]]]:
    """Per dataset the metric that chose the epoch, and its groups with number and name."""
    named = [(n, group) for n, group in named if any(run.history.rows for run in group.runs)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(n for n, _ in named))}
    for data in dict.fromkeys(group.facts("").data for _, group in named):
        own = [(numbers[n], n, group) for n, group in named if group.facts("").data == data]
        yield data, str(own[0][2].first.summary["selected_by"]).partition(" ")[0], own


def _curves(own: Sequence[tuple[int, str, Group]], column: str, timed: bool = False) -> list[Curve]:
    found = (curve(name, group, column, timed, number) for number, name, group in own)
    return [one for one in found if one is not None]


def curve(
    name: str, group: Group, column: str, timed: bool = False, number: int = 0
) -> Curve | None:
    """The mean over repeats at the evaluations that all have; None without a history.

    Args:
        name: for the legend.
        group: its runs.
        column: of `history.csv`.
        timed: against minutes, at the mean speed of each job, instead of epochs.
        number: of its color.
    """
    series = [one for run in group.runs for one in _series(run, column, timed)]
    series = [(x, y) for x, y in series if len(x)]
    if not series:
        return None
    shortest = min(len(x) for x, _ in series)
    values = np.array([y[:shortest] for _, y in series])
    x = np.mean([x[:shortest] for x, _ in series], axis=0)
    tails = tuple((x[shortest - 1 :], y[shortest - 1 :]) for x, y in series if len(x) > shortest)
    return Curve(name, number, x, tuple(Estimate(tuple(at)) for at in values.T), tails)


def _series(run: Run, column: str, timed: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each repeat x and value (mean of its folds, as far as all of them go)."""
    of_repeat: dict[int, list[dict]] = {}
    for job in run.summary["jobs"]:
        of_repeat.setdefault(int(job["repeat"]), []).append(job)
    factor = 100.0 if is_score(column) else 1.0
    for repeat, jobs in of_repeat.items():
        folds = []
        for job in jobs:
            rows = [row for row in run.history.job_rows(repeat, job["fold"]) if column in row]
            pace = job["seconds"] / max(job["steps"], 1) / 60 if timed else None
            x = [row["epoch"] if pace is None else row["step"] * pace for row in rows]
            folds.append((x, [factor * row[column] for row in rows]))
        n = min(len(x) for x, _ in folds)
        yield (
            np.mean([x[:n] for x, _ in folds], axis=0),
            np.mean([y[:n] for _, y in folds], axis=0),
        )


def _draw(figure: Figure, curves: Sequence[Curve], x_label: str, y_label: str) -> None:
    axis = figure.subplots()
    for one in curves:
        look = style(one.number)
        dot: dict[str, Any] = {"marker": "o", "ms": 4} if len(one.x) == 1 else {}
        axis.plot(one.x, one.mean, lw=1.7, label=one.name, **look, **dot)
        axis.fill_between(
            one.x, one.mean - one.half, one.mean + one.half, color=look["color"], alpha=0.18, lw=0
        )
        for x, y in one.tails:
            axis.plot(x, y, lw=0.7, alpha=0.45, **look)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    legend(axis, [one.name for one in curves])


def _ends(curves: Sequence[Curve], unit: str) -> str:
    """The best mean of each curve in words."""
    parts = []
    for one in curves:
        best = int(np.argmax(one.mean))
        parts.append(f"{one.name}: at most {one.mean[best]:.3g} at {unit} {one.x[best]:.3g}")
    return "; ".join(parts) + "."
