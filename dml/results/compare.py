"""Comparison of rows: caveats, verdicts against published results, tests of pairs of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from dml.core.statistics import Estimate, holm, welch
from dml.results.frame import differing_options, format_option, join_some
from dml.results.published import PublishedResult, ResultKey, published_significance

TIMES = ("epoch_seconds", "ms_per_batch")
TOLERANCE = 1e-9  # 26.4 + 0.2 is not quite 26.6 in binary
BUDGET = (
    *("protocol.epochs.", "protocol.steps_per_epoch.", "protocol.stopping.", "search.", "space."),
    *("protocol.evaluate_every.", "protocol.evaluate_unit."),
)
MARKS = {  # letter in tables: meaning
    "S": "stand-in data",
    "B": "budget of epochs, steps or search trials differs",
    "O": "other options differ from the experiment's",
    "R": "fewer repeats than in the paper",
    "N": "note, see the HTML page",
}
BLOCKING = ("S", "B", "O")  # marks that rule out the comparison with published results
VERDICTS = {  # outcome of a comparison: its sign in tables, its meaning
    "overlap": ("≈", "intervals overlap"),
    "above": ("▲", "ours is above"),
    "below": ("▼", "ours is below"),
    "one_run": ("·", "one run, no interval"),
    "not_compared": ("✕", "not compared"),
}
LEVEL = 0.05
MAX_ROWS = 16  # a larger table of tests is not readable


@dataclass(frozen=True)
class Caveat:
    """A reason not to compare a row with published results, or a note on the comparison.

    Attributes:
        mark: a key of `MARKS`.
        detail: the options that differ and their values, or what else is known.
    """

    mark: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{MARKS[self.mark]}: {self.detail}" if self.detail else MARKS[self.mark]


def list_caveats(
    rows: pd.DataFrame,
    options: Mapping[str, Any],
    planned: Mapping[str, Any] | None,
    source: str | None,
) -> list[Caveat]:
    """Returns the caveats of runs of one configuration.

    Args:
        rows: of the runs.
        options: of the runs.
        planned: options of the experiment's cell that they belong to; None without a cell.
        source: the paper of the experiment; without one nothing is compared with stand-in data.
    """
    stand_in = source is not None and rows.stand_in.iloc[0]
    caveats = [Caveat("S")] if stand_in else []
    texts: dict[str, list[str]] = {"B": [], "O": []}
    expected = options if planned is None else planned
    for name in differing_options([options, expected]):
        value, usual = (format_option(of.get(name)) for of in (options, expected))
        mark = "B" if f"{name}.".startswith(BUDGET) else "O"
        texts[mark].append(f"{name}={value} instead of {usual}")
    caveats += [Caveat(mark, join_some(some)) for mark, some in texts.items() if some]
    summaries = [run.summary for run in rows.drop_duplicates("folder").run]
    revisions = sorted({str(one.git_revision or "unknown") for one in summaries})
    if any(revision.endswith("+") or revision == "unknown" for revision in revisions):
        caveats.append(Caveat("N", f"code with uncommitted changes: {', '.join(revisions)}"))
    names = ("git_revision", "versions", "device", "precision")
    mixed = [n for n in names if any(getattr(s, n) != getattr(summaries[0], n) for s in summaries)]
    if mixed:
        caveats.append(Caveat("N", f"runs of this row differ in {', '.join(mixed)}"))
    if planned is None and source and not stand_in:
        caveats.append(Caveat("O", "not part of the experiment"))
    return caveats


def result_caveats(repeats: int, published: PublishedResult | None) -> Iterator[Caveat]:
    """Yields caveats of a published result, given our number of `repeats`."""
    if published and published.runs and 0 < repeats < published.runs:
        yield Caveat("R", f"{repeats} instead of {published.runs}")
    if published and published.origin != "own":
        who = {"quoted": "is quoted", "unclear": "may not be the authors' own run"}
        yield Caveat("N", f"the published result {who[published.origin]}")


def is_comparable(caveats: Sequence[Caveat]) -> bool:
    """Returns whether a row with these caveats may be compared with published results."""
    return not any(caveat.mark in BLOCKING for caveat in caveats)


@dataclass(frozen=True)
class Comparison:
    """Our estimate against a published result.

    Attributes:
        verdict: a key of `VERDICTS`.
        difference: ours − published; None where the two must not be compared.
        p_value: of Welch's test against the published mean, where the paper says enough.
    """

    verdict: str
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
    if metric in TIMES or not is_comparable(caveats):
        return Comparison("not_compared")
    low, high = published.interval
    half, verdict = ours.ci95, "overlap"
    if half is None:
        verdict = "one_run"
    elif ours.mean - half > high + TOLERANCE:
        verdict = "above"
    elif ours.mean + half < low - TOLERANCE:
        verdict = "below"
    p_value = welch(ours.moments, published.moments)
    return Comparison(verdict, ours.mean - published.value, p_value)


def pair_tests(
    samples: Sequence[tuple[ResultKey, Estimate]], metric: str, source: str | None
) -> pd.DataFrame:
    """Returns Welch's tests of all pairs of samples, in both directions.

    Args:
        samples: the configuration of each row, and its estimate.
        metric: the metric to test.
        source: the paper whose significance marks are shown next to ours; None without a paper.

    Returns:
        Columns `row` and `other` (positions of the samples), `p_value`, `corrected` by Holm over
        all pairs, and the outcome for the first, `ours` and `paper` (keys of `VERDICTS`).
    """
    pairs = [
        (a, b, p_value)
        for a, b in combinations(range(len(samples)), 2)
        if (p_value := welch(samples[a][1].moments, samples[b][1].moments)) is not None
    ]
    tests = []
    for (a, b, p_value), corrected in zip(pairs, holm([p for *_, p in pairs]), strict=True):
        for row, other in ((a, b), (b, a)):
            (key, ours), (against, theirs) = samples[row], samples[other]
            outcome = "above" if ours.mean > theirs.mean else "below"
            outcome = outcome if corrected <= LEVEL else "overlap"
            paper = published_significance(key, against, metric, source or "")
            tests.append((row, other, p_value, corrected, outcome, paper))
    columns = ["row", "other", "p_value", "corrected", "ours", "paper"]
    return pd.DataFrame(tests, columns=columns)
