"""Figures of a report, by the kinds that an experiment names in `experiment.figures`.

Kinds drawn from numbers: `learning_curves` (scores against epochs; `learning_curves:<column>` of
`history.csv`), `runtime` (scores against minutes of training), `hyperparameter_curves` (scores
against each varied option), `heat_map` (scores over two varied options) and
`relative_improvement` (how far scores are above the lowest of their section, in percent). Any other
kind is a picture that runs have drawn, `figures/<kind>.png` in their folders (neighbors,
embedding_map, stages, stage_maps, search_history, …).

Curves have bands over repeats, which the legend explains, and a loss has the same color in all
pictures of a report. Pictures that are drawn here are SVG without a background; the page inverts
them where it is dark.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dml.core.metric_names import is_score
from dml.core.regular_files import read_regular
from dml.core.statistics import Estimate
from dml.results.compare import is_comparable
from dml.results.report import Report, Row, Section, main_metric, metric_name
from dml.runs.drawing_guard import attempt
from dml.runs.figures.drawing import COLORS, GREY, Axes, plt, save, tidy
from dml.runs.figures.line_styles import Style, line_styles, loss_colors
from dml.runs.folder.stored_run import StoredRun

Picture = tuple[str, str]  # text below it, data URI
INK = "#24292f"  # of texts and axes
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dml",  # the same picture gives the same bytes
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
}
CURVE_COLUMNS = ["mean", "half", "repeats"]
INTERVAL, DEVIATION = "95 % interval", "± standard deviation of two repeats"  # of a band
LOG_RANGE = 50  # an axis is logarithmic if its largest value is this many times the smallest
CURVES = 16  # at most in a picture
EPOCH, MINUTES = "epoch", "minutes of training"  # labels of an axis
POINT_COLUMNS = ["on", "method", "loss", "mean", "half", "repeats"]  # of `_points`


@contextmanager
def new_picture(pictures: list[Picture], title: str) -> Iterator[Axes]:
    """Yields empty axes, and appends the picture of what has been drawn into them.

    Where drawing raises an exception, nothing is appended.
    """
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
    name = metric_name(metric)
    return f"{name}, percent" if is_score(metric) else name


def average_curves(
    groups: Mapping[str, Sequence[StoredRun]], metric: str, timed: bool = False
) -> dict[str, pd.DataFrame]:
    """Returns name → curve (`average_curve`) of the groups of runs that have one."""
    curves = {}
    for name, runs in groups.items():
        curve = average_curve(runs, metric, timed)
        if not curve.empty:
            curves[name] = curve
    return curves


def write_curves(
    groups: Mapping[str, Sequence[StoredRun]], metric: str, title: str, path: Path, origin: str = ""
) -> bool:
    """Draws a metric of runs against epochs to a PNG; returns False if no run has a history.

    `origin` is that of `dml.runs.figures.drawing.save`.
    """
    curves = average_curves(groups, metric)
    if not curves:
        return False
    figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
    losses = {name: _loss_of(groups[name]) for name in curves}
    styles = line_styles(losses, loss_colors(losses.values()))
    plot_curves(axis, curves, EPOCH, metric, styles)
    axis.set_title(title, fontsize=11)
    save(figure, path, origin)
    return True


def _loss_of(runs: Sequence[StoredRun]) -> str:
    """Returns the name of the loss of runs of one configuration."""
    config = runs[0].config
    return "" if config is None else config.loss


def average_curve(runs: Sequence[StoredRun], column: str, timed: bool = False) -> pd.DataFrame:
    """Returns `mean`, `half` (half-width of its band) and `repeats`, by epoch or minutes.

    The curve of a repeat is the mean over its folds. All curves end where the shortest one ends.
    Minutes follow from the mean speed of each model.
    """
    histories = []
    for number, run in enumerate(runs):
        histories += [{**row, "run": number} for row in run.history]
    rows = pd.DataFrame(histories)
    if column not in rows:
        return band([], [])
    rows = rows.dropna(subset=column)
    model = ["run", "repeat", "fold"]
    rows["number"] = rows.groupby(model).cumcount()
    rows["x"] = rows.epoch
    if timed:
        seconds = pd.MultiIndex.from_frame(rows[model]).map(_seconds_per_step(runs))
        rows["x"] = rows.step * seconds / 60
    models = (rows.number == 0).sum()
    rows = rows[rows.groupby("number").x.transform("size") == models]
    by_number = rows.groupby(["number", "run", "repeat"])[["x", column]].mean().groupby("number")
    factor = 100.0 if is_score(column) else 1.0
    estimates = [Estimate(tuple(factor * values)) for _, values in by_number[column]]
    return band(by_number.x.mean(), estimates)


def _seconds_per_step(runs: Sequence[StoredRun]) -> dict[tuple[int, int, int], float]:
    """Returns the mean time of a step by model: number of the run, repeat and fold."""
    pace = {}
    for number, run in enumerate(runs):
        if run.summary is None:
            continue
        for job in run.summary.jobs:
            pace[number, job.repeat, job.fold] = (job.seconds or 0) / max(job.steps or 0, 1)
    return pace


def band(x: Sequence[float], estimates: Sequence[Estimate]) -> pd.DataFrame:
    """Returns `mean`, `half` (half-width of the band) and `repeats` of estimates, by x."""
    columns = {
        "mean": [estimate.mean for estimate in estimates],
        "half": [estimate.spread or 0.0 for estimate in estimates],
        "repeats": [estimate.n for estimate in estimates],
    }
    return pd.DataFrame(columns, index=np.asarray(x))


def plot_curves(
    axis: Axes,
    curves: Mapping[str, pd.DataFrame],
    x_label: str,
    metric: str,
    styles: Mapping[str, Style],
) -> None:
    """Draws lines with their bands; those of a score, and its axis, end at 0 and 100.

    Args:
        axis: to draw into.
        curves: name → `mean`, `half` (half-width of the band) and `repeats` by the value on the
            x axis.
        x_label: of the x axis.
        metric: on the y axis.
        styles: of the curves, by name.
    """
    alpha = 0.18 if len(curves) <= 4 else 0.08  # many bands overlap
    limits = (0.0, 100.0) if is_score(metric) else (None, None)
    for name, curve in curves.items():
        (color, dashes), mean = styles[name], curve["mean"]
        text = name if len(name) < 40 else f"{name[:39]}…"  # the table has the whole name
        axis.plot(curve.index, mean, linestyle=dashes, color=color, lw=1.7, label=text)
        points = [mean.idxmax()] if x_label in (EPOCH, MINUTES) else curve.index
        axis.plot(points, mean[points], "o", ms=4, color=color)
        low, high = (mean - curve.half).clip(*limits), (mean + curve.half).clip(*limits)
        axis.fill_between(curve.index, low, high, color=color, alpha=alpha, lw=0)
    if x_label == EPOCH:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif x_label != MINUTES:
        _scale_option(axis, curves)
    axis.set(xlabel=x_label, ylabel=value_label(metric))
    if is_score(metric):
        bottom, top = axis.get_ylim()
        axis.set_ylim(max(bottom, 0.0), min(top, 100.0))
    _add_legend(axis, curves)
    tidy(axis)


def _add_legend(axis: Axes, curves: Mapping[str, pd.DataFrame]) -> None:
    """Adds the names of the curves, and what their marks and bands are."""
    handles, _ = axis.get_legend_handles_labels()
    if axis.get_xlabel() in (EPOCH, MINUTES):
        handles.append(Line2D([], [], color=GREY, marker="o", ms=4, lw=0, label="highest"))
    bands = describe_bands(curves.values())
    if bands:
        handles.append(Patch(color=GREY, alpha=0.3, lw=0, label=bands))
    legend: dict[str, Any] = {"frameon": False, "fontsize": 9}
    if len(handles) > 4:  # beside the axes, where it would cover lines
        legend |= {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    axis.legend(handles=handles, **legend)


def describe_bands(curves: Iterable[pd.DataFrame]) -> str:
    """Returns what the bands of curves are; empty if no curve has one."""
    kinds: dict[str, None] = {}
    for curve in curves:
        repeats = curve.repeats[curve.half > 0]
        if (repeats > 2).any():
            kinds[INTERVAL] = None
        if (repeats == 2).any():
            kinds[DEVIATION] = None
    return ",\n".join(kinds)


def _scale_option(axis: Axes, curves: Mapping[str, pd.DataFrame]) -> None:
    """Makes the x axis logarithmic for several magnitudes, and linear around a value of 0."""
    x = np.concatenate([curve.index for curve in curves.values()])
    positive = x[x > 0]
    if x.min() < 0 or positive.size == 0:
        return
    if positive.max() >= LOG_RANGE * positive.min():
        axis.set_xscale("symlog", linthresh=positive.min())


def draw_figures(report: Report) -> list[Picture]:
    """Returns the pictures of a report: the comparison with the paper, then its kinds of figures.

    Rows that have not been run are not drawn. A figure that fails is left out, and a note says so.
    """
    pictures: list[Picture] = []
    metric = main_metric(report.about)
    colors = loss_colors(_loss_of(row.stored) for row in report.rows if row.stored)
    for section in report.sections:
        compare = partial(_compare_scores, section, metric, pictures)
        attempt(f"the comparison of scores in {report.about.id}", compare)
    for kind in report.about.figures:
        attempt(f"{kind} of {report.about.id}", partial(_draw_kind, report, kind, colors, pictures))
    return pictures


def _draw_kind(
    report: Report, kind: str, colors: Mapping[str, str], pictures: list[Picture]
) -> None:
    """Draws one kind of figures, for each section of a report or each of its datasets.

    Args:
        report: whose figures they are.
        kind: as `experiment.figures` names it.
        colors: loss → color, of the whole report.
        pictures: to append to.
    """
    name, _, column = kind.partition(":")
    metric = column or main_metric(report.about)
    if name in ("hyperparameter_curves", "heat_map"):
        for on, points in _points(report, metric).groupby("on", sort=False):
            if name == "heat_map":
                _heat_maps(points, metric, str(on), pictures)
            else:
                _hyperparameter_curves(points, metric, str(on), colors, pictures)
        return
    for section in report.sections:
        rows = _drawn_rows(report, section, metric)
        if not rows:
            continue
        if name in ("learning_curves", "runtime"):
            _learning_curves(section, rows, column, name == "runtime", colors, pictures)
        elif name == "relative_improvement":
            _relative_improvement(section, rows, metric, colors, pictures)
        else:
            if report.about.source is None:
                rows = _first_of_methods(rows)
            pictures += _pictures_of_runs(section, rows, name)


def _drawn_rows(report: Report, section: Section, metric: str) -> list[Row]:
    """Returns the rows of single models that have been run; in reports of no paper, best first."""
    rows = []
    for row in section.rows:
        if row.stored and row.key.evaluation != "concatenated":
            rows.append(row)
    if report.about.source is None:
        rows.sort(key=lambda row: -_mean_or_zero(row.score(metric).ours))
    return rows


def _mean_or_zero(estimate: Estimate | None) -> float:
    return 0.0 if estimate is None else estimate.mean


def _first_of_methods(rows: Sequence[Row]) -> list[Row]:
    """Returns the first row of each method, in their order."""
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row.method, row)
    return list(first.values())


def _pictures_of_runs(section: Section, rows: Sequence[Row], name: str) -> Iterator[Picture]:
    """Yields what the first run of each row has drawn."""
    for row in rows:
        path = row.stored[0].folder / "figures" / f"{name}.png"
        title = f"{name.replace('_', ' ')} of {row.name} on {section.title}"
        if path.is_file():
            yield title, data_uri(read_regular(path), "image/png")


def _compare_scores(section: Section, metric: str, pictures: list[Picture]) -> None:
    """Draws our scores and the published ones, with their 95 % intervals, where comparable."""
    names: list[str] = []
    ours: list[tuple[float, float]] = []  # mean, half-width
    published: list[tuple[float, float, float]] = []  # value, lengths to both ends of its interval
    for row in reversed(section.rows):
        score = row.score(metric)
        is_compared = score.comparison is not None and score.comparison.difference is not None
        if score.ours and score.published and is_compared:
            names.append(row.name)
            ours.append((score.ours.mean, score.ours.ci95 or 0.0))
            value = score.published.value
            low, high = score.published.interval
            published.append((value, abs(low - value), abs(high - value)))
    if not names:
        return
    title = f"{metric_name(metric)}, ours and published, with 95 % intervals: {section.title}"
    with new_picture(pictures, title) as axis:
        heights = np.arange(len(names))
        means, halves = np.transpose(ours)
        axis.errorbar(means, heights + 0.12, xerr=halves, fmt="o", label="ours")
        values, below, above = np.transpose(published)
        ends = [below, above]
        axis.errorbar(values, heights - 0.12, xerr=ends, fmt="o", mfc="none", label="published")
        axis.set_yticks(heights, names)
        axis.set(xlabel=value_label(metric), ylim=(-0.6, len(names) - 0.4))
        axis.legend(frameon=False, fontsize=9)
        tidy(axis)


def _learning_curves(
    section: Section,
    rows: Sequence[Row],
    column: str,
    timed: bool,
    colors: Mapping[str, str],
    pictures: list[Picture],
) -> None:
    """Draws the scores that selected the epoch, or a column of `history.csv`.

    The x axis has epochs, or minutes of training if `timed`. Rows after the first `CURVES` are left
    out.
    """
    config: Any = rows[0].stored[0].config
    metric = column or config.select_metric
    title = f"{metric_name(metric)} during training on {section.title}"
    if len(rows) > CURVES:
        title += f", {CURVES} of {len(rows)}"
    if timed:
        title += f" against training time on {_device_names(rows)}"
    groups = {row.name: row.stored for row in rows[:CURVES]}
    curves = average_curves(groups, metric, timed)
    if curves:
        losses = {name: _loss_of(groups[name]) for name in curves}
        styles = line_styles(losses, colors)
        with new_picture(pictures, title) as axis:
            plot_curves(axis, curves, MINUTES if timed else EPOCH, metric, styles)


def _device_names(rows: Sequence[Row]) -> str:
    devices = set()
    for row in rows:
        for run in row.stored:
            if run.summary is not None:
                devices.add(str(run.summary.device))
    return ", ".join(sorted(devices))


def _relative_improvement(
    section: Section,
    rows: Sequence[Row],
    metric: str,
    colors: Mapping[str, str],
    pictures: list[Picture],
) -> None:
    """Draws bars: how far each configuration is above the lowest one, in percent."""
    means = {}
    color_of = {}
    for row in rows:
        ours = row.score(metric).ours
        if ours is not None:
            means[row.name] = ours.mean
            color_of[row.name] = colors[_loss_of(row.stored)]
    if not means:
        return
    scores = pd.Series(means)
    above = (100 * scores / scores.min() - 100).sort_values()
    title = f"{metric_name(metric)} on {section.title} relative to {above.index[0]}, the lowest"
    with new_picture(pictures, title) as axis:
        bars = axis.barh(above.index, above, color=above.index.map(color_of), alpha=0.8)
        axis.bar_label(bars, fmt="%+.1f", padding=3, fontsize=8)
        axis.set_xlabel("relative improvement in percent")
        axis.margins(x=0.12)  # for the numbers beside the bars
        tidy(axis)


def _points(report: Report, metric: str) -> pd.DataFrame:
    """Returns the rows of a report as points: the values of the options that the cells vary.

    Of several rows with the same values, the first that follows the experiment counts.

    Returns:
        A column per option, with NaN for values that are not numbers; `on` (data and evaluation),
        `method`, `loss`, and `mean`, `half` (half-width of the band) and `repeats` of the metric.
    """
    swept = _swept_options(report)
    numbers = []
    others = []
    for row in report.rows:
        ours = row.score(metric).ours
        if ours is None:
            continue
        on = f"{row.key.data}, {row.key.evaluation}".removesuffix(", single")
        numbers.append(row.options)
        is_changed = not is_comparable(row.caveats)
        loss = _loss_of(row.stored)
        others.append((on, row.method, loss, ours.mean, ours.spread or 0.0, ours.n, is_changed))
    points = pd.DataFrame(numbers, columns=swept).apply(pd.to_numeric, errors="coerce")
    columns = [*POINT_COLUMNS, "is_changed"]
    points[columns] = pd.DataFrame(others, columns=columns)
    points = points.sort_values("is_changed", kind="stable").drop(columns="is_changed")
    return points.drop_duplicates([*swept, "on", "method"]).sort_index()


def _swept_options(report: Report) -> list[str]:
    """Returns the options that the cells vary; groups such as `loss` do not count."""
    values: dict[str, set[str]] = {}
    for cell in report.cells:
        for word in cell.overrides:
            name, _, value = word.lstrip("+").partition("=")
            values.setdefault(name, set()).add(value)
    swept = []
    for name, texts in values.items():
        is_group = "." not in name
        if len(texts) > 1 and not is_group:
            swept.append(name)
    return swept


def _varied_options(points: pd.DataFrame) -> list[str]:
    """Returns the options that vary within a method; of options that vary together, the first."""
    options = points.columns.drop(POINT_COLUMNS)
    counts = points.groupby("method")[list(options)].nunique().max()
    ranks = points[options[counts > 1]].rank(method="dense").fillna(0)
    return list(ranks.T.drop_duplicates().index)


def _hyperparameter_curves(
    points: pd.DataFrame,
    metric: str,
    on: str,
    colors: Mapping[str, str],
    pictures: list[Picture],
) -> None:
    """Draws one picture per varied option, a line per method and value of the other options.

    A line with a single point is left out if the method has longer lines, since its run belongs to
    the curves of other options. A method without the option is a horizontal line.
    """
    names = _varied_options(points)
    for name in names:
        lines = points.method.copy()
        for other in names:
            if other != name:
                text = ", " + other.rpartition(".")[2] + " " + points[other].map("{:g}".format)
                lines += text.where(points[other].notna(), "")
        curves = _option_curves(points, name, lines)
        losses = points.groupby(lines).loss.first()
        styles = line_styles({line: losses[line] for line in curves}, colors)
        title = f"{metric_name(metric)} on {on} against {name}"
        with new_picture(pictures, title) as axis:
            plot_curves(axis, curves, name, metric, styles)


def _option_curves(points: pd.DataFrame, name: str, lines: pd.Series) -> dict[str, pd.DataFrame]:
    """Returns the curve of each line against an option.

    Args:
        points: of one picture.
        name: the option.
        lines: name of the line that each point belongs to.
    """
    counts = points.groupby(lines)[name].nunique()
    longest = counts[lines].groupby(points.method.values).max()
    curves = {}
    for line, on_line in points.groupby(lines, sort=False):
        with_value = on_line.dropna(subset=name).sort_values(name)
        if with_value.empty:
            first = on_line.iloc[0]
            ends = [points[name].min(), points[name].max()]
            curves[str(line)] = pd.DataFrame(dict(first[CURVE_COLUMNS]), index=ends)
        elif counts[line] >= min(longest[on_line.method.iloc[0]], 2):
            curves[str(line)] = with_value.set_index(name)[CURVE_COLUMNS]
    return curves


def _heat_maps(points: pd.DataFrame, metric: str, on: str, pictures: list[Picture]) -> None:
    """Draws one picture per method for which exactly two options vary."""
    for method, of_method in points.groupby("method", sort=False):
        varied = _varied_options(of_method)
        if len(varied) != 2:
            continue
        table = of_method.pivot(index=varied[1], columns=varied[0], values="mean")
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
