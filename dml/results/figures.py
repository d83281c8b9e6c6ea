"""Figures of a report, by the kinds that an experiment names in `experiment.figures`.

Kinds drawn from numbers: `learning_curves` (scores against epochs; `learning_curves:<column>` of
`history.csv`), `runtime` (scores against minutes of training), `hyperparameter_curves` (scores
against each varied option), `heat_map` (scores over two varied options) and
`relative_improvement` (separated scores above the lowest one of their data). Every other kind is a
picture that runs have drawn: `figures/<kind>.png` of their folders (neighbors, embedding_map,
stages, stage_maps, search_history, …).

Curves have bands over repeats. Pictures that are drawn here are SVG without a background; the page
inverts them where it is dark.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.ticker import MaxNLocator

from dml.core.metric_names import is_score
from dml.core.regular_files import read_regular
from dml.core.statistics import Estimate
from dml.results.compare import is_comparable
from dml.results.report import Report, Row, Section, main_metric, metric_name
from dml.runs.drawing_guard import attempt
from dml.runs.figures.drawing import COLORS, Axes, plt, save, tidy
from dml.runs.folder.stored_run import StoredRun

Picture = tuple[str, str]  # text below it, data URI
LINES = ("-", "--", ":", "-.")
INK = "#24292f"  # of texts and axes
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dml",  # the same picture gives the same bytes
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **{f"{name}.color": INK for name in ("text", "xtick", "ytick", "grid")},
    "axes.prop_cycle": cycler(color=COLORS),
    **{f"axes.{name}color": INK for name in ("label", "edge")},
}
SPREAD = "bands: 95 % intervals over repeats, of two repeats the standard deviation"
LOG_RANGE = 50  # an axis is logarithmic if its largest value is this many times the smallest
CURVES = 16  # at most in a picture
EPOCH, MINUTES = "epoch", "minutes of training"  # labels of an axis


@contextmanager
def new_picture(pictures: list[Picture], title: str) -> Iterator[Axes]:
    """Yields empty axes, and appends the picture of what has been drawn into them."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6.2, 3.8), layout="constrained")
        try:
            yield axis
            stream = io.BytesIO()
            figure.savefig(stream, format="svg", metadata={"Date": None})
        finally:
            plt.close(figure)
    pictures.append((title, data_uri(stream.getvalue(), "image/svg+xml")))


