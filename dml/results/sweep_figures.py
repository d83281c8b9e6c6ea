"""Scores against the options that an experiment varies: curves of one, heat maps of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dml.core.statistics import Estimate
from dml.results.picture import (
    PERCENT,
    Picture,
    add_legend,
    describe_spread,
    draw_picture,
    keep_percent,
    line_style,
)
from dml.results.rows import Row
from dml.runs.console import is_score, title

LOG_RANGE = 50  # an axis is logarithmic if its largest value is this many times the smallest


def swept_axes(rows: Sequence[Row], candidates: Sequence[str]) -> list[str]:
    """Returns the numeric options that vary among rows of the same method.

    Args:
        rows: that have been run.
        candidates: options to check, in order; of two that vary together, the first counts.
    """
    found: dict[str, tuple[int | None, ...]] = {}
    for name in candidates:
        values = [_option(row, name) for row in rows]
        levels = sorted({value for value in values if value is not None})
        ranks = tuple(None if value is None else levels.index(value) for value in values)
        methods: dict[str, set[float]] = {}
        for row, value in zip(rows, values, strict=True):
            if value is not None:
                methods.setdefault(row.key.method, set()).add(value)
        if any(len(own) > 1 for own in methods.values()) and ranks not in found.values():
            found[name] = ranks
    return list(found)


def hyperparameter_curves(
    rows: Sequence[Row], candidates: Sequence[str], metric: str
) -> Iterator[Picture]:
    """Yields one picture per dataset and varied option, a line per method, with 95 % intervals."""
    for data, own in _by_data(rows, metric):
        names = swept_axes(own, candidates)
        for name in names:
            lines, flat = _lines(own, name, [other for other in names if other != name], metric)
            best = max((e.mean, x, line) for line, p in lines.items() for x, e in p)
            repeats = [e.n for p in lines.values() for _, e in p]
            yield draw_picture(
                partial(_draw_lines, lines=lines, flat=flat, option=name, label=_label(metric)),
                f"{title(metric)} on {data} against {name}{describe_spread('whiskers', repeats)}",
                f"{title(metric)} on {data} against {name}: {len(lines)} lines, the highest value "
                f"{best[0]:.3g} at {best[1]:g} ({best[2]}).",
            )


def _lines(
    rows: Sequence[Row], name: str, others: Sequence[str], metric: str
) -> tuple[dict[str, list[tuple[float, Estimate]]], dict[str, Estimate]]:
    """Returns the points of each line, and the level of each method without the option."""
    lines: dict[str, list[tuple[float, Estimate]]] = {}
    flat: dict[str, Estimate] = {}
    for row in rows:
        at = [(other.rpartition(".")[2], _option(row, other)) for other in others]
        known = [f"{short} {value:g}" for short, value in at if value is not None]
        line = ", ".join([row.key.method, *known])
        ours, x = row.numbers[metric].ours, _option(row, name)
        if ours is not None and x is not None:
            lines.setdefault(line, []).append((x, ours))
        elif ours is not None:
            flat[line] = ours
    return {line: sorted(p, key=lambda one: one[0]) for line, p in lines.items()}, flat


def heat_maps(rows: Sequence[Row], candidates: Sequence[str], metric: str) -> Iterator[Picture]:
    """Yields one picture per dataset and method for which exactly two options vary."""
    for data, of_data in _by_data(rows, metric):
        for method in dict.fromkeys(row.key.method for row in of_data):
            own = [row for row in of_data if row.key.method == method]
            names = swept_axes(own, candidates)
            if len(names) != 2:
                continue
            values: dict[tuple[float, float], float] = {}
            for row in own:
                ours = row.numbers[metric].ours
                x, y = _option(row, names[0]), _option(row, names[1])
                if ours is not None and x is not None and y is not None:
                    values[x, y] = ours.mean
            best = max(values, key=lambda at: values[at])
            yield draw_picture(
                partial(_draw_map, values=values, names=names, label=_label(metric)),
                f"{title(metric)} of {method} on {data} over {names[0]} and {names[1]}",
                f"Heat map of {title(metric)} of {method} on {data}: {len(values)} cells, the "
                f"highest {values[best]:.3g} at {names[0]} {best[0]:g}, {names[1]} {best[1]:g}.",
                height=4.4,
            )


def _by_data(rows: Sequence[Row], metric: str) -> Iterator[tuple[str, list[Row]]]:
    """Yields the rows that have been run, by dataset and evaluation."""
    run = [row for row in rows if row.group is not None and row.numbers[metric].ours]
    for data, evaluation in dict.fromkeys((row.key.data, row.key.evaluation) for row in run):
        name = data if evaluation == "single" else f"{data}, {evaluation}"
        yield name, [r for r in run if (r.key.data, r.key.evaluation) == (data, evaluation)]


def _option(row: Row, name: str) -> float | None:
    """Returns the value of a numeric option; None for any other."""
    value = None if row.group is None else row.group.options.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _label(metric: str) -> str:
    return f"{title(metric)}{PERCENT}" if is_score(metric) else title(metric).replace("_", " ")


def _draw_lines(
    figure: Figure,
    lines: Mapping[str, Sequence[tuple[float, Estimate]]],
    flat: Mapping[str, Estimate],
    option: str,
    label: str,
) -> None:
    axis = figure.subplots()
    for number, (name, points) in enumerate(lines.items()):
        x = [at for at, _ in points]
        y = [one.mean for _, one in points]
        half = [one.spread or 0.0 for _, one in points]
        axis.errorbar(
            x, y, half, label=name, marker="o", ms=4, lw=1.6, capsize=3, **line_style(number)
        )
    for number, (name, level) in enumerate(flat.items(), start=len(lines)):
        axis.axhline(level.mean, label=name, lw=1.2, **line_style(number))
    _set_scale(axis, [x for points in lines.values() for x, _ in points])
    axis.set_xlabel(option)
    axis.set_ylabel(label)
    if label.endswith(PERCENT):
        keep_percent(axis)
    add_legend(axis, [*lines, *flat])


def _set_scale(axis: Axes, x: Sequence[float]) -> None:
    """Makes the axis logarithmic for values of several magnitudes, linear around a value of 0."""
    positive = [value for value in x if value > 0]
    if not positive or min(x) < 0 or max(positive) < LOG_RANGE * min(positive):
        return
    if len(positive) == len(x):
        axis.set_xscale("log")
    else:
        axis.set_xscale("symlog", linthresh=min(positive))


def _draw_map(
    figure: Figure,
    values: Mapping[tuple[float, float], float],
    names: Sequence[str],
    label: str,
) -> None:
    x, y = (sorted({at[side] for at in values}) for side in (0, 1))
    table = np.full((len(y), len(x)), np.nan)
    for at, value in values.items():
        table[y.index(at[1]), x.index(at[0])] = value
    axis = figure.subplots()
    axis.grid(False)
    image = axis.imshow(table, origin="lower", aspect="auto", cmap="viridis")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            ink = "white" if value <= middle else "black"
            axis.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink, fontsize=8)
    axis.set_xticks(range(len(x)), [f"{value:g}" for value in x])
    axis.set_yticks(range(len(y)), [f"{value:g}" for value in y])
    axis.set_xlabel(names[0])
    axis.set_ylabel(names[1])
    figure.colorbar(image, label=label)
