"""Positivity of mixed embeddings against λ, as a picture and a CSV file (metrix, Figure 2)."""

from __future__ import annotations

import math
from pathlib import Path

from dml.core.atomic_io import write_text
from dml.methods.metrix.analysis import Positivity, measure_positivity
from dml.runs.figures.drawing import BLUE, ORANGE, plt, save
from dml.runs.job import JobRun


def draw_model_positivity(model: JobRun, path: Path, epochs: int = 1) -> None:
    """Draws the positivity of a model as it is; a CSV file with the same numbers lies beside it.

    Raises:
        UserError: its loss has no generic form with positives and negatives.
    """
    model.embedder.eval()
    curve = measure_positivity(model.method.loss, model.embedder, model.batches(epochs))  # type: ignore[arg-type]
    write_positivity(curve, path.with_suffix(".csv"))
    draw_positivity(curve, path)


def write_positivity(curve: Positivity, path: Path) -> None:
    """Writes a CSV file with the columns lambda (middle of the interval), measured, predicted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bins = len(curve.measured)
    predicted = [math.nan] * bins if curve.predicted is None else curve.predicted.tolist()
    lines = ["lambda,measured,predicted"]
    for number, values in enumerate(zip(curve.measured.tolist(), predicted, strict=True)):
        lines.append(f"{(number + 0.5) / bins:g},{values[0]:.6g},{values[1]:.6g}")
    write_text(path, "\n".join([*lines, ""]))


def draw_positivity(curve: Positivity, path: Path) -> None:
    """Draws both curves against λ into a PNG file."""
    bins = len(curve.measured)
    middles = [(number + 0.5) / bins for number in range(bins)]
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.plot(middles, curve.measured.tolist(), "o-", color=BLUE, label="measured")
    if curve.predicted is not None:
        axes.plot(middles, curve.predicted.tolist(), "s--", color=ORANGE, label="predicted")
    axes.set(xlabel="λ", ylabel="share of mixes that act as positives", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    save(figure, path)
