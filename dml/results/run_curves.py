"""One picture with the learning curves of several runs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from dml.core.metric_names import metric_label
from dml.results.option_columns import group_key, option_columns
from dml.results.run_list import ListedRun
from dml.runs.folder.run_folder import RunFolder

MAX_LABELS = 16  # a longer legend covers the picture


@dataclass(frozen=True)
class LearningCurve:
    """Scores of one run during training, mean over its models.

    Attributes:
        name: in the legend.
        group: equal for runs that differ only in seed, which share color and name.
        epochs: of the evaluations that all models have.
        values: in percent, one per epoch.
    """

    name: str
    group: object
    epochs: tuple[float, ...]
    values: tuple[float, ...]


def read_curves(runs: Sequence[ListedRun]) -> list[LearningCurve]:
    """Returns the curve of each run that has one, named by the options in which they differ."""
    names = name_runs(runs)
    curves = []
    for run, name in zip(runs, names, strict=True):
        epochs, values = _read_scores(RunFolder(run.folder).history, run.metric)
        if epochs:
            curves.append(LearningCurve(name, group_key(run), epochs, values))
    return curves


def name_runs(runs: Sequence[ListedRun]) -> list[str]:
    """Returns a short name for each run: its `name=`, or the options in which the runs differ."""
    columns = option_columns(runs)
    names = []
    for place, run in enumerate(runs):
        cells = {title: column[place] for title, column in columns.items() if column[place]}
        groups = [cell for title, cell in cells.items() if title in run.labels]
        options = [f"{title}={cell}" for title, cell in cells.items() if title not in run.labels]
        described = ", ".join(groups + options)
        names.append(run.labels.get("name") or described or run.labels.get("loss", run.id))
    return names


def _read_scores(history: Path, metric: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    try:
        text = history.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return (), ()
    found: dict[float, list[float]] = {}
    models = set()
    for row in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()):
        if row.get(metric) and row.get("epoch"):
            models.add((row["repeat"], row["fold"]))
            found.setdefault(float(row["epoch"]), []).append(float(row[metric]))
    whole = {epoch: fmean(v) for epoch, v in sorted(found.items()) if len(v) == len(models)}
    return tuple(whole), tuple(100 * value for value in whole.values())


def draw_curves(curves: Sequence[LearningCurve], selected_by: str, title: str, path: Path) -> None:
    """Draws score against epoch: a color per group of seeds, a dot at each best evaluation.

    Args:
        curves: at least one.
        selected_by: metric and classes of the scores: `map_at_r on test`.
        title: of the picture.
        path: PNG to write.
    """
    from matplotlib.ticker import MaxNLocator  # late, as below: lists draw nothing

    from dml.runs.figures.drawing import COLORS, GREY, plt, save, tidy

    figure, axis = plt.subplots(figsize=(8, 4.8), layout="constrained")
    groups = list(dict.fromkeys(curve.group for curve in curves))
    labelled = set()
    dashes = ("-", "--", ":", "-.")
    for curve in curves:
        number = groups.index(curve.group)
        best = max(range(len(curve.values)), key=lambda place: curve.values[place])
        label = None if curve.group in labelled else curve.name
        labelled.add(curve.group)
        color = COLORS[number % len(COLORS)]
        style = dashes[number // len(COLORS) % len(dashes)]
        axis.plot(curve.epochs, curve.values, style, color=color, lw=1.7, label=label)
        axis.plot(curve.epochs[best], curve.values[best], "o", color=color, ms=5)
    starts = [curve.values[0] for curve in curves if curve.epochs[0] == 0]
    if starts and max(starts) - min(starts) < 1:
        axis.axhline(fmean(starts), color=GREY, lw=1, ls="--", zorder=1, label="untrained")
    metric, _, classes = selected_by.partition(" on ")
    axis.set_xlabel("epoch")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel(f"{metric_label(metric)} on {classes or 'test'} images, in percent")
    axis.set_ylim(bottom=0)
    axis.set_title(title, fontsize=11)
    tidy(axis)
    if len(groups) <= MAX_LABELS:
        beside: dict[str, Any] = (
            {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(groups) > 4 else {}
        )
        axis.legend(frameon=False, fontsize=9, **beside)
    save(figure, path)
