"""Rows of a report: cells of an experiment with their runs, published results and caveats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dml.config.schema import ExperimentConfig
from dml.core.statistics import Estimate
from dml.reporting.catalog import Cell
from dml.reporting.caveats import (
    Caveat,
    CaveatKind,
    blocks_comparison,
    list_caveats,
    origin_caveats,
    repeat_caveats,
)
from dml.reporting.comparison import TIMES, Comparison, compare
from dml.reporting.finished_runs import comparable_options
from dml.reporting.option_texts import differing_options
from dml.reporting.published_results import PublishedResult, ResultKey, find_results
from dml.reporting.run_groups import RunGroup, label_rows
from dml.runs.folder.summary import protocol_id, result_id
from dml.runs.protocol import FOLDS


@dataclass(frozen=True)
class Number:
    """One metric of a row: our estimate, the published result, and their comparison."""

    ours: Estimate | None = None
    published: PublishedResult | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Row:
    """One method under one setting.

    Attributes:
        key: what it was, or would be, measured on.
        label: what distinguishes it from rows of the same key.
        group: its runs; None if it has not been run.
        cell: cell of the experiment; None for runs that belong to none.
        caveats: see `dml.reporting.caveats`.
        numbers: by metric.
        title: name of the method where it is not that of `key`.
    """

    key: ResultKey
    label: str
    group: RunGroup | None
    cell: Cell | None
    caveats: tuple[Caveat, ...]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    title: str = ""

    @property
    def method(self) -> str:
        """Name of the method in tables and figures."""
        return self.title or self.key.method

    @property
    def name(self) -> str:
        """Method and label."""
        return f"{self.method} ({self.label})" if self.label else self.method

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that decide the result, except seed and repeats; empty without runs."""
        return {} if self.group is None else self.group.options


def build_rows(
    groups: Sequence[RunGroup], cells: Sequence[Cell], about: ExperimentConfig
) -> list[Row]:
    """Returns the rows of the cells in their order, run or not, then of runs that fit no cell."""
    options = [comparable_options(cell.config) for cell in cells]
    places = [_closest_cell(group, cells, options) for group in groups]
    rows: list[tuple[Row, Mapping[str, Any]]] = []
    for number, cell in enumerate(cells):
        own = [group for group, place in zip(groups, places, strict=True) if place == number]
        for group in own:
            rows += _group_rows(group, cell, list_caveats(group, options[number]))
        if not own:
            rows += [(Row(key, "", None, cell, ()), options[number]) for key in cell_keys(cell)]
    others = [group for group, place in zip(groups, places, strict=True) if place is None]
    for group in sorted(others, key=_sort_key(cells)):
        caveats = list_caveats(group, None, about.source is not None)
        rows += _group_rows(group, None, caveats, group.method if about.source is None else "")
    labels = label_rows([(row.key, own) for row, own in rows], swept_options(cells))
    return [
        _with_numbers(replace(row, label=label), about)
        for (row, _), label in zip(rows, labels, strict=True)
    ]


def missing_cells(rows: Iterable[Row]) -> list[Cell]:
    """Returns the cells without a run that follows the experiment, in their order."""
    cells: dict[int, Cell] = {}
    run: set[int] = set()
    for row in rows:
        if row.cell is not None:
            cells[id(row.cell)] = row.cell
            if row.group is not None and not blocks_comparison(row.caveats):
                run.add(id(row.cell))
    return [cell for key, cell in cells.items() if key not in run]


def swept_options(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Returns the dotted names of the options (not groups of options) that cells vary."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for override in cell.overrides:
            name, _, value = override.lstrip("+").partition("=")
            values.setdefault(name, set()).add(value)
    return tuple(name for name, found in values.items() if len(found) > 1 and "." in name)


def cell_keys(cell: Cell) -> Iterator[ResultKey]:
    """Yields what a cell's numbers will be measured on, one key per evaluation."""
    cfg = cell.config
    several = FOLDS[cfg.protocol.splits] > 1
    for evaluation in ("separated", "concatenated") if several else ("single",):
        yield ResultKey(
            data=cfg.data.name,
            backbone=cfg.backbone.name,
            dim=cfg.embedder.size,
            protocol=protocol_id(cfg),  # type: ignore[arg-type]  # reads attributes only
            evaluation=evaluation,
            method=result_id(cfg),  # type: ignore[arg-type]
            setting=cfg.experiment.get("setting") or "",
        )


def _closest_cell(
    group: RunGroup, cells: Sequence[Cell], options: Sequence[Mapping[str, Any]]
) -> int | None:
    """Returns the cell of the same data, method and setting that differs in the fewest options."""
    own = group.key("")
    distances = []
    for number, cell in enumerate(cells):
        key = next(cell_keys(cell))
        if (key.data, key.method, key.setting) == (own.data, own.method, own.setting):
            distances.append((len(differing_options([group.options, options[number]])), number))
    return min(distances)[1] if distances else None


def _sort_key(cells: Sequence[Cell]) -> Callable[[RunGroup], tuple]:
    """Returns a key that sorts runs as the cells are sorted: by method, then by varied options."""
    methods = list(dict.fromkeys(next(cell_keys(cell)).method for cell in cells))
    names = swept_options(cells)

    def sort_key(group: RunGroup) -> tuple:
        method = group.key("").method
        place = methods.index(method) if method in methods else len(methods)
        values = [group.options.get(name) for name in names]
        numbers = [(0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values]
        return place, method, numbers

    return sort_key


def _group_rows(
    group: RunGroup, cell: Cell | None, caveats: Sequence[Caveat], title: str = ""
) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """Yields rows without numbers, one per evaluation, with the options of their runs."""
    for evaluation in group.first.evaluations:
        row = Row(group.key(evaluation), "", group, cell, tuple(caveats), title=title)
        yield row, group.options


def _with_numbers(row: Row, about: ExperimentConfig) -> Row:
    numbers = {metric: _number(row, metric, about) for metric in about.metrics}
    published = next((n.published for n in numbers.values() if n.published), None)
    more = origin_caveats(published)
    if row.group is not None:
        repeats = max((n.ours.n for n in numbers.values() if n.ours), default=0)
        more += repeat_caveats(repeats, published) if repeats else []
        more += [Caveat(CaveatKind.TIMES)] if set(TIMES) & set(about.metrics) else []
    return replace(row, numbers=numbers, caveats=(*row.caveats, *more))


def _number(row: Row, metric: str, about: ExperimentConfig) -> Number:
    ours = row.group.estimate(metric, row.key.evaluation) if row.group else None
    published = None
    if row.cell is not None and about.source:
        # The published result is the cell's, whatever options the run has.
        keys = (key for key in cell_keys(row.cell) if key.evaluation == row.key.evaluation)
        key = next(keys, row.key)
        published = next(iter(find_results(key, metric, about.source, about.tables)), None)
    if ours is None or published is None:
        return Number(ours, published)
    return Number(ours, published, compare(ours, published, row.caveats, metric))
