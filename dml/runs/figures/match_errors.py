"""The picture of verification: false non-matches against false matches, and the thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from dml.core.metric_names import THRESHOLD, metric_label
from dml.core.option_values import EXTRA_METRICS
from dml.core.plotting import plt
from dml.retrieval import match_error_curve, match_errors_at
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.figures.drawing import BLUE, COLORS, ORANGE, save, tidy

MATCH_ERRORS = "match_errors.png"  # name of the file


def thresholds_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the thresholds among metrics, by the label of theirs (`FNMR@FMR 0.01`)."""
    thresholds = {}
    for name, value in metrics.items():
        measure = name.removesuffix(THRESHOLD)
        if measure != name and measure in EXTRA_METRICS:
            thresholds[metric_label(measure)] = value
    return thresholds


def draw_match_errors(
    embeddings: SplitEmbeddings,
    thresholds: Mapping[str, float],
    title: str,
    path: Path,
    origin: str = "",
) -> None:
    """Draws FNMR against FMR, and both against the threshold, in percent.

    Args:
        embeddings: of the images that are scored.
        thresholds: label → distance, which are marked.
        title: of the picture.
        path: PNG to write.
        origin: see `save`.
    """
    points = embeddings.as_one_set()
    curve = match_error_curve(*points)
    marked = match_errors_at(*points, [*thresholds.values()])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    left.plot(100 * curve.fmr, 100 * curve.fnmr, color=BLUE, lw=1.6)
    right.plot(curve.thresholds, 100 * curve.fmr, color=ORANGE, lw=1.6, label="FMR")
    right.plot(curve.thresholds, 100 * curve.fnmr, color=BLUE, lw=1.6, label="FNMR")
    for color, label, errors in zip(COLORS[2:], thresholds, marked, strict=False):
        text = f"{label}: distance {errors.threshold:.4g}"
        left.plot(100 * errors.fmr, 100 * errors.fnmr, "o", color=color, label=text)
        right.axvline(errors.threshold, color=color, lw=1, ls="--")
    smallest = curve.fmr[curve.fmr > 0].min().item()
    left.set_xscale("symlog", linthresh=100 * smallest)  # zero matches have a point too
    ticks = _decades(100 * smallest)
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    left.set(title=title, xlabel="FMR, percent", ylabel="FNMR, percent")
    right.set(
        title="a pair matches below the threshold", xlabel="threshold (distance)", ylabel="percent"
    )
    for axis in (left, right):
        axis.legend()
        tidy(axis)
    save(figure, path, origin)


def _decades(smallest: float) -> list[float]:
    """Returns 0 and the powers of ten that are not too near to it, up to 100, for an axis."""
    lowest = math.ceil(math.log10(3 * smallest))
    return [0.0] + [10.0**power for power in range(lowest, 3)]
