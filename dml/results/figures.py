"""Figures of a report, by the kinds that an experiment names in `experiment.figures`.

Kinds drawn from numbers: `learning_curves` (scores against epochs; `learning_curves:<column>` of
`history.csv`), `runtime` (scores against minutes of training), `hyperparameter_curves` (scores
against each varied option) and `heat_map` (scores over two varied options). Every other kind is a
picture that runs have drawn: `figures/<kind>.png` of their folders (neighbors, embedding_map,
stages, proxies, search_history, …).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label
from dml.results.curves import (
    EPOCH,
    MINUTES,
    Picture,
    average_curve,
    band,
    data_uri,
    draw_curves,
    draw_picture,
    value_label,
)
from dml.results.report import Report, Row, swept_options


def draw_figures(report: Report) -> list[Picture]:
    """Returns the pictures in the order of the report's kinds; none for what has not been run."""
    return [one for kind in report.about.figures for one in _draw_kind(kind, report)]


def _draw_kind(kind: str, report: Report) -> Iterator[Picture]:
    name, _, column = kind.partition(":")
    metric = column or next(filter(is_score, report.about.metrics), report.about.metrics[0])
    if name in ("learning_curves", "runtime"):
        yield from _learning_curves(report, column, name == "runtime")
    elif name in ("hyperparameter_curves", "heat_map"):
        swept = swept_options(report.cells)
        draw = _heat_maps if name == "heat_map" else _hyperparameter_curves
        points = pd.DataFrame(
            [_point(row, swept, metric) for row in report.rows if metric in row.ours]
        )
        for on, own in points.groupby("on", sort=False) if len(points) else ():
            yield from draw(own, swept, metric, str(on))
    else:
        scored = [row for row in report.rows if row.stored and metric in row.ours]
        scored.sort(key=lambda row: row.ours[metric].mean)
        # of own runs, which may be many, the best of each method and table
        best = {row.key: row.stored[0].folder for row in scored}.values()
        for of, on, row in _name_rows(report):
            folder = row.stored[0].folder
            path, title = (
                folder / "figures" / f"{name}.png",
                f"{name.replace('_', ' ')} of {of} on {on}",
            )
            if path.exists() and (report.about.source or folder in best):
                yield Picture(title, title, data_uri(path.read_bytes(), "image/png"))


def _name_rows(report: Report) -> list[tuple[str, str, Row]]:
    """Returns name, data and row of each configuration in the order of the report.

    The name is the row's, with backbone and embedding size where it alone is not distinct; the data
    have their protocol where there are several.
    """
    by_run = {row.stored[0].folder: row for row in reversed(report.rows) if row.stored}
    rows = list(reversed(by_run.values()))
    counts = Counter((row.key.data, row.key.protocol, row.name) for row in rows)
    several = max(counts.values(), default=0) > 1
    configs: list[Any] = [row.stored[0].config for row in rows]
    data = Counter(name for name, _ in {(one.data, one.protocol) for one in configs})
    return [
        (
            f"{row.name}, {row.key.backbone} {row.key.dim}-d" if several else row.name,
            f"{one.data}, {one.protocol}" if data[one.data] > 1 else one.data,
            row,
        )
        for row, one in zip(rows, configs, strict=True)
    ]


def _learning_curves(report: Report, column: str, timed: bool) -> Iterator[Picture]:
    """Yields a picture per dataset and protocol, whose scores are of different images.

    Args:
        report: its runs.
        column: of `history.csv`; empty for the metric that selected the epoch.
        timed: against minutes of training instead of epochs.
    """
    rows = _name_rows(report)
    for on in dict.fromkeys(on for _, on, _ in rows):
        own = {name: row.stored for name, other, row in rows if other == on}
        config: Any = next(iter(own.values()))[0].config
        metric = column or config.select_metric
        found = {name: average_curve(runs, metric, timed) for name, runs in own.items()}
        curves = {name: curve for name, curve in found.items() if not curve.empty}
        devices = {str(r.summary.device) for runs in own.values() for r in runs if r.summary}
        title = f"during training on {on}"
        if timed:
            title += f" against training time on {', '.join(sorted(devices))}"
        if curves:
            yield draw_curves(curves, MINUTES if timed else EPOCH, metric, title)


def _point(row: Row, options: Sequence[str], metric: str) -> dict[str, Any]:
    """Returns data and evaluation, method, estimate and numeric options of a row."""
    on = row.key.data + ("" if row.key.evaluation == "single" else f", {row.key.evaluation}")
    values = {name: pd.to_numeric(row.options.get(name), errors="coerce") for name in options}
    return {"on": on, "method": row.key.method, "ours": row.ours[metric], **values}


def _varied_options(points: pd.DataFrame, options: Sequence[str]) -> list[str]:
    """Returns the options that vary within a method; of two that vary together, the first."""
    found: dict[tuple[float, ...], str] = {}
    for name in options:
        ranks = tuple(points[name].rank(method="dense").fillna(0))
        if points.groupby("method")[name].nunique().max() > 1:
            found.setdefault(ranks, name)
    return list(found.values())


def _hyperparameter_curves(
    points: pd.DataFrame, options: Sequence[str], metric: str, on: str
) -> Iterator[Picture]:
    """Yields one picture per varied option, a line per method and value of the other options."""
    names = _varied_options(points, options)
    for name in names:
        lines = points.method.copy()
        for other in (other for other in names if other != name):
            text = ", " + other.rpartition(".")[2] + " " + points[other].map("{:g}".format)
            lines += text.where(points[other].notna(), "")
        ends = [points[name].min(), points[name].max()]
        curves = {}
        for line, own in points.groupby(lines, sort=False):
            at = own.dropna(subset=name).sort_values(name)
            if at.empty:  # a method without the option is level
                curves[str(line)] = band(ends, [own.ours.iloc[0]] * 2)
            else:
                curves[str(line)] = band(at[name], list(at.ours))
        yield draw_curves(curves, name, metric, f"on {on} against {name}")


def _heat_maps(
    points: pd.DataFrame, options: Sequence[str], metric: str, on: str
) -> Iterator[Picture]:
    """Yields one picture per method for which exactly two options vary."""
    points = points.assign(mean=[one.mean for one in points.ours])
    for method, own in points.groupby("method", sort=False):
        if len(varied := _varied_options(own, options)) == 2:
            table = own.pivot_table(index=varied[1], columns=varied[0], values="mean")
            title = f"{metric_label(metric)} of {method} on {on} over {' and '.join(varied)}"
            best = own.loc[own["mean"].idxmax()]
            values = ", ".join(f"{best[name]:g}" for name in varied)
            alt = f"Heat map of {title}: the highest is {best['mean']:.3g} at {values}."
            draw = partial(_plot_heat_map, table=table, label=value_label(metric))
            yield draw_picture(draw, title, alt)


def _plot_heat_map(figure: Figure, table: pd.DataFrame, label: str) -> None:
    axis = figure.subplots()
    axis.grid(False)
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
