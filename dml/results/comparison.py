"""Comparison of our estimate with a published result: difference, intervals, Welch's test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dml.core.statistics import Estimate, welch
from dml.results.caveats import Caveat, blocks_comparison
from dml.results.published_results import PublishedResult

TIMES = ("epoch_seconds", "ms_per_batch")
TOLERANCE = 1e-9  # 26.4 + 0.2 is not quite 26.6 in binary


class Verdict(StrEnum):
    """Outcome of a comparison."""

    OVERLAP = "intervals overlap"
    ABOVE = "ours is above"
    BELOW = "ours is below"
    ONE_RUN = "one run, no interval"
    NOT_COMPARED = "not compared"

    @property
    def symbol(self) -> str:
        """Sign shown in tables."""
        return {"OVERLAP": "≈", "ABOVE": "▲", "BELOW": "▼", "ONE_RUN": "·"}.get(self.name, "✕")


@dataclass(frozen=True)
class Comparison:
    """Our estimate against a published result.

    Attributes:
        verdict: outcome.
        difference: ours − published; None where the two must not be compared.
        p_value: of Welch's test against the published mean, where the paper says enough.
    """

    verdict: Verdict
    difference: float | None = None
    p_value: float | None = None


def compare(
    ours: Estimate, published: PublishedResult, caveats: Sequence[Caveat], metric: str
) -> Comparison:
    """Compares an estimate with a published result by their 95 % intervals.

    Ours is Student's t-interval, the published one `PublishedResult.interval`.

    Args:
        ours: in the unit of the paper (percent for scores).
        published: the result.
        caveats: of the row; one that blocks leaves the two uncompared.
        metric: times are not compared, since they depend on the device.
    """
    if metric in TIMES or blocks_comparison(caveats):
        return Comparison(Verdict.NOT_COMPARED)
    difference = ours.mean - published.value
    p_value = welch(ours.moments, published.moments)
    if ours.ci95 is None:
        return Comparison(Verdict.ONE_RUN, difference, p_value)
    low, high = published.interval
    if ours.mean - ours.ci95 > high + TOLERANCE:
        verdict = Verdict.ABOVE
    elif ours.mean + ours.ci95 < low - TOLERANCE:
        verdict = Verdict.BELOW
    else:
        verdict = Verdict.OVERLAP
    return Comparison(verdict, difference, p_value)
