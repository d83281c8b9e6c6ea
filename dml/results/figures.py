"""Figures of a report, by the kinds that an experiment names in `experiment.figures`.

Kinds drawn from numbers: `learning_curves` (scores against epochs; `learning_curves:<column>` of
`history.csv`), `runtime` (scores against minutes of training), `hyperparameter_curves` (scores
against each varied option), `heat_map` (scores over two varied options) and
`relative_improvement` (separated scores above the lowest one of their data). Every other kind is a
picture that runs have drawn: `figures/<kind>.png` of their folders (neighbors, embedding_map,
stages, stage_maps, search_history, …).

Curves have bands over repeats. Pictures of a page are SVG in colors for a light and for a dark
background.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.statistics import Estimate
from dml.results.catalog import Cell
from dml.results.published import PublishedResult
from dml.results.report import Report, Row, Section, main_metric, metric_name
from dml.runs.figures.drawing import COLORS, plt, save, tidy
from dml.runs.folder.stored_run import StoredRun

LINES = ("-", "--", ":", "-.")
ON_LIGHT, ON_DARK = "#24292f", "#d8dee6"  # texts and axes; no other element has the first
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dml",  # the same picture gives the same bytes
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **{f"{name}.color": ON_LIGHT for name in ("text", "xtick", "ytick", "grid")},
    "axes.prop_cycle": cycler(color=COLORS),
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
        light, dark: data URIs; a PNG that a run has drawn has no `dark`.
    """

    title: str
    light: str
    dark: str | None = None


def draw_picture(draw: Callable[[Figure], None], title: str) -> Picture:
    """Returns a picture of what `draw` adds to an empty figure."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(6.2, 3.8), layout="constrained")
        draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    light = stream.getvalue()
    dark = light.replace(ON_LIGHT.encode(), ON_DARK.encode())
    return Picture(title, *(data_uri(svg, "image/svg+xml") for svg in (light, dark)))


def data_uri(content: bytes, mime: str) -> str:
    """Returns content for the `src` of an image."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def value_label(metric: str) -> str:
    """Returns the label of an axis for a metric."""
    return f"{metric_name(metric)}{', percent' if is_score(metric) else ''}"


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
    draw = partial(_plot, curves=curves, x_label=x_label, metric=metric)
    return draw_picture(draw, f"{metric_name(metric)} {title}; {SPREAD}")


def write_curves(
    groups: Mapping[str, Sequence[StoredRun]], metric: str, title: str, path: Path
) -> bool:
    """Draws a metric of runs against epochs to a PNG; returns False if no run has a history."""
    found = {name: average_curve(runs, metric) for name, runs in groups.items()}
    if curves := {name: curve for name, curve in found.items() if not curve.empty}:
        figure = plt.figure(figsize=(8, 4.8), layout="constrained")
        _plot(figure, curves, EPOCH, metric)
        figure.axes[0].set_title(title, fontsize=11)
        save(figure, path)
    return bool(curves)


def average_curve(runs: Sequence[StoredRun], column: str, timed: bool = False) -> pd.DataFrame:
    """Returns `mean` and `half` (half-width of its band) over repeats, by epoch or minutes.

    The curve of a repeat is the mean over its folds. It ends where the shortest fold ends, and the
    result where the shortest repeat ends. Minutes follow from the mean speed of each model.
    """
    rows = pd.DataFrame({**row, "run": n} for n, run in enumerate(runs) for row in run.history)
    if column not in rows:
        return band([], [])
    rows = rows.dropna(subset=column)
    model = ["run", "repeat", "fold"]
    rows["x"], rows["number"] = rows.epoch, rows.groupby(model).cumcount()
    if timed:
        jobs = ((n, job) for n, run in enumerate(runs) if run.summary for job in run.summary.jobs)
        pace = {(n, j.repeat, j.fold): (j.seconds or 0) / max(j.steps or 0, 1) for n, j in jobs}
        rows["x"] = rows.step * pd.MultiIndex.from_frame(rows[model]).map(pace) / 60
    rows = rows[rows.groupby("number").x.transform("size") == (rows.number == 0).sum()]
    by_number = rows.groupby(["number", "run", "repeat"])[["x", column]].mean().groupby("number")
    factor = 100.0 if is_score(column) else 1.0
    estimates = [Estimate(tuple(factor * values)) for _, values in by_number[column]]
    return band(by_number.x.mean(), estimates)


