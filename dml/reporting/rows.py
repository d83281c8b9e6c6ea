"""The rows of a report: an experiment's cells with their runs, printed numbers and marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from omegaconf import DictConfig

from dml.core.statistics import Estimate
from dml.reporting.caveats import Caveat, fewer_repeats, marks, others_number
from dml.reporting.comparison import TIMES, Comparison, Verdict, compare
from dml.reporting.finished_runs import group_options
from dml.reporting.published_results import PublishedResult, ResultKey, printed
from dml.reporting.run_groups import Group, differing, labels
from dml.runs.folder.summary import protocol_id, result_id
from dml.runs.protocols import FOLDS


class Cell(Protocol):
    """What a report asks of a cell of an experiment (`dml.reporting.catalog.Cell`)."""

    @property
    def config(self) -> DictConfig:
        """As composed."""
        ...

    @property
    def overrides(self) -> tuple[str, ...]:
        """What makes it this cell."""
        ...

    @property
    def folder(self) -> Path:
        """Of its run."""
        ...

    @property
    def command(self) -> str:
        """That runs it."""
        ...


@dataclass(frozen=True)
class Source:
    """Where an experiment's numbers are printed.

    Attributes:
        source: `mft` | `pfml` | `metrix` | `ccp`; None for runs of no experiment.
        tables: of that paper.
        metrics: that they print, the one that significance is tested on first.
        spread: what ± is: `ci95` | `std` | `none`.
    """

    source: str | None
    tables: tuple[str, ...]
    metrics: tuple[str, ...]
    spread: str


@dataclass(frozen=True)
class Number:
    """One metric of a row: ours, the printed one, and how they stand to each other."""

    ours: Estimate | None = None
    printed: PublishedResult | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Row:
    """One method under one setting.

    Attributes:
        facts: what it was, or would be, measured on.
        label: what tells it from rows of the same facts.
        group: its runs; None if it has not been run.
        cell: of the experiment; None for runs that belong to none.
        marks: see `dml.reporting.caveats`.
        numbers: by metric.
    """

    facts: ResultKey
    label: str
    group: Group | None
    cell: Cell | None
    marks: tuple[Caveat, ...]
    numbers: Mapping[str, Number] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Method and label."""
        return f"{self.facts.method} ({self.label})" if self.label else self.facts.method

    @property
    def compared(self) -> bool:
        """Whether any of its numbers stands beside a printed one."""
        verdicts = [n.comparison.verdict for n in self.numbers.values() if n.comparison]
        return any(verdict != Verdict.NOT_COMPARED for verdict in verdicts)


def rows(groups: Sequence[Group], cells: Sequence[Cell], source: Source) -> list[Row]:
    """All rows: the cells in their order, run or not, then runs that fit no cell."""
    options = [group_options(cell.config) for cell in cells]
    places = [_cell_of(group, cells, options) for group in groups]
    bare: list[tuple[Row, Mapping[str, Any]]] = []
    for number, cell in enumerate(cells):
        own = [group for group, place in zip(groups, places, strict=True) if place == number]
        subjects: list[Group | None] = [*own] or [None]
        bare += [
            pair
            for one in subjects
            for pair in _bare(one, cell, options[number], not source.source)
        ]
    others = [group for group, place in zip(groups, places, strict=True) if place is None]
    for group in sorted(others, key=_order(cells)):
        bare += _bare(group, None, None, not source.source)
    told = labels([(row.facts, own) for row, own in bare], swept(cells))
    return [
        _filled(replace(row, label=label), source)
        for (row, _), label in zip(bare, told, strict=True)
    ]


def missing(found: Iterable[Row]) -> list[Cell]:
    """The cells that no run fills as the experiment wants it, in their order."""
    filled: dict[int, bool] = {}
    cells: dict[int, Cell] = {}
    for row in found:
        if row.cell is not None:
            whole = row.group is not None and not any(mark.blocks for mark in row.marks)
            cells[id(row.cell)] = row.cell
            filled[id(row.cell)] = filled.get(id(row.cell), False) or whole
    return [cell for key, cell in cells.items() if not filled[key]]


