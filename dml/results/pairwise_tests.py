"""Significance of differences between methods: Welch's tests of all pairs, corrected by Holm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from dml.core.statistics import holm, welch
from dml.results.published_results import published_significance
from dml.results.rows import Row

LEVEL = 0.05
MAX_ROWS = 16  # a larger table of tests is not readable

# Options that must be equal in two rows for a fair test, beside the key of their section.
CONDITIONS = (
    "backbone.weights",
    "data.label_noise",
    "protocol.name",
    "protocol.epochs",
    "protocol.steps_per_epoch",
    "protocol.select_metric",
    "search.trials",
)


@dataclass(frozen=True)
class PairTest:
    """Test of one row against another.

    Attributes:
        higher: whether the mean of the first row is higher.
        p_value: of Welch's test.
        corrected: p-value corrected by Holm over all pairs of the family.
        paper: the paper's mark of the first method against the second, if it has one.
    """

    higher: bool
    p_value: float
    corrected: float
    paper: str | None

    @property
    def differs(self) -> bool:
        """True if the difference is significant after correction."""
        return self.corrected <= LEVEL

    @property
    def symbol(self) -> str:
        """▲ the first is higher, ▼ lower, · no significant difference."""
        return ("▲" if self.higher else "▼") if self.differs else "·"

    @property
    def paper_symbol(self) -> str:
        """The paper's mark in the same signs; empty if it has none."""
        symbols = {"better": "▲", "worse": "▼", "no difference": "·"}
        return symbols[self.paper] if self.paper else ""


@dataclass(frozen=True)
class Family:
    """Tests of all pairs of rows under equal conditions.

    Attributes:
        metric: the tested metric.
        rows: at least two.
        tests: by the positions of both rows, in both directions.
    """

    metric: str
    rows: tuple[Row, ...]
    tests: dict[tuple[int, int], PairTest]

    @property
    def shows_differences(self) -> bool:
        """True if any pair differs significantly, or the paper has marks to compare with."""
        return any(test.differs or test.paper for test in self.tests.values())


def build_families(rows: Sequence[Row], metric: str, source: str | None) -> list[Family]:
    """Returns the tests among rows of one section, a family per set of equal conditions.

    Runs of no paper are one family: conditions in which they differ are columns of their table.

    Args:
        rows: of the same data, backbone, embedding size, protocol and evaluation.
        metric: to test.
        source: the paper whose marks are shown beside ours; None for runs of no paper.
    """
    conditions = CONDITIONS if source else ()
    by_conditions: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        number = row.numbers.get(metric)
        if row.group is not None and number and number.ours and number.ours.n > 1:
            key = tuple(str(row.group.options.get(name)) for name in conditions)
            by_conditions.setdefault(key, []).append(row)
    return [
        _test_family(same, metric, source)
        for same in by_conditions.values()
        if 2 <= len(same) <= MAX_ROWS
    ]


def _test_family(rows: Sequence[Row], metric: str, source: str | None) -> Family:
    ours = [number.ours for row in rows if (number := row.numbers[metric]).ours]
    pairs = combinations(range(len(rows)), 2)
    p_values = {(a, b): welch(ours[a].moments, ours[b].moments) for a, b in pairs}
    known = {pair: p for pair, p in p_values.items() if p is not None}
    tests: dict[tuple[int, int], PairTest] = {}
    for (pair, p), corrected in zip(known.items(), holm(list(known.values())), strict=True):
        for a, b in (pair, pair[::-1]):
            mark = None
            if source and not rows[b].key.setting:
                mark = published_significance(rows[a].key, rows[b].key.method, metric, source)
            tests[a, b] = PairTest(ours[a].mean > ours[b].mean, p, corrected, mark)
    return Family(metric, tuple(rows), tests)
