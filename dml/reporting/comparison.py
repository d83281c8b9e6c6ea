"""Our estimate beside the printed number: difference, overlap of intervals, Welch's test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dml.core.statistics import Estimate, welch
from dml.reporting.caveats import Caveat
from dml.reporting.published_results import PublishedResult

TIMES = ("epoch_seconds", "ms_per_batch")
TOLERANCE = 1e-9  # 26.4 + 0.2 is not quite 26.6 in binary


class Verdict(StrEnum):
    """How ours stands to the printed number."""

    OVERLAP = "intervals overlap"
    ABOVE = "ours is above"
    BELOW = "ours is below"
    ONE_RUN = "one run, no interval"
    NOT_COMPARED = "not compared"

    @property
    def symbol(self) -> str:
        """For tables."""
        return {"OVERLAP": "≈", "ABOVE": "▲", "BELOW": "▼", "ONE_RUN": "·"}.get(self.name, "✕")


@dataclass(frozen=True)
class Comparison:
    """Ours against a printed number.

    Attributes:
        printed: the number.
        verdict: how ours stands to it.
        difference: ours − printed; None where the two must not be compared.
        p_value: Welch's test against the printed mean, where the paper says enough.
    """

    printed: PublishedResult
    verdict: Verdict
    difference: float | None = None
    p_value: float | None = None


def compare(
    ours: Estimate, printed: PublishedResult, marks: Sequence[Caveat], metric: str
) -> Comparison:
    """Puts an estimate beside a printed number.

    Intervals are those of 95 %: ours by Student's t, the printed one by
    `PublishedResult.interval`.

    Args:
        ours: in the unit of the print (percent for scores).
        printed: the number.
        marks: of the row; one that blocks leaves the two uncompared.
        metric: times are not compared, since the device decides them.
    """
    if metric in TIMES or any(mark.blocks for mark in marks):
        return Comparison(printed, Verdict.NOT_COMPARED)
    difference = ours.mean - printed.value
    p_value = welch(ours.moments, printed.moments)
    if ours.ci95 is None:
        return Comparison(printed, Verdict.ONE_RUN, difference, p_value)
    low, high = printed.interval
    if ours.mean - ours.ci95 > high + TOLERANCE:
        verdict = Verdict.ABOVE
    elif ours.mean + ours.ci95 < low - TOLERANCE:
        verdict = Verdict.BELOW
    else:
        verdict = Verdict.OVERLAP
    return Comparison(printed, verdict, difference, p_value)