def swept(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Dotted names that the experiment varies by themselves (not whole groups of options)."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for override in cell.overrides:
            name, _, value = override.lstrip("+").partition("=")
            values.setdefault(name, set()).add(value)
    return tuple(name for name, found in values.items() if len(found) > 1 and "." in name)


def cell_facts(cell: Cell) -> Iterator[ResultKey]:
    """What a cell's numbers will be measured on, one per evaluation."""
    cfg = cell.config
    joined = FOLDS[cfg.protocol.splits] > 1
    for evaluation in ("separated", "concatenated") if joined else ("single",):
        yield ResultKey(
            data=cfg.data.name,
            backbone=cfg.backbone.name,
            dim=cfg.embedder.size,
            protocol=protocol_id(cfg),  # type: ignore[arg-type]  # reads attributes alone
            evaluation=evaluation,
            method=result_id(cfg),  # type: ignore[arg-type]
            setting=cfg.experiment.get("setting") or "",
        )


def _cell_of(
    group: Group, cells: Sequence[Cell], options: Sequence[Mapping[str, Any]]
) -> int | None:
    """The cell of the same data, method and setting that differs in the fewest options."""
    own = group.facts("")
    best: tuple[int, int] | None = None
    for number, cell in enumerate(cells):
        facts = next(cell_facts(cell))
        if (facts.data, facts.method, facts.setting) == (own.data, own.method, own.setting):
            distance = len(differing([group.options, options[number]]))
            best = min(best or (distance, number), (distance, number))
    return None if best is None else best[1]


def _order(cells: Sequence[Cell]) -> Callable[[Group], tuple]:
    """Sorts runs that fit no cell as the cells are sorted: by method, then by what is varied."""
    methods = list(dict.fromkeys(next(cell_facts(cell)).method for cell in cells))
    names = swept(cells)

    def key(group: Group) -> tuple:
        method = group.facts("").method
        place = methods.index(method) if method in methods else len(methods)
        values = [group.options.get(name) for name in names]
        numbers = [(0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values]
        return place, method, numbers

    return key


def _bare(
    group: Group | None, cell: Cell | None, options: Mapping[str, Any] | None, no_cells: bool
) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """Rows without numbers, one per evaluation, and the options behind them."""
    if group is None:
        assert cell is not None
        assert options is not None
        for facts in cell_facts(cell):
            yield Row(facts, "", None, cell, ()), options
        return
    found = tuple(marks(group, options, no_cells))
    for evaluation in group.evaluations:
        yield Row(group.facts(evaluation), "", group, cell, found), group.options


def _filled(row: Row, source: Source) -> Row:
    numbers = {metric: _number(row, metric, source) for metric in source.metrics}
    one = next((n.printed for n in numbers.values() if n.printed), None)
    more = others_number(one)
    if row.group is not None:
        repeats = max((n.ours.n for n in numbers.values() if n.ours), default=0)
        more += fewer_repeats(repeats, one) if repeats else []
        more += [Caveat("T")] if any(metric in TIMES for metric in source.metrics) else []
    return replace(row, numbers=numbers, marks=(*row.marks, *more))


def _number(row: Row, metric: str, source: Source) -> Number:
    facts = row.facts
    if row.cell is not None:  # the printed number is the cell's, whatever the run differs in
        same = [one for one in cell_facts(row.cell) if one.evaluation == facts.evaluation]
        facts = same[0] if same else facts
    one = (
        printed(facts, metric, source.source, source.tables)
        if source.source and row.cell is not None
        else None
    )
    ours = row.group.estimate(metric, row.facts.evaluation) if row.group else None
    if ours is None or one is None:
        return Number(ours, one)
    return Number(ours, one, compare(ours, one, row.marks, metric))
