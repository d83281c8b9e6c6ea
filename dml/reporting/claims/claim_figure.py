"""Picture of a claims page: learning curves with bands, and differences with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from dml.core.statistics import Estimate
from dml.reporting.claims.claim_tests import ClaimTest
from dml.reporting.claims.seed_results import CurvePoint
from dml.runs.figures.drawing import BLUE, COLORS, GREEN, GREY, RED, plt, save, tidy

STEPS = "steps_to_95"
STYLES = ("-", "--", ":")
VERDICT_COLORS = {"holds": GREEN, "does not hold": RED, "undecided": GREY, "not tested": GREY}
MEASURES = {
    "map_at_r": "MAP@R",
    "recall_at_1": "Recall@1",
    "steps_to_95": "steps to 95 % of the best",
}


def draw_claims(curves: Sequence[CurvePoint], tests: Sequence[ClaimTest], path: Path) -> None:
    """Draws one picture: MAP@R on test classes against steps, and the tested differences.

    Args:
        curves: evaluations of all arms.
        tests: a panel each for scores and for steps.
        path: PNG to write.
    """
    groups = [[one for one in tests if (one.measure == STEPS) == steps] for steps in (False, True)]
    panels = [group for group in groups if group]
    heights = [4.2, *(0.6 + 0.3 * len(group) for group in panels)]
    figure = plt.figure(figsize=(8, sum(heights)), layout="constrained")
    # Each with axes of its own width: the labels of differences are long.
    first, *others = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _draw_curves(first.subplots(), curves)
    for part, group in zip(others, panels, strict=True):
        _draw_differences(part.subplots(), group)
        unit = "steps fewer" if group[0].measure == STEPS else "percentage points more"
        about = f"{unit} (mean and 95 % interval; right of zero: as claimed)"
        part.supxlabel(about, fontsize=9)  # may be wider than the axes
    save(figure, path)


def _draw_curves(axis: Axes, curves: Sequence[CurvePoint]) -> None:
    for number, arm in enumerate(dict.fromkeys(point.arm for point in curves)):
        own = [point for point in curves if point.arm == arm]
        steps = sorted({point.step for point in own})
        found = [Estimate(tuple(p.test for p in own if p.step == step)) for step in steps]
        means = [one.mean for one in found]
        color, style = COLORS[number % len(COLORS)], STYLES[number // len(COLORS)]
        axis.plot(steps, means, color=color, ls=style, lw=1.6, label=arm)
        low = [one.mean - (one.half_width or 0.0) for one in found]
        high = [one.mean + (one.half_width or 0.0) for one in found]
        axis.fill_between(steps, low, high, color=color, alpha=0.15, lw=0)
    axis.set_xlabel("step")
    axis.set_ylabel("MAP@R on test classes, percent")
    axis.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    tidy(axis)


def _draw_differences(axis: Axes, tests: Sequence[ClaimTest]) -> None:
    axis.axvline(0, color=BLUE, lw=0.8)
    for place, one in enumerate(reversed(tests)):
        color = VERDICT_COLORS[one.verdict]
        half = one.difference.half_width
        axis.errorbar(one.difference.mean, place, xerr=half, fmt="o", color=color, capsize=3, ms=5)
    labels = [f"{one.claim.short}, {MEASURES[one.measure]}" for one in reversed(tests)]
    labels = [label.replace(", relative", ",\nrelative") for label in labels]
    axis.set_yticks(range(len(tests)), labels, fontsize=8.5)
    axis.set_ylim(-0.7, len(tests) - 0.3)
    tidy(axis)
