"""Curves of scores over training or over an option, with bands over repeats, as pictures.

Pictures of a page are SVG in colors for a light and for a dark background.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from dml.runs.figures.drawing import COLORS, plt, save, tidy
from dml.runs.folder.stored_run import StoredRun

NamedRuns = tuple[str, Sequence[StoredRun]]  # a name for legends, and runs of one configuration
LINES = ("-", "--", ":", "-.")
ON_LIGHT, ON_DARK = "#24292f", "#d8dee6"  # texts and axes; no other element has the first
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dml",  # the same picture gives the same bytes
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **{f"{name}.color": ON_LIGHT for name in ("text", "xtick", "ytick", "grid")},
    **{f"axes.{name}color": ON_LIGHT for name in ("label", "edge")},
}
SPREAD = "bands: 95 % intervals over repeats, of two repeats the standard deviation"
LOG_RANGE = 50  # an axis is logarithmic if its largest value is this many times the smallest
EPOCH, MINUTES = "epoch", "minutes of training"  # labels of an axis


@dataclass(frozen=True)
class Picture:
    """One picture of a page.

    Attributes:
        title: text below the picture.
        alt: description for readers who cannot see it.
        light, dark: data URIs; a PNG that a run has drawn has no `dark`.
    """

    title: str
    alt: str
    light: str
    dark: str | None = None


def draw_picture(draw: Callable[[Figure], None], title: str, alt: str) -> Picture:
    """Returns a picture of what `draw` adds to an empty figure."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(6.2, 3.8), layout="constrained")
        draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    light = stream.getvalue()
    dark = light.replace(ON_LIGHT.encode(), ON_DARK.encode())
    return Picture(title, alt, *(data_uri(svg, "image/svg+xml") for svg in (light, dark)))


def data_uri(content: bytes, mime: str) -> str:
    """Returns content for the `src` of an image."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def value_label(metric: str) -> str:
    """Returns the label of an axis for a metric."""
    return f"{metric_label(metric)}, percent" if is_score(metric) else metric.replace("_", " ")


def draw_curves(
    curves: Mapping[str, pd.DataFrame], x_label: str, metric: str, title: str
) -> Picture:
    """Returns a picture of lines with their bands.

    Args:
        curves: name → `mean` and `half` (half-width of the band) by the value on the x axis.
        x_label: of the x axis.
        metric: on the y axis.
        title: what the curves are of, after the metric.
    """
    title = f"{metric_label(metric)} {title}"
    best = "; ".join(
        f"{name}: at most {curve['mean'].max():.3g} at {curve['mean'].idxmax():.3g}"
        for name, curve in curves.items()
    )
    draw = partial(_plot, curves=curves, x_label=x_label, metric=metric)
    return draw_picture(draw, f"{title}; {SPREAD}", f"{title}. {best}.")


def write_curves(groups: Sequence[NamedRuns], metric: str, title: str, path: Path) -> bool:
    """Draws a metric of runs against epochs to a PNG; returns False if no run has a history."""
    found = {name: average_curve(runs, metric) for name, runs in groups}
    if curves := {name: curve for name, curve in found.items() if not curve.empty}:
        figure = plt.figure(figsize=(8, 4.8), layout="constrained")
        _plot(figure, curves, EPOCH, metric)
        figure.axes[0].set_title(title, fontsize=11)
        tidy(figure.axes[0])
        save(figure, path)
    return bool(curves)


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
        rows["number"] = rows.groupby(["repeat", "fold"]).cumcount()
        for _, repeat in rows.groupby("repeat"):
            length = repeat.groupby("fold").number.max().min()
            series.append(repeat[repeat.number <= length].groupby("number")[["x", column]].mean())
    if not any(map(len, series)):
        return pd.DataFrame({"mean": [], "half": []})
    points = pd.concat(series).groupby("number").filter(lambda same: len(same) == len(series))
    by_number = points.groupby("number")
    factor = 100.0 if is_score(column) else 1.0
    return band(
        by_number.x.mean(), [Estimate(tuple(factor * values)) for _, values in by_number[column]]
    )


def band(x: Sequence[float], estimates: Sequence[Estimate]) -> pd.DataFrame:
    """Returns `mean` and `half` (half-width of the band) of estimates, by x."""
    curve = {"mean": [e.mean for e in estimates], "half": [e.spread or 0.0 for e in estimates]}
    return pd.DataFrame(curve, index=np.asarray(x))


def _minutes_per_step(rows: pd.DataFrame, run: StoredRun) -> np.ndarray:
    jobs = () if run.summary is None else run.summary.jobs
    pace = {(j.repeat, j.fold): (j.seconds or 0.0) / max(j.steps or 0, 1) / 60 for j in jobs}
    keys = zip(rows.repeat, rows.fold, strict=True)
    return np.array([pace.get((int(repeat), int(fold)), 0.0) for repeat, fold in keys])


def _plot(figure: Figure, curves: Mapping[str, pd.DataFrame], x_label: str, metric: str) -> None:
    """Draws lines; scores are kept within 0 and 100, which a wide band would leave."""
    axis = figure.subplots()
    for number, (name, curve) in enumerate(curves.items()):
        dashes = LINES[number // len(COLORS) % len(LINES)]  # 32 lines are distinct
        color, mean, best = COLORS[number % len(COLORS)], curve["mean"], curve["mean"].idxmax()
        axis.plot(curve.index, mean, dashes, color=color, lw=1.7, label=name)
        points = [best] if x_label in (EPOCH, MINUTES) else curve.index
        axis.plot(points, mean[points], "o", ms=4, color=color)
        alpha = 0.18 if len(curves) <= 4 else 0.08  # many bands overlap
        low, high = mean - curve.half, mean + curve.half
        axis.fill_between(curve.index, low, high, color=color, alpha=alpha, lw=0)
    if x_label == EPOCH:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif x_label != MINUTES:  # logarithmic for several magnitudes, linear around a value of 0
        x = np.concatenate([curve.index for curve in curves.values()])
        positive = x[x > 0]
        if x.min() >= 0 and positive.size and positive.max() >= LOG_RANGE * positive.min():
            linear = {} if len(positive) == len(x) else {"linthresh": positive.min()}
            axis.set_xscale("symlog" if linear else "log", **linear)
    axis.set_xlabel(x_label)
    axis.set_ylabel(value_label(metric))
    if is_score(metric):
        bottom, top = axis.get_ylim()
        axis.set_ylim(max(bottom, 0.0), min(top, 100.0))
    beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}  # where it would cover lines
    axis.legend(**(beside if len(curves) > 3 else {}))
