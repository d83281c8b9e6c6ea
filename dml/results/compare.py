"""Comparison of rows: caveats, verdicts against published results, tests of pairs of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from dml.core.option_values import has_seen_classes
from dml.core.statistics import Estimate, holm, welch
from dml.results.frame import IMAGES, Runs, describe_differences, join_some
from dml.results.published import PublishedResult, ResultKey, published_significance
from dml.runs.folder.stored_run import Summary

TIMES = ("epoch_seconds", "ms_per_batch")
TOLERANCE = 1e-9  # 26.4 + 0.2 is not quite 26.6 in binary
BUDGET = (
    "protocol.epochs.",
    "protocol.steps_per_epoch.",
    "protocol.stopping.",
    "search.",
    "space.",
    "protocol.evaluate_every.",
    "protocol.evaluate_unit.",
)
SAME_IN_ROW = ("git_revision", "versions", "device", "precision")  # of summaries
MARKS = {  # letter in tables: meaning
    "S": "stand-in data",
    "C": "classes seen in training, where the paper tests unseen ones",
    "B": "budget of epochs, steps or search trials differs",
    "O": "other options differ from the experiment's",
    "R": "fewer repeats than in the paper",
    "N": "note, see the HTML page",
}
BLOCKING = ("S", "C", "B", "O")  # marks that rule out the comparison with published results
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
        meaning = MARKS[self.mark]
        return f"{meaning}: {self.detail}" if self.detail else meaning


def list_caveats(
    runs: Runs,
    options: Mapping[str, Any],
    planned: Mapping[str, Any] | None,
    source: str | None,
) -> list[Caveat]:
    """Returns the caveats of runs of one configuration.

    Args:
        runs: of one configuration.
        options: of the runs.
        planned: options of the experiment's cell that they belong to; None without a cell.
        source: the paper of the experiment; None for runs of no paper, which may be on any data.
    """
    caveats = []
    is_of_paper = source is not None
    is_stand_in = is_of_paper and runs.table.stand_in.iloc[0]
    if is_stand_in:
        caveats.append(Caveat("S"))
    if is_of_paper and has_seen_classes(options.get("protocol.splits")):
        caveats.append(Caveat("C"))
    if planned is not None:
        caveats += _option_caveats(options, planned)
    caveats += _code_caveats([run.summary for run in runs.distinct if run.summary])
    # of stand-in data, the first caveat says enough
    if planned is None and is_of_paper and not is_stand_in:
        caveats.append(Caveat("O", "not part of the experiment"))
    return caveats


def _option_caveats(options: Mapping[str, Any], planned: Mapping[str, Any]) -> Iterator[Caveat]:
    """Yields the options that differ from the planned ones, those of the budget first."""
    texts: dict[str, list[str]] = {"B": [], "O": []}
    if IMAGES in options:
        texts["O"].append(f"{options[IMAGES]} images, and others in runs with the same options")
    for name, text in describe_differences(options, planned).items():
        if name == IMAGES:
            continue
        mark = "B" if f"{name}.".startswith(BUDGET) else "O"
        texts[mark].append(text)
    for mark, differing in texts.items():
        if differing:
            yield Caveat(mark, join_some(differing))


def _code_caveats(summaries: Sequence[Summary]) -> Iterator[Caveat]:
    """Yields notes on runs of changed code, and on runs that differ in code or machine."""
    revisions = sorted({str(summary.git_revision or "unknown") for summary in summaries})
    if any(revision.endswith("+") or revision == "unknown" for revision in revisions):
        yield Caveat("N", f"code with uncommitted changes: {', '.join(revisions)}")
    mixed = []
    for name in SAME_IN_ROW:
        values = [getattr(summary, name) for summary in summaries]
        if values.count(values[0]) < len(values):
            mixed.append(name)
    if mixed:
        yield Caveat("N", f"runs of this row differ in {', '.join(mixed)}")


def result_caveats(repeats: int, published: PublishedResult | None) -> Iterator[Caveat]:
    """Yields the caveats of a comparison of a published result with `repeats` of ours."""
    if published is None:
        return
    if published.runs and 0 < repeats < published.runs:
        yield Caveat("R", f"{repeats} instead of {published.runs}")
    if published.origin != "own":
        notes = {"quoted": "is quoted", "unclear": "may not be the authors' own run"}
        yield Caveat("N", f"the published result {notes[published.origin]}")


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
        caveats: of the row; with any of `BLOCKING` the two are not compared.
        metric: times are not compared, since they depend on the device.
    """
    if metric in TIMES or not is_comparable(caveats):
        return Comparison("not_compared")
    low, high = published.interval
    half = ours.ci95
    verdict = "overlap"
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
    """Returns Welch's test of every pair of samples, once for each of the two.

    Args:
        samples: the configuration of each row, and its estimate.
        metric: the metric to test.
        source: the paper whose significance marks are shown next to ours; None without a paper.

    Returns:
        Columns `row` and `other` (positions of the samples), `p_value`, `corrected` by Holm over
        all pairs, and the outcome for the first, `ours` and `paper` (keys of `VERDICTS`).
    """
    pairs = []
    p_values = []
    for first, second in combinations(range(len(samples)), 2):
        p_value = welch(samples[first][1].moments, samples[second][1].moments)
        if p_value is not None:
            pairs.append((first, second))
            p_values.append(p_value)
    tests = []
    for pair, p_value, corrected in zip(pairs, p_values, holm(p_values), strict=True):
        for row, other in (pair, pair[::-1]):
            (key, ours), (against, theirs) = samples[row], samples[other]
            outcome = "overlap"
            if corrected <= LEVEL:
                outcome = "above" if ours.mean > theirs.mean else "below"
            paper = published_significance(key, against, metric, source or "")
            tests.append((row, other, p_value, corrected, outcome, paper))
    columns = ["row", "other", "p_value", "corrected", "ours", "paper"]
    return pd.DataFrame(tests, columns=columns)
