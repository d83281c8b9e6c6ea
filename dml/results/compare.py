"""Comparison of rows: caveats, verdicts against published results, tests of pairs of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from dml.core.statistics import Estimate, holm, welch
from dml.results.frame import differing_options, format_option
from dml.results.published import PublishedResult, ResultKey, published_significance

TIMES = ("epoch_seconds", "ms_per_batch")
TOLERANCE = 1e-9  # 26.4 + 0.2 is not quite 26.6 in binary
BUDGET = (
    *("protocol.epochs", "protocol.steps_per_epoch", "protocol.stopping", "search", "space"),
    *("protocol.evaluate_every", "protocol.evaluate_unit"),
)
MARKS = {  # letter in tables: meaning
    "S": "stand-in data",
    "B": "budget of epochs, steps or search trials differs",
    "O": "other options differ from the experiment's",
    "R": "fewer repeats than in the paper",
    "N": "read with care",
}
BLOCKING = ("S", "B", "O")  # marks that rule out the comparison with published results
VERDICTS = {  # outcome of a comparison: its sign in tables, its meaning
    "overlap": ("≈", "intervals overlap"),
    "above": ("▲", "ours is above"),
    "below": ("▼", "ours is below"),
    "one_run": ("·", "one run, no interval"),
    "not_compared": ("✕", "not compared"),
}
MAX_OPTIONS = 6  # options that a caveat names; the others are counted
LEVEL = 0.05
MAX_ROWS = 16  # a larger table of tests is not readable


@dataclass(frozen=True)
class Caveat:
    """A reason not to compare a row with published results, or to read it with care.

    Attributes:
        mark: a key of `MARKS`.
        detail: the options that differ and their values, or what else is known.
    """

    mark: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{MARKS[self.mark]}: {self.detail}" if self.detail else MARKS[self.mark]


def list_caveats(
    rows: pd.DataFrame, cell_options: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Iterator[Caveat]:
    """Yields the caveats of runs of one configuration.

    Args:
        rows: of the runs.
        cell_options: of the experiment's cell that they belong to; None if there is none.
        options: of the runs.
    """
    if rows.stand_in.iloc[0]:
        yield Caveat("S")
    if cell_options is not None:
        yield from option_caveats(options, cell_options)
    summaries = [run.summary for run in rows.drop_duplicates("folder").run]
    revisions = sorted({str(one.git_revision or "unknown") for one in summaries})
    if any(revision.endswith("+") or revision == "unknown" for revision in revisions):
        yield Caveat("N", f"code with uncommitted changes: {', '.join(revisions)}")
    names = ("git_revision", "versions", "device", "precision")
    mixed = [n for n in names if any(getattr(s, n) != getattr(summaries[0], n) for s in summaries)]
    if mixed:
        yield Caveat("N", f"runs of this row differ in {', '.join(mixed)}")


def option_caveats(options: Mapping[str, Any], cell_options: Mapping[str, Any]) -> Iterator[Caveat]:
    """Yields a caveat per kind of option in which runs differ from their cell."""
    changes: dict[str, list[str]] = {"B": [], "O": []}
    for name in differing_options([options, cell_options]):
        value, expected = (format_option(of.get(name)) for of in (options, cell_options))
        mark = "B" if any(f"{name}.".startswith(f"{one}.") for one in BUDGET) else "O"
        changes[mark].append(f"{name}={value} instead of {expected}")
    for mark, texts in changes.items():
        more = f" and {len(texts) - MAX_OPTIONS} more" if len(texts) > MAX_OPTIONS else ""
        if texts:
            yield Caveat(mark, ", ".join(texts[:MAX_OPTIONS]) + more)


def result_caveats(repeats: int, published: PublishedResult | None) -> Iterator[Caveat]:
    """Yields what a reader must know of a published result beside our number of `repeats`."""
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
    difference = ours.mean - published.value
    p_value = welch(ours.moments, published.moments)
    if ours.ci95 is None:
        return Comparison("one_run", difference, p_value)
    low, high = published.interval
    if ours.mean - ours.ci95 > high + TOLERANCE:
        verdict = "above"
    elif ours.mean + ours.ci95 < low - TOLERANCE:
        verdict = "below"
    else:
        verdict = "overlap"
    return Comparison(verdict, difference, p_value)


@dataclass(frozen=True)
class PairTest:
    """Welch's test of one row against another.

    Attributes:
        higher: whether the mean of the first row is higher.
        p_value: of the test.
        corrected: p-value corrected by Holm over all pairs of the family.
        paper: the paper's mark of the first method against the second, if it has one.
    """

    higher: bool
    p_value: float
    corrected: float
    paper: str

    @property
    def differs(self) -> bool:
        """True if the difference is significant after correction."""
        return self.corrected <= LEVEL

    @property
    def symbol(self) -> str:
        """▲ the first is higher, ▼ lower, · no significant difference; the paper's in brackets."""
        marks = {"better": " (▲)", "worse": " (▼)", "no difference": " (·)"}
        ours = ("▲" if self.higher else "▼") if self.differs else "·"
        return ours + marks.get(self.paper, "")


def pair_tests(
    samples: Sequence[Estimate], keys: Sequence[ResultKey], metric: str, source: str | None
) -> dict[tuple[int, int], PairTest]:
    """Returns the tests of all pairs of rows, in both directions, by the rows' positions.

    Args:
        samples, keys: of the rows.
        metric: to test.
        source: the paper whose marks are shown beside ours; None for runs of no paper.
    """
    pairs = combinations(range(len(samples)), 2)
    p_values = {(a, b): welch(samples[a].moments, samples[b].moments) for a, b in pairs}
    known = {pair: p for pair, p in p_values.items() if p is not None}
    tests: dict[tuple[int, int], PairTest] = {}
    for (pair, p), corrected in zip(known.items(), holm(list(known.values())), strict=True):
        for a, b in (pair, pair[::-1]):
            mark = ""
            if source and not keys[b].setting:
                mark = published_significance(keys[a], keys[b].method, metric, source)
            tests[a, b] = PairTest(samples[a].mean > samples[b].mean, p, corrected, mark)
    return tests
