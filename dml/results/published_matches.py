"""Matches of experiment cells with published results, and the reasons for what has no match.

A published result that no experiment runs has its reason in `published/out_of_scope.csv`, a cell that
no paper prints in `published/not_printed.csv`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from dml.config.schema import ExperimentConfig
from dml.results.catalog import Cell
from dml.results.published_results import (
    PublishedResult,
    ResultKey,
    find_results,
    read_table,
    result_rows,
)
from dml.results.rows import cell_keys

TableRow = Mapping[str, str]  # of `published/*.csv`: column → text


@dataclass(frozen=True)
class CellMatch:
    """One cell under one evaluation, with the published results that match it.

    Attributes:
        experiment: id of the experiment.
        cell: its cell.
        key: what the cell's numbers are measured on.
        results: metric → matching results, the one that counts first; only metrics with results.
    """

    experiment: str
    cell: Cell
    key: ResultKey
    results: Mapping[str, Sequence[PublishedResult]]

    @property
    def reason(self) -> str | None:
        """Reason why no result is published; None if one is, or no reason is on file."""
        if self.results:
            return None
        columns = {
            "experiment": self.experiment,
            "data": self.key.data,
            "method": self.key.method,
            "evaluation": self.key.evaluation,
        }
        return _find_reason("not_printed.csv", columns)


def match_cells(about: ExperimentConfig, cells: Iterable[Cell]) -> Iterator[CellMatch]:
    """Yields the matches of an experiment's cells; none if it names no table of a paper."""
    if about.source is None or not about.tables:
        return
    for cell in cells:
        for key in cell_keys(cell):
            found = {
                metric: find_results(key, metric, about.source, about.tables)
                for metric in about.metrics
            }
            results = {metric: some for metric, some in found.items() if some}
            yield CellMatch(about.id, cell, key, results)


def unmatched_results(matches: Iterable[CellMatch]) -> list[tuple[TableRow, str | None]]:
    """Returns the published results without a match, each with its reason or None."""
    matched = {one.line for match in matches for some in match.results.values() for one in some}
    rest = [row for row in result_rows() if int(row["line"]) not in matched]
    return [(row, _find_reason("out_of_scope.csv", row)) for row in rest]


def _find_reason(table: str, row: TableRow) -> str | None:
    """Returns the reason of the first line whose columns all agree; empty columns match all."""
    for line in _read_reasons(table):
        if all(value in ("", row[key]) for key, value in line.items() if key != "reason"):
            return line["reason"]
    return None


@cache
def _read_reasons(table: str) -> tuple[TableRow, ...]:
    return tuple(read_table(table))