def band(x: Sequence[float], estimates: Sequence[Estimate]) -> pd.DataFrame:
    """Returns `mean` and `half` (half-width of the band) of estimates, by x."""
    curve = {"mean": [e.mean for e in estimates], "half": [e.spread or 0.0 for e in estimates]}
    return pd.DataFrame(curve, index=np.asarray(x))


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
    # beside the axes, where it would cover lines
    beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    axis.legend(frameon=False, fontsize=9, **(beside if len(curves) > 3 else {}))
    tidy(axis)


def draw_figures(report: Report) -> list[Picture]:
    """Returns the pictures of a report: first ours and the published scores, then its kinds.

    There are none for what has not been run.
    """
    compared = [one for section in report.sections for one in _compare_scores(section, report)]
    return compared + [one for kind in report.about.figures for one in _draw_kind(kind, report)]


def _compare_scores(section: Section, report: Report) -> Iterator[Picture]:
    """Yields our scores and the published ones, with their 95 % intervals, where comparable."""
    metric = main_metric(report.about)
    pairs = {
        row.name: (row.ours[metric], row.published[metric])
        for row in reversed(section.rows)
        if metric in row.comparisons and row.comparisons[metric].difference is not None
    }
    if pairs:
        title = f"{metric_name(metric)}, ours and published, with 95 % intervals: {section.title}"
        yield draw_picture(partial(_plot_scores, pairs=pairs, metric=metric), title)


def _plot_scores(
    figure: Figure, pairs: Mapping[str, tuple[Estimate, PublishedResult]], metric: str
) -> None:
    axis, places = figure.subplots(), np.arange(len(pairs))
    ours, printed = zip(*pairs.values(), strict=True)
    halves = [one.ci95 or 0.0 for one in ours]
    axis.errorbar([one.mean for one in ours], places + 0.12, xerr=halves, fmt="o", label="ours")
    values = np.array([one.value for one in printed])
    xerr = np.abs(np.transpose([one.interval for one in printed]) - values)
    axis.errorbar(values, places - 0.12, xerr=xerr, fmt="o", mfc="none", label="published")
    axis.set_yticks(places, list(pairs))
    axis.set(xlabel=value_label(metric), ylim=(-0.6, len(pairs) - 0.4))
    axis.legend(frameon=False, fontsize=9)
    tidy(axis)


def _draw_kind(kind: str, report: Report) -> Iterator[Picture]:
    name, _, column = kind.partition(":")
    metric = column or main_metric(report.about)
    if name in ("hyperparameter_curves", "heat_map"):
        swept = swept_options(report.cells)
        draw = _heat_maps if name == "heat_map" else _hyperparameter_curves
        points = _points([row for row in report.rows if metric in row.ours], swept, metric)
        for on, own in points.groupby("on", sort=False):
            yield from draw(own, swept, metric, str(on))
        return
    for section in report.sections:
        rows = [row for row in section.rows if row.stored and row.key.evaluation != "concatenated"]
        if not rows:
            continue
        if name in ("learning_curves", "runtime"):
            yield from _learning_curves(section, rows, column, name == "runtime")
        elif name == "relative_improvement":
            yield from _relative_improvement(section, rows, metric)
        else:
            if report.about.source is None:  # of many runs, the best one of each method
                rows.sort(key=lambda row: row.ours[metric].mean if metric in row.ours else 0.0)
                rows = [*{row.method: row for row in rows}.values()]
            for row in rows:
                path = row.stored[0].folder / "figures" / f"{name}.png"
                title = f"{name.replace('_', ' ')} of {row.name} on {section.title}"
                if path.exists():
                    yield Picture(title, data_uri(path.read_bytes(), "image/png"))


def swept_options(cells: Sequence[Cell]) -> list[str]:
    """Returns the dotted names of the options (not groups of options) that cells vary."""
    words = [word.lstrip("+").partition("=") for cell in cells for word in cell.overrides]
    values = pd.DataFrame(words, columns=["name", "is", "value"]).groupby("name", sort=False).value
    return [name for name, count in values.nunique().items() if "." in str(name) and count > 1]


def _learning_curves(
    section: Section, rows: Sequence[Row], column: str, timed: bool
) -> Iterator[Picture]:
    """Yields the scores that selected the epoch, or a column of `history.csv`.

    They are drawn against epochs, or against minutes of training if `timed`.
    """
    config: Any = rows[0].stored[0].config
    metric, title = column or config.select_metric, f"during training on {section.title}"
    found = {row.name: average_curve(row.stored, metric, timed) for row in rows}
    if timed:
        devices = {str(run.summary.device) for row in rows for run in row.stored if run.summary}
        title += f" against training time on {', '.join(sorted(devices))}"
    if curves := {name: curve for name, curve in found.items() if not curve.empty}:
        yield draw_curves(curves, MINUTES if timed else EPOCH, metric, title)


