"""Pictures of reports, and curves of scores during training, with bands over repeats.

Pictures of a page are SVG in colors for a light and for a dark background.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
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
SPREAD = "bands and whiskers: 95 % intervals over repeats, of two repeats the standard deviation"


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


def draw_picture(
    draw: Callable[[Figure], None], title: str, alt: str, height: float = 3.6
) -> Picture:
    """Returns a picture.

    Args:
        draw: adds axes and their content to an empty figure.
        title, alt: see `Picture`.
        height: inches; the width is the same for all.
    """
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(6.2, height), layout="constrained")
        draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    light = stream.getvalue()
    dark = light.replace(ON_LIGHT.encode(), ON_DARK.encode())
    return Picture(title, alt, *(_data_uri(svg, "image/svg+xml") for svg in (light, dark)))


def load_picture(path: Path, title: str) -> Picture:
    """Returns a PNG that a run has drawn."""
    return Picture(title, title, _data_uri(path.read_bytes(), "image/png"))


def _data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def line_style(number: int) -> dict[str, Any]:
    """Returns color and dashes of the number-th line; 32 lines are distinct."""
    dashes = LINES[number // len(COLORS) % len(LINES)]
    return {"color": COLORS[number % len(COLORS)], "linestyle": dashes}


def value_label(metric: str) -> str:
    """Returns the label of an axis for a metric."""
    return f"{metric_label(metric)}, percent" if is_score(metric) else metric.replace("_", " ")


def add_labels(axis: Axes, x_label: str, metric: str) -> None:
    """Adds the labels of the axes, and a legend, beside the axis where it would cover lines.

    Scores are kept within 0 and 100, which a wide band would leave.
    """
    axis.set_xlabel(x_label)
    axis.set_ylabel(value_label(metric))
    if is_score(metric):
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0.0), min(high, 100.0))
    if len(axis.get_legend_handles_labels()[0]) > 3:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axis.legend()


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
