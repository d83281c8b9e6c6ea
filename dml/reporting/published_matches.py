"""Which printed number each cell of an experiment is compared with, and what stays without one.

Nothing is left over in silence: a printed row that no experiment runs has its reason in
`results/out_of_scope.csv`, a cell that no paper has printed in `results/not_printed.csv`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from dml.reporting.published_results import (
    PublishedResult,
    ResultKey,
    fitting,
    printed_rows,
    read_table,
)
from dml.reporting.rows import Cell, Source, cell_facts

Line = Mapping[str, str]  # of a table of printed results: column → text


@dataclass(frozen=True)
class Pair:
    """One cell under one way of evaluation, with the printed numbers that fit it.

    Attributes:
        experiment: its id.
        cell: of it.
        facts: what its numbers are measured on.
        numbers: metric → printed numbers that fit, the one that counts first; metrics that the
            paper does not print are left out.
    """

    experiment: str
    cell: Cell
    facts: ResultKey
    numbers: Mapping[str, Sequence[PublishedResult]]

    @property
    def reason(self) -> str | None:
        """Why no number is printed for it; None if one is, or nobody has said."""
        if self.numbers:
            return None
        own = {
            "experiment": self.experiment,
            "data": self.facts.data,
            "method": self.facts.method,
            "evaluation": self.facts.evaluation,
        }
        return _reason("not_printed.csv", own)


def pairs(experiment: str, cells: Iterable[Cell], source: Source) -> Iterator[Pair]:
    """The cells of an experiment that compares with tables of a paper; none of any other."""
    if source.source is None or not source.tables:
        return
    for cell in cells:
        for facts in cell_facts(cell):
            found = {
                metric: fitting(facts, metric, source.source, source.tables)
                for metric in source.metrics
            }
            yield Pair(experiment, cell, facts, {name: all for name, all in found.items() if all})


def without_cell(found: Iterable[Pair]) -> list[tuple[Line, str | None]]:
    """Printed rows that no pair has, each with its reason; None where nobody has said one."""
    taken = {one.line for pair in found for numbers in pair.numbers.values() for one in numbers}
    left = [row for row in printed_rows() if int(row["line"]) not in taken]
    return [(row, _reason("out_of_scope.csv", row)) for row in left]


def _reason(table: str, row: Line) -> str | None:
    """That of the first line whose columns all agree; an empty column says nothing."""
    for line in _reasons(table):
        if all(value in ("", row[key]) for key, value in line.items() if key != "reason"):
            return line["reason"]
    return None


@cache
def _reasons(table: str) -> tuple[Line, ...]:
    return tuple(read_table(table))