def _relative_improvement(section: Section, rows: Sequence[Row], metric: str) -> Iterator[Picture]:
    """Yields bars: how far each configuration is above the lowest one, in percent."""
    scores = pd.Series({row.name: row.ours[metric].mean for row in rows if metric in row.ours})
    if not scores.empty:
        above = (100 * scores / scores.min() - 100).sort_values()
        title = f"{metric_name(metric)} on {section.title} relative to {above.index[0]}, the lowest"
        yield draw_picture(partial(_plot_bars, values=above), title)


def _plot_bars(figure: Figure, values: pd.Series) -> None:
    axis = figure.subplots()
    bars = axis.barh(values.index, values, color=COLORS[0], alpha=0.8)
    axis.bar_label(bars, fmt="%+.1f", padding=3, fontsize=8)
    axis.tick_params(axis="y", labelsize=8)
    axis.set_xlabel("relative improvement in percent")


def _points(rows: Sequence[Row], options: Sequence[str], metric: str) -> pd.DataFrame:
    """Returns data and evaluation, method, estimate and numeric options of rows."""
    points = pd.DataFrame([row.options for row in rows], columns=list(options))
    return points.apply(pd.to_numeric, errors="coerce").assign(
        on=[f"{r.key.data}, {r.key.evaluation}".removesuffix(", single") for r in rows],
        method=[row.method for row in rows],
        ours=[row.ours[metric] for row in rows],
    )


def _varied_options(points: pd.DataFrame, options: Sequence[str]) -> list[str]:
    """Returns the options that vary within a method; of two that vary together, the first."""
    found: dict[tuple[float, ...], str] = {}
    for name in options:
        if points.groupby("method")[name].nunique().max() > 1:
            found.setdefault(tuple(points[name].rank(method="dense").fillna(0)), name)
    return list(found.values())


def _hyperparameter_curves(
    points: pd.DataFrame, options: Sequence[str], metric: str, on: str
) -> Iterator[Picture]:
    """Yields one picture per varied option, a line per method and value of the other options.

    Lines with a single point are omitted if the method has longer lines, since such runs belong to
    the curves of other options. A method without the option is a horizontal line.
    """
    names = _varied_options(points, options)
    for name in names:
        lines = points.method.copy()
        for other in (other for other in names if other != name):
            text = ", " + other.rpartition(".")[2] + " " + points[other].map("{:g}".format)
            lines += text.where(points[other].notna(), "")
        counts = points.groupby(lines)[name].nunique()
        longest = counts[lines].groupby(points.method.values).max()
        curves = {}
        for line, own in points.groupby(lines, sort=False):
            at = own.dropna(subset=name).sort_values(name)
            if at.empty:
                ends = [points[name].min(), points[name].max()]
                curves[str(line)] = band(ends, [own.ours.iloc[0]] * 2)
            elif counts[line] >= min(longest[own.method.iloc[0]], 2):
                curves[str(line)] = band(at[name], list(at.ours))
        yield draw_curves(curves, name, metric, f"on {on} against {name}")


def _heat_maps(
    points: pd.DataFrame, options: Sequence[str], metric: str, on: str
) -> Iterator[Picture]:
    """Yields one picture per method for which exactly two options vary."""
    points = points.assign(mean=points.ours.map(attrgetter("mean")))
    for method, own in points.groupby("method", sort=False):
        if len(varied := _varied_options(own, options)) == 2:
            table = own.pivot_table(index=varied[1], columns=varied[0], values="mean")
            title = f"{metric_name(metric)} of {method} on {on} over {' and '.join(varied)}"
            draw = partial(_plot_heat_map, table=table, label=value_label(metric))
            yield draw_picture(draw, title)


def _plot_heat_map(figure: Figure, table: pd.DataFrame, label: str) -> None:
    axis = figure.subplots()
    image = axis.imshow(table, origin="lower", aspect="auto", cmap="viridis")
    middle = (table.min(axis=None) + table.max(axis=None)) / 2
    for (y, x), value in np.ndenumerate(table):
        ink = "white" if value <= middle else "black"
        text = "" if np.isnan(value) else f"{value:.1f}"
        axis.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
    axis.set_xticks(range(table.shape[1]), [f"{value:g}" for value in table.columns])
    axis.set_yticks(range(table.shape[0]), [f"{value:g}" for value in table.index])
    axis.set(xlabel=table.columns.name, ylabel=table.index.name)
    figure.colorbar(image, label=label)