def data_uri(content: bytes, mime: str) -> str:
    """Returns content for the `src` of an image."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def value_label(metric: str) -> str:
    """Returns the label of an axis for a metric."""
    return f"{metric_name(metric)}{', percent' if is_score(metric) else ''}"


def average_curves(
    groups: Mapping[str, Sequence[StoredRun]], metric: str, timed: bool = False
) -> dict[str, pd.DataFrame]:
    """Returns name → curve (`average_curve`) of the groups of runs that have one."""
    curves = ((name, average_curve(runs, metric, timed)) for name, runs in groups.items())
    return {name: curve for name, curve in curves if not curve.empty}


def write_curves(
    groups: Mapping[str, Sequence[StoredRun]], metric: str, title: str, path: Path, origin: str = ""
) -> bool:
    """Draws a metric of runs against epochs to a PNG; returns False if no run has a history.

    `origin` is that of `dml.runs.figures.drawing.save`.
    """
    if curves := average_curves(groups, metric):
        figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
        plot_curves(axis, curves, EPOCH, metric)
        axis.set_title(title, fontsize=11)
        save(figure, path, origin)
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


def plot_curves(axis: Axes, curves: Mapping[str, pd.DataFrame], x_label: str, metric: str) -> None:
    """Draws lines with their bands; scores stay within 0 and 100, which a wide band would leave.

    Args:
        axis: to draw into.
        curves: name → `mean` and `half` (half-width of the band) by the value on the x axis.
        x_label: of the x axis.
        metric: on the y axis.
    """
    for number, (name, curve) in enumerate(curves.items()):
        dashes = LINES[number // len(COLORS) % len(LINES)]  # 32 lines are distinct
        color, mean, best = COLORS[number % len(COLORS)], curve["mean"], curve["mean"].idxmax()
        text = name[:39] + "…" * (len(name) > 39)  # the table has the whole name
        axis.plot(curve.index, mean, dashes, color=color, lw=1.7, label=text)
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
            axis.set_xscale("symlog", linthresh=positive.min())
    axis.set(xlabel=x_label, ylabel=value_label(metric))
    if is_score(metric):
        bottom, top = axis.get_ylim()
        axis.set_ylim(max(bottom, 0.0), min(top, 100.0))
    # beside the axes, where it would cover lines
    beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    axis.legend(frameon=False, fontsize=9, **(beside if len(curves) > 3 else {}))
    tidy(axis)


def draw_figures(report: Report) -> list[Picture]:
    """Returns the pictures of a report: first ours and the published scores, then its kinds.

    There are none for what has not been run. One that cannot be drawn is left out with a note.
    """
    pictures: list[Picture] = []
    metric = main_metric(report.about)
    for section in report.sections:
        compare = partial(_compare_scores, section, metric, pictures)
        attempt(f"the comparison of scores in {report.about.id}", compare)
    for kind in report.about.figures:
        attempt(f"{kind} of {report.about.id}", partial(_draw_kind, report, kind, pictures))
    return pictures


def _draw_kind(report: Report, kind: str, pictures: list[Picture]) -> None:
    """Draws one kind of figures for each part of a report."""
    name, _, column = kind.partition(":")
    metric = column or main_metric(report.about)
    if name in ("hyperparameter_curves", "heat_map"):
        draw = _heat_maps if name == "heat_map" else _hyperparameter_curves
        for on, points in _points(report, metric).groupby("on", sort=False):
            draw(points, metric, str(on), pictures)
        return
    for section in report.sections:
        rows = [r for r in section.rows if r.stored and r.key.evaluation != "concatenated"]
        if report.about.source is None:  # own runs: the best ones first
            rows.sort(key=lambda row: -row.ours[metric].mean if metric in row.ours else 0.0)
        if rows and name in ("learning_curves", "runtime"):
            _learning_curves(section, rows, column, name == "runtime", pictures)
        elif rows and name == "relative_improvement":
            _relative_improvement(section, rows, metric, pictures)
        elif rows:
            if report.about.source is None:  # the best one of each method
                rows = list({row.method: row for row in rows[::-1]}.values())[::-1]
            pictures += _pictures_of_runs(section, rows, name)


def _pictures_of_runs(section: Section, rows: Sequence[Row], name: str) -> Iterator[Picture]:
    """Yields what the first run of each row has drawn."""
    for row in rows:
        path = row.stored[0].folder / "figures" / f"{name}.png"
        title = f"{name.replace('_', ' ')} of {row.name} on {section.title}"
        if path.is_file():
            yield title, data_uri(read_regular(path), "image/png")


def _compare_scores(section: Section, metric: str, pictures: list[Picture]) -> None:
    """Draws our scores and the published ones, with their 95 % intervals, where comparable."""
    rows = [
        row
        for row in reversed(section.rows)
        if metric in row.comparisons and row.comparisons[metric].difference is not None
    ]
    if not rows:
        return
    title = f"{metric_name(metric)}, ours and published, with 95 % intervals: {section.title}"
    with new_picture(pictures, title) as axis:
        places, ours = np.arange(len(rows)), [row.ours[metric] for row in rows]
        halves = [one.ci95 or 0.0 for one in ours]
        axis.errorbar([one.mean for one in ours], places + 0.12, xerr=halves, fmt="o", label="ours")
        values = np.array([row.published[metric].value for row in rows])
        ends = np.transpose([row.published[metric].interval for row in rows])
        xerr = np.abs(ends - values)
        axis.errorbar(values, places - 0.12, xerr=xerr, fmt="o", mfc="none", label="published")
        axis.set_yticks(places, [row.name for row in rows])
        axis.set(xlabel=value_label(metric), ylim=(-0.6, len(rows) - 0.4))
        axis.legend(frameon=False, fontsize=9)
        tidy(axis)


def _learning_curves(
    section: Section, rows: Sequence[Row], column: str, timed: bool, pictures: list[Picture]
) -> None:
    """Draws the scores that selected the epoch, or a column of `history.csv`.

    They are drawn against epochs, or against minutes of training if `timed`; of many rows, the
    first ones.
    """
    config: Any = rows[0].stored[0].config
    count = f", {CURVES} of {len(rows)}" if len(rows) > CURVES else ""
    metric, title = column or config.select_metric, f"during training on {section.title}{count}"
    if timed:
        devices = {str(run.summary.device) for row in rows for run in row.stored if run.summary}
        title += f" against training time on {', '.join(sorted(devices))}"
    if curves := average_curves({row.name: row.stored for row in rows[:CURVES]}, metric, timed):
        with new_picture(pictures, f"{metric_name(metric)} {title}; {SPREAD}") as axis:
            plot_curves(axis, curves, MINUTES if timed else EPOCH, metric)


def _relative_improvement(
    section: Section, rows: Sequence[Row], metric: str, pictures: list[Picture]
) -> None:
    """Draws bars: how far each configuration is above the lowest one, in percent."""
    scores = pd.Series({row.name: row.ours[metric].mean for row in rows if metric in row.ours})
    if scores.empty:
        return
    above = (100 * scores / scores.min() - 100).sort_values()
    title = f"{metric_name(metric)} on {section.title} relative to {above.index[0]}, the lowest"
    with new_picture(pictures, title) as axis:
        bars = axis.barh(above.index, above, color=COLORS[0], alpha=0.8)
        axis.bar_label(bars, fmt="%+.1f", padding=3, fontsize=8)
        axis.set_xlabel("relative improvement in percent")


def _points(report: Report, metric: str) -> pd.DataFrame:
    """Returns the swept numeric options of rows, data and evaluation, method and estimate.

    Swept are the options (not groups of options) that the cells vary. Of several rows with the same
    values, the first one that follows the experiment counts.
    """
    words = [word.lstrip("+").partition("=") for cell in report.cells for word in cell.overrides]
    values = pd.DataFrame(words, columns=["name", "is", "value"]).groupby("name", sort=False).value
    swept = [name for name, n in values.nunique().items() if "." in str(name) and n > 1]
    rows = [row for row in report.rows if metric in row.ours]
    points = pd.DataFrame([row.options for row in rows], columns=swept)
    points = points.apply(pd.to_numeric, errors="coerce").assign(
        on=[f"{r.key.data}, {r.key.evaluation}".removesuffix(", single") for r in rows],
        method=[row.method for row in rows],
        ours=[row.ours[metric] for row in rows],
    )
    first = np.argsort([not is_comparable(row.caveats) for row in rows], kind="stable")
    return points.iloc[first].drop_duplicates([*swept, "on", "method"]).sort_index()


def _varied_options(points: pd.DataFrame) -> list[str]:
    """Returns the options that vary within a method; of two that vary together, the first."""
    options = points.columns.drop(["on", "method", "ours"])
    counts = points.groupby("method")[list(options)].nunique().max()
    ranks = points[options[counts > 1]].rank(method="dense").fillna(0)
    return list(ranks.T.drop_duplicates().index)


def _hyperparameter_curves(
    points: pd.DataFrame, metric: str, on: str, pictures: list[Picture]
) -> None:
    """Draws one picture per varied option, a line per method and value of the other options.

    Lines with a single point are omitted if the method has longer lines, since such runs belong to
    the curves of other options. A method without the option is a horizontal line.
    """
    names = _varied_options(points)
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
        title = f"{metric_name(metric)} on {on} against {name}; {SPREAD}"
        with new_picture(pictures, title) as axis:
            plot_curves(axis, curves, name, metric)


def _heat_maps(points: pd.DataFrame, metric: str, on: str, pictures: list[Picture]) -> None:
    """Draws one picture per method for which exactly two options vary."""
    for method, own in points.groupby("method", sort=False):
        if len(varied := _varied_options(own)) != 2:
            continue
        table = own.pivot(index=varied[1], columns=varied[0], values="ours")
        table = table.map(lambda ours: ours.mean, na_action="ignore").astype(float)
        title = f"{metric_name(metric)} of {method} on {on} over {' and '.join(varied)}"
        with new_picture(pictures, title) as axis:
            image = axis.imshow(table, origin="lower", aspect="auto", cmap="viridis")
            middle = (table.min(axis=None) + table.max(axis=None)) / 2
            for (y, x), value in np.ndenumerate(table):
                ink = "white" if value <= middle else "black"
                text = "" if np.isnan(value) else f"{value:.1f}"
                axis.text(x, y, text, ha="center", va="center", color=ink, fontsize=8)
            axis.set_xticks(range(table.shape[1]), [f"{value:g}" for value in table.columns])
            axis.set_yticks(range(table.shape[0]), [f"{value:g}" for value in table.index])
            axis.set(xlabel=varied[0], ylabel=varied[1])
            axis.figure.colorbar(image, label=value_label(metric))
