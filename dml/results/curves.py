"""Curves of scores during training, against epochs or time, with bands over repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label
from dml.core.statistics import Estimate
from dml.results.picture import SPREAD, Picture, add_labels, draw_picture, line_style
from dml.runs.figures.drawing import plt, save, tidy
from dml.runs.folder.stored_run import StoredRun

NamedRuns = tuple[str, Sequence[StoredRun]]  # a name for legends, and runs of one configuration


def learning_curves(
    groups: Sequence[NamedRuns], column: str | None = None, timed: bool = False
) -> Iterator[Picture]:
    """Yields a picture per dataset and protocol: a column of `history.csv` during training.

    Scores of two protocols are of different images.

    Args:
        groups: runs with their names.
        column: to draw; None for the metric that selected the epoch.
        timed: against minutes of training instead of epochs.
    """
    groups = [(name, runs) for name, runs in groups if any(run.history for run in runs)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(n for n, _ in groups))}
    places = name_places(groups)
    for place in dict.fromkeys(places):
        own = [group for group, at in zip(groups, places, strict=True) if at == place]
        config: Any = own[0][1][0].config
        metric = column or config.select_metric
        curves = {name: average_curve(runs, metric, timed) for name, runs in own}
        best = "; ".join(
            f"{name}: at most {curve['mean'].max():.3g} at {curve['mean'].idxmax():.3g}"
            for name, curve in curves.items()
            if not curve.empty
        )
        if not best:
            continue
        devices = {str(run.summary.device) for _, runs in own for run in runs if run.summary}
        time = f" against training time on {', '.join(sorted(devices))}" if timed else ""
        title = f"{metric_label(metric)} during training on {place}{time}"
        x_label = "minutes of training" if timed else "epoch"
        draw = partial(_draw, curves=curves, numbers=numbers, x_label=x_label, metric=metric)
        yield draw_picture(draw, f"{title}; {SPREAD}", f"{title}. {best}.")


def write_curves(groups: Sequence[NamedRuns], metric: str, title: str, path: Path) -> bool:
    """Draws a metric of runs against epochs to a PNG; returns False if no run has a history."""
    curves = {name: average_curve(runs, metric) for name, runs in groups}
    if all(curve.empty for curve in curves.values()):
        return False
    figure = plt.figure(figsize=(8, 4.8), layout="constrained")
    numbers = {name: number for number, name in enumerate(curves)}
    _draw(figure, curves, numbers, "epoch", metric)
    figure.axes[0].set_title(title, fontsize=11)
    tidy(figure.axes[0])
    save(figure, path)
    return True


def name_places(groups: Sequence[NamedRuns]) -> list[str]:
    """Returns the data of each group, with the protocol where the data have several of them."""
    configs: list[Any] = [runs[0].config for _, runs in groups]
    data = [data for data, _ in {(one.data, one.protocol) for one in configs}]
    return [
        f"{one.data}, {one.protocol}" if data.count(one.data) > 1 else one.data for one in configs
    ]


def average_curve(runs: Sequence[StoredRun], column: str, timed: bool = False) -> pd.DataFrame:
    """Returns `mean` and `half` (half-width of its band) over repeats, by epoch or minutes.

    A repeat is the mean over its folds as far as all of them go, and the curve goes as far as all
    repeats do. Minutes are at the mean speed of each model.
    """
    series = []
    for run in runs:
        rows = pd.DataFrame(run.history)
        if column not in rows:
            continue
        rows = rows.dropna(subset=column)
        rows["x"] = rows.step * _minutes_per_step(rows, run) if timed else rows.epoch
        jobs = rows.groupby(["repeat", "fold"])
        rows["number"] = jobs.cumcount()
        for _, repeat in rows.groupby("repeat"):
            length = repeat.groupby("fold").number.max().min()
            series.append(repeat[repeat.number <= length].groupby("number")[["x", column]].mean())
    points = pd.concat(series, keys=range(len(series))) if series else pd.DataFrame()
    if points.empty:
        return pd.DataFrame({"mean": [], "half": []})
    whole = points.groupby("number").filter(lambda same: len(same) == len(series))
    factor = 100.0 if is_score(column) else 1.0
    by_number = whole.groupby("number")
    estimates = [Estimate(tuple(factor * values)) for _, values in by_number[column]]
    curve = {"mean": [e.mean for e in estimates], "half": [e.spread or 0.0 for e in estimates]}
    return pd.DataFrame(curve, index=by_number.x.mean().to_numpy())


def _minutes_per_step(rows: pd.DataFrame, run: StoredRun) -> np.ndarray:
    jobs = () if run.summary is None else run.summary.jobs
    pace = {(j.repeat, j.fold): (j.seconds or 0.0) / max(j.steps or 0, 1) / 60 for j in jobs}
    keys = zip(rows.repeat, rows.fold, strict=True)
    return np.array([pace.get((int(repeat), int(fold)), 0.0) for repeat, fold in keys])


def _draw(
    figure: Figure,
    curves: Mapping[str, pd.DataFrame],
    numbers: Mapping[str, int],
    x_label: str,
    metric: str,
) -> None:
    axis = figure.subplots()
    for name, curve in curves.items():
        if curve.empty:
            continue
        look, mean, best = line_style(numbers[name]), curve["mean"], curve["mean"].idxmax()
        axis.plot(curve.index, mean, lw=1.7, label=name, **look)
        axis.plot(best, mean[best], "o", ms=4, color=look["color"])
        alpha = 0.18 if len(curves) <= 4 else 0.08  # many bands overlap
        low, high = mean - curve.half, mean + curve.half
        axis.fill_between(curve.index, low, high, color=look["color"], alpha=alpha, lw=0)
    if x_label == "epoch":
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_labels(axis, x_label, metric)
