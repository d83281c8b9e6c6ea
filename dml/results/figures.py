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
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label
from dml.results.curves import (
    SPREAD,
    NamedRuns,
    Picture,
    add_labels,
    draw_picture,
    learning_curves,
    line_style,
    load_picture,
    name_places,
    value_label,
)
from dml.results.report import Report, Row, swept_options

LOG_RANGE = 50  # an axis is logarithmic if its largest value is this many times the smallest


def draw_figures(report: Report) -> list[Picture]:
    """Returns the pictures in the order of the report's kinds; none for what has not been run."""
    return [one for kind in report.about.figures for one in _draw_kind(kind, report)]


def _draw_kind(kind: str, report: Report) -> Iterator[Picture]:
    name, _, column = kind.partition(":")
    metric = column or next(filter(is_score, report.about.metrics), report.about.metrics[0])
    rows = _name_rows(report)
    groups: list[NamedRuns] = [(of, row.stored) for of, row in rows]
    if name in ("learning_curves", "runtime"):
        yield from learning_curves(groups, column or None, timed=name == "runtime")
    elif name in ("hyperparameter_curves", "heat_map"):
        swept = swept_options(report.cells)
        draw = heat_maps if name == "heat_map" else hyperparameter_curves
        for place, points in _points(report.rows, swept, metric):
            yield from draw(points, swept_axes(points, swept), metric, place)
    else:
        scored = [row for row in report.rows if row.stored and metric in row.ours]
        scored.sort(key=lambda row: row.ours[metric].mean)
        # of own runs, which may be many, the best of each method and table
        best = {row.key: row.stored[0].folder for row in scored}.values()
        for (of, row), place in zip(rows, name_places(groups), strict=True):
            path = row.stored[0].folder / "figures" / f"{name}.png"
            if path.exists() and (report.of_paper or row.stored[0].folder in best):
                yield load_picture(path, f"{name.replace('_', ' ')} of {of} on {place}")


def _name_rows(report: Report) -> list[tuple[str, Row]]:
    """Returns a row per configuration in the order of the report, with distinct names.

    The name is the row's, with backbone and embedding size where it alone is not distinct.
    """
    by_run = {row.stored[0].folder: row for row in reversed(report.rows) if row.stored}
    rows = list(reversed(by_run.values()))
    counts = Counter((row.key.data, row.key.protocol, row.name) for row in rows)
    several = max(counts.values(), default=0) > 1
    return [
        (f"{row.name}, {row.key.backbone} {row.key.dim}-d" if several else row.name, row)
        for row in rows
    ]


def _points(
    rows: Sequence[Row], options: list[str], metric: str
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields `method`, `mean`, `half` and numeric options of the rows that have been run.

    One table for each dataset and evaluation.
    """
    found = []
    for row in rows:
        if ours := row.ours.get(metric):
            place = row.key.data
            place += "" if row.key.evaluation == "single" else f", {row.key.evaluation}"
            point = {"place": place, "method": row.key.method, "mean": ours.mean}
            point |= {name: row.options.get(name) for name in options}
            found.append({**point, "half": ours.spread or 0.0})
    if found:
        points = pd.DataFrame(found)
        points[options] = points[options].apply(pd.to_numeric, errors="coerce")
        for place, own in points.groupby("place", sort=False):
            yield str(place), own


def swept_axes(points: pd.DataFrame, options: Sequence[str]) -> list[str]:
    """Returns the options that vary within a method; of two that vary together, the first."""
    found: dict[tuple[float, ...], str] = {}
    for name in options:
        ranks = tuple(points[name].rank(method="dense").fillna(0))
        if points.groupby("method")[name].nunique().max() > 1:
            found.setdefault(ranks, name)
    return list(found.values())


def hyperparameter_curves(
    points: pd.DataFrame, names: Sequence[str], metric: str, place: str
) -> Iterator[Picture]:
    """Yields one picture per varied option, a line per method and value of the other options."""
    for name in names:
        lines = points.method.copy()
        for other in (other for other in names if other != name):
            text = ", " + other.rpartition(".")[2] + " " + points[other].map("{:g}".format)
            lines += text.where(points[other].notna(), "")

        def draw(figure: Figure, name: str = name, lines: pd.Series = lines) -> None:
            axis = figure.subplots()
            for number, (line, own) in enumerate(points.groupby(lines, sort=False)):
                look, at = {"label": line, **line_style(number)}, own.dropna(subset=name)
                if at.empty:  # a method without the option
                    axis.axhline(own["mean"].iloc[0], lw=1.2, **look)
                    continue
                at = at.sort_values(name)
                axis.errorbar(at[name], at["mean"], at.half, fmt="o", ms=4, capsize=3, **look)
            _set_scale(axis, points[name].dropna())
            add_labels(axis, name, metric)

        best = points.loc[points["mean"].idxmax()]
        title = f"{metric_label(metric)} on {place} against {name}"
        about = f"the highest is {best['mean']:.3g} at {best[name]:g} ({best.method})"
        yield draw_picture(draw, f"{title}; {SPREAD}", f"{title}: {about}.")


def _set_scale(axis: Any, x: pd.Series) -> None:
    """Makes the axis logarithmic for values of several magnitudes, linear around a value of 0."""
    positive = x[x > 0]
    if x.min() >= 0 and positive.max() >= LOG_RANGE * positive.min():
        linear = {} if len(positive) == len(x) else {"linthresh": positive.min()}
        axis.set_xscale("symlog" if linear else "log", **linear)


def heat_maps(
    points: pd.DataFrame, names: Sequence[str], metric: str, place: str
) -> Iterator[Picture]:
    """Yields one picture per method for which exactly two options vary."""
    for method, own in points.groupby("method", sort=False):
        if len(varied := swept_axes(own, names)) != 2:
            continue
        table = own.pivot_table(index=varied[1], columns=varied[0], values="mean")

        def draw(figure: Figure, table: pd.DataFrame = table) -> None:
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
            axis.set_xlabel(str(table.columns.name))
            axis.set_ylabel(str(table.index.name))
            figure.colorbar(image, label=value_label(metric))

        best = own.loc[own["mean"].idxmax()]
        title = f"{metric_label(metric)} of {method} on {place} over {' and '.join(varied)}"
        about = ", ".join(f"{best[name]:g}" for name in varied)
        yield draw_picture(
            draw, title, f"Heat map of {title}: the highest is {best['mean']:.3g} at {about}.", 4.4
        )
