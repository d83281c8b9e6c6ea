"""Curves of scores during training, against epochs or time, with bands over repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dml.core.statistics import Estimate
from dml.results.finished_runs import FinishedRun
from dml.results.picture import (
    PERCENT,
    Picture,
    add_legend,
    describe_spread,
    draw_picture,
    keep_percent,
    line_style,
)
from dml.results.run_groups import RunGroup, name_places
from dml.runs.console import is_score, title

NamedGroup = tuple[str, RunGroup]  # a name for legends, and the runs


@dataclass(frozen=True)
class Curve:
    """Values at the evaluations that all repeats of a group have.

    Attributes:
        name: name of the group.
        number: of its color, which is the same in all pictures of a report.
        x: epochs, or minutes of training.
        estimates: one per x, over repeats.
        tails: x and values of each repeat after the end of the shortest one.
    """

    name: str
    number: int
    x: np.ndarray
    estimates: tuple[Estimate, ...]
    tails: tuple[tuple[np.ndarray, np.ndarray], ...]

    @property
    def mean(self) -> np.ndarray:
        """Mean at each x."""
        return np.array([one.mean for one in self.estimates])

    @property
    def half(self) -> np.ndarray:
        """Half-width of the band at each x: see `Estimate.spread`; 0 for one repeat."""
        return np.array([one.spread or 0.0 for one in self.estimates])

    @property
    def repeats(self) -> int:
        """Number of repeats."""
        return self.estimates[0].n


def learning_curves(groups: Sequence[NamedGroup], column: str | None) -> Iterator[Picture]:
    """Yields a picture per dataset and protocol: a column of `history.csv` against epochs.

    Args:
        groups: groups with their names.
        column: to draw; None for the metric that selected the epoch.
    """
    for data, selected_by, own in _by_place(groups):
        column_of = column or selected_by
        curves = _average_all(own, column_of)
        if curves:
            name, repeats = title(column_of), [one.repeats for one in curves]
            label = f"{name}{PERCENT}" if is_score(column_of) else column_of.replace("_", " ")
            yield draw_picture(
                partial(_draw, curves=curves, x_label="epoch", y_label=label),
                f"{name} during training on {data}{describe_spread('bands', repeats)}",
                f"Learning curves on {data}. {_describe(curves, 'epoch')}",
            )


def runtime_curves(groups: Sequence[NamedGroup]) -> Iterator[Picture]:
    """Yields one picture per dataset and protocol: the selecting score against minutes."""
    for data, column, own in _by_place(groups):
        curves = _average_all(own, column, timed=True)
        devices = {str(run.summary.get("device")) for _, _, group in own for run in group.runs}
        if curves:
            x_label, y_label = "minutes of training", f"{title(column)}{PERCENT}"
            yield draw_picture(
                partial(_draw, curves=curves, x_label=x_label, y_label=y_label),
                f"{title(column)} against training time on {data}, on {', '.join(sorted(devices))}",
                f"Score against training time on {data}. {_describe(curves, 'minute')}",
            )


def average_curve(
    name: str, group: RunGroup, column: str, timed: bool = False, number: int = 0
) -> Curve | None:
    """Returns the mean over repeats at the evaluations that all have; None without a history.

    Args:
        name: for the legend.
        group: its runs.
        column: of `history.csv`.
        timed: against minutes, at the mean speed of each job, instead of epochs.
        number: of its color.
    """
    series = [one for run in group.runs for one in _repeat_series(run, column, timed)]
    series = [(x, y) for x, y in series if len(x)]
    if not series:
        return None
    shortest = min(len(x) for x, _ in series)
    values = np.array([y[:shortest] for _, y in series])
    x = np.mean([x[:shortest] for x, _ in series], axis=0)
    tails = tuple((x[shortest - 1 :], y[shortest - 1 :]) for x, y in series if len(x) > shortest)
    return Curve(name, number, x, tuple(Estimate(tuple(at)) for at in values.T), tails)


def _by_place(
    groups: Sequence[NamedGroup],
) -> Iterator[tuple[str, str, list[tuple[int, str, RunGroup]]]]:
    """Yields for each place the metric that selected the epoch, and its numbered, named groups.

    Runs of two protocols are two pictures: their scores are of different images.
    """
    groups = [(n, group) for n, group in groups if any(run.history.rows for run in group.runs)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(n for n, _ in groups))}
    places = name_places([group for _, group in groups])
    for place in dict.fromkeys(places):
        pairs = [pair for pair, at in zip(groups, places, strict=True) if at == place]
        own = [(numbers[name], name, group) for name, group in pairs]
        yield place, str(own[0][2].first.summary["selected_by"]).partition(" ")[0], own


def _average_all(
    numbered: Sequence[tuple[int, str, RunGroup]], column: str, timed: bool = False
) -> list[Curve]:
    curves = (average_curve(name, group, column, timed, n) for n, name, group in numbered)
    return [curve for curve in curves if curve is not None]


def _repeat_series(
    run: FinishedRun, column: str, timed: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields x and value of each repeat: the mean over its folds as far as all of them go."""
    jobs_of: dict[int, list[dict]] = {}
    for job in run.summary["jobs"]:
        jobs_of.setdefault(int(job["repeat"]), []).append(job)
    factor = 100.0 if is_score(column) else 1.0
    for repeat, jobs in jobs_of.items():
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
    alpha = 0.18 if len(curves) <= 4 else 0.08  # many bands overlap
    for one in curves:
        look = line_style(one.number)
        dot: dict[str, Any] = {"marker": "o", "ms": 4} if len(one.x) == 1 else {}
        axis.plot(one.x, one.mean, lw=1.7, label=one.name, **look, **dot)
        axis.fill_between(
            one.x, one.mean - one.half, one.mean + one.half, color=look["color"], alpha=alpha, lw=0
        )
        for x, y in one.tails:
            axis.plot(x, y, lw=0.7, alpha=0.45, **look)
    axis.set_xlabel(x_label)
    if x_label == "epoch":
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel(y_label)
    if y_label.endswith(PERCENT):
        keep_percent(axis)
    add_legend(axis, [one.name for one in curves])


def _describe(curves: Sequence[Curve], unit: str) -> str:
    """Returns the best mean of each curve in words."""
    parts = []
    for one in curves:
        best = int(np.argmax(one.mean))
        parts.append(f"{one.name}: at most {one.mean[best]:.3g} at {unit} {one.x[best]:.3g}")
    return "; ".join(parts) + "."
