"""The pictures of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.transforms import Bbox

from dml.runs.figures.drawing import BLUE, GREY, ORANGE, Figure, plt, tidy
from studies.comparison.agreement import Agreement
from studies.comparison.declaration import Declaration
from studies.comparison.results import Results
from studies.comparison.statistics import describe_rank, describe_verdict
from studies.pictures import save_small

WIDTH = 6.0  # inches: readable on a telephone
WIDEST = 3.0  # ratio of the widest bar that is drawn whole to the median bar
JUDGED = ("better", "worse", "equivalent", "unknown")  # verdicts that rest on the interval
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}  # a legend over no row
NAME_PLACES = (  # points right of and above a point, and the side of the text that is there
    *((4, 2, "left"), (4, -10, "left"), (-4, 2, "right"), (-4, -10, "right")),
    *((4, 12, "left"), (-4, 12, "right"), (4, -20, "left"), (-4, -20, "right")),
)
SHADES = ("0.75", "0.5", BLUE)  # of the lengths of training, the longest last


def draw_scores(ranking: pd.DataFrame, path: Path, highlighted: str = "") -> None:
    """Draws MAP@R of all arms, with the intervals of a new search.

    Arms whose searches failed are grey, and the highlighted one has a color of its own.
    """
    figure, axis = _draw_rows(len(ranking))
    rows = ranking[::-1].reset_index(drop=True)
    low, high = rows.map_at_r - rows.half, rows.map_at_r + rows.half
    colors = _choose_colors(rows).mask(rows.arm == highlighted, ORANGE)
    axis.hlines(rows.index, low, high, color=colors, lw=3, alpha=0.4)
    axis.scatter(rows.map_at_r, rows.index, color=colors, s=20, zorder=3)
    untrained = ranking.untrained.mean()
    axis.axvline(untrained, color=GREY, ls=":", label="before training")
    # The bar of an arm whose searches differ widely would make all others short: it is cut.
    is_whole = rows.half <= WIDEST * rows.half.median()
    left = min(untrained, low[is_whole].min(), rows.map_at_r.min())
    right = max(high[is_whole].max(), rows.map_at_r.max())
    border = 0.03 * (right - left)
    axis.set_xlim(left - border, right + border)
    if rows.failed.any():
        axis.scatter([], [], color=GREY, s=20, label="search failed")
    bars = "bars: 95 % of new searches"
    if not is_whole.all():
        bars += ", the widest cut at the border"
    names = []
    for row in rows.itertuples():
        names.append(f"{row.arm}  ({describe_rank(row.rank_low, row.rank_high)})")
    _name_rows(axis, names)
    axis.set_xlabel(f"MAP@R on unseen classes (%)\n{bars}\nin brackets: ranks")
    axis.legend(frameon=False, ncols=2, **ABOVE)
    save_small(figure, path)


def draw_differences(study: Declaration, ranking: pd.DataFrame, path: Path) -> None:
    """Draws the differences of all arms from the reference (a forest plot)."""
    rows = ranking[ranking.arm != study.reference][::-1].reset_index(drop=True)
    figure, axis = _draw_rows(len(rows))
    _draw_zero(study, axis)
    colors = _choose_colors(rows)
    axis.hlines(rows.index, rows.low, rows.high, color=colors, lw=2)
    axis.scatter(rows.points, rows.index, color=colors, s=20, zorder=3)
    _name_rows(axis, list(rows.arm))
    axis.set_xlabel(
        f"MAP@R minus that of {study.reference} (points)\n"
        f"simultaneous {study.confidence:.0%} intervals"
    )
    save_small(figure, path)


def draw_claims(study: Declaration, claims: pd.DataFrame, path: Path) -> None:
    """Draws the differences of the claims with their simultaneous intervals (a forest plot)."""
    rows = claims[::-1].reset_index(drop=True)
    figure, axis = _draw_rows(2 * len(rows))
    _draw_zero(study, axis)
    colors = pd.Series(GREY, rows.index).mask(rows.verdict.isin(JUDGED), BLUE)
    axis.hlines(rows.index, rows.low, rows.high, color=colors, lw=2)
    axis.scatter(rows.points, rows.index, color=colors, s=20, zorder=3)
    names = []
    for row in rows.itertuples():
        names.append(f"{row.better}\nminus {row.than}:\n{describe_verdict(row)}")
    _name_rows(axis, names)
    text = f"MAP@R (points)\nsimultaneous {study.confidence:.0%} intervals"
    if not rows.verdict.isin(JUDGED).all():
        text += ", grey: not judged"
    axis.set_xlabel(text)
    save_small(figure, path)


def draw_agreement(
    agreement: Agreement, here: str, there: str, claimed: Sequence[str], path: Path
) -> None:
    """Draws MAP@R of each arm with two datasets (their names), with the names of some arms.

    Arms whose searches failed are left out: they would press all others into a corner.
    """
    figure, axis = plt.subplots(figsize=(WIDTH, 6), layout="constrained")
    tidy(axis)
    scores = agreement.scores[~agreement.scores.has_failed]
    is_claimed = scores.index.isin(claimed)
    groups = {"arms of claims": (scores[is_claimed], BLUE), "others": (scores[~is_claimed], GREY)}
    for label, (arms, color) in groups.items():
        bars = {"xerr": arms.there_half, "yerr": arms.here_half, "elinewidth": 0.6}
        axis.errorbar(arms.there, arms.here, fmt="o", ms=4, color=color, label=label, **bars)
    note = "bars: 95 % intervals of the means"
    if agreement.scores.has_failed.any():
        note += "; without the arms whose searches failed"
    axis.set_xlabel(f"MAP@R with {there} (%)\n{note}")
    axis.set_ylabel(f"MAP@R with {here} (%)")
    axis.legend(frameon=False, ncols=2, **ABOVE)
    _write_names(axis, scores[is_claimed])
    save_small(figure, path)


def draw_curves(results: Results, arms: Sequence[str], path: Path) -> None:
    """Draws the validation scores of each arm over the steps of its training runs.

    Args:
        arms: in the order in which they are drawn.
    """
    means = results.curves.groupby(["arm", "epochs", "step"]).validation.mean()
    columns = min(3, len(arms))
    rows = -(-len(arms) // columns)
    figure = plt.figure(figsize=(WIDTH, 1 + 1.3 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis in axes.flat[len(arms) :]:
        axis.axis("off")
    for axis, arm in zip(axes.flat, arms, strict=False):
        tidy(axis)
        lengths = means[arm].groupby("epochs")
        for (_, curve), shade in zip(lengths, SHADES[-len(lengths) :], strict=False):
            curve = curve.droplevel("epochs")
            axis.axhline(curve.iloc[0], color=GREY, ls=":", lw=1)  # before training
            curve = curve[curve.index > 0]
            axis.plot(curve.index, curve.values, "o-", ms=2, color=shade)
        axis.set_xscale("log")
        axis.set_title(arm, fontsize=9)
    # All axes share those of the first.
    _label_steps(axes.flat[0], means.index.get_level_values("step"))
    for axis in axes.flat[len(arms) - columns : len(arms)]:  # the lowest of each column
        axis.tick_params("x", labelbottom=True, labelsize=9)
    figure.supxlabel(
        "step (logarithmic), means over the searches\n"
        "blue: the longest training, grey: shorter, dotted: before training",
        fontsize=10,
    )
    figure.supylabel("validation MAP@R (%)", fontsize=10)
    save_small(figure, path)


def _label_steps(axis: Axes, steps: pd.Index) -> None:
    """Labels a logarithmic axis of steps with few and whole numbers, such as 300 and 1000."""
    is_wide = steps.max() > 100 * steps[steps > 0].min()
    axis.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 3)))
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.xaxis.set_minor_locator(NullLocator())


def _write_names(axis: Axes, scores: pd.DataFrame) -> None:
    """Writes the names of arms beside their points, where no other name is."""
    figure = axis.figure
    figure.canvas.draw()  # the layout, which decides where texts overlap
    written: list[Bbox] = []
    for arm, row in scores.iterrows():
        for x, y, side in NAME_PLACES:
            text = axis.annotate(
                str(arm), (row.there, row.here), (x, y), textcoords="offset points", ha=side, size=9
            )
            box = text.get_window_extent()
            if box.count_overlaps(written) == 0:
                break
            text.remove()
        else:
            continue  # no room: a name over another could not be read
        written.append(box)


def _choose_colors(ranking: pd.DataFrame) -> pd.Series:
    """Returns a color for each arm: grey if its searches failed."""
    return pd.Series(BLUE, ranking.index).mask(ranking.failed, GREY)


def _draw_rows(count: int) -> tuple[Figure, Axes]:
    """Returns a figure for rows with names, and its axis."""
    figure, axis = plt.subplots(figsize=(WIDTH, 1.4 + 0.26 * count), layout="constrained")
    tidy(axis)
    return figure, axis


def _name_rows(axis: Axes, names: Sequence[str]) -> None:
    """Writes the names of the rows, from below, with half a row of room at both ends."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(-0.5, len(names) - 0.5)


def _draw_zero(study: Declaration, axis: Axes) -> None:
    axis.axvline(0, color=GREY, lw=0.8)
    if study.margin is not None:
        label = f"within ±{study.margin:g} points"
        axis.axvspan(-study.margin, study.margin, color=GREY, alpha=0.15, label=label)
        axis.legend(frameon=False, **ABOVE)
