"""Which methods differ from which: Welch's tests of all pairs, corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from dml.core.statistics import holm, welch
from dml.reporting.published_results import significance
from dml.reporting.rows import Row

LEVEL = 0.05
MOST_ROWS = 16  # more make a table that nobody reads

# What must be equal in two rows for a test between them to be fair, beside their section's facts.
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
class Test:
    """One pair.

    Attributes:
        higher: whether the first row's mean is the higher one.
        p_value, corrected: of Welch's test, alone and by Holm over all pairs of the family.
        paper: the paper's own mark for the first against the second, if it has one.
    """

    higher: bool
    p_value: float
    corrected: float
    paper: str | None

    @property
    def differs(self) -> bool:
        """Whether the difference is significant after correction."""
        return self.corrected <= LEVEL

    @property
    def symbol(self) -> str:
        """▲ the first is higher, ▼ lower, · no significant difference."""
        return ("▲" if self.higher else "▼") if self.differs else "·"


@dataclass(frozen=True)
class Family:
    """All pairs of rows under the same conditions.

    Attributes:
        metric: that is tested.
        rows: at least two.
        tests: by the places of both rows, in both directions.
    """

    metric: str
    rows: tuple[Row, ...]
    tests: dict[tuple[int, int], Test]


def families(rows: Sequence[Row], metric: str, source: str | None) -> list[Family]:
    """The tests among rows of one section, those of equal conditions together.

    Args:
        rows: of the same data, backbone, embedding size, protocol and evaluation.
        metric: to test.
        source: the paper whose marks are shown beside ours.
    """
    together: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        number = row.numbers.get(metric)
        if row.group is not None and number and number.ours and number.ours.n > 1:
            key = tuple(str(row.group.options.get(name)) for name in CONDITIONS)
            together.setdefault(key, []).append(row)
    return [
        _family(same, metric, source) for same in together.values() if 2 <= len(same) <= MOST_ROWS
    ]


def _family(rows: Sequence[Row], metric: str, source: str | None) -> Family:
    ours = [number.ours for row in rows if (number := row.numbers[metric]).ours]
    pairs = list(combinations(range(len(rows)), 2))
    found = {(a, b): welch(ours[a].moments, ours[b].moments) for a, b in pairs}
    tested = {pair: p for pair, p in found.items() if p is not None}
    tests: dict[tuple[int, int], Test] = {}
    for (pair, p), corrected in zip(tested.items(), holm(list(tested.values())), strict=True):
        for a, b in (pair, pair[::-1]):
            mark = None
            if source and not rows[b].facts.setting:
                mark = significance(rows[a].facts, rows[b].facts.method, metric, source)
            tests[a, b] = Test(ours[a].mean > ours[b].mean, p, corrected, mark)
    return Family(metric, tuple(rows), tests)
