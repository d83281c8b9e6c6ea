"""The report of one experiment: its rows by what they were measured on, tests, what is missing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dml.reporting.caveats import MEANING
from dml.reporting.finished_runs import Problem, collect
from dml.reporting.pairwise_tests import Family, families
from dml.reporting.published_results import ResultKey
from dml.reporting.rows import Cell, Row, Source, missing, rows, swept
from dml.reporting.run_groups import Group, grouped
from dml.runs.console import is_score

SINGLE = Source(None, (), ("map_at_r", "precision_at_1", "r_precision", "best_epoch"), "ci95")
SINGLE_FIGURES = ("learning_curves", "neighbors")


@dataclass(frozen=True)
class Section:
    """Rows that were measured on the same.

    Attributes:
        facts: what they share (method and setting are empty).
        stand_in: whether the data are stand-in data.
        rows: in the order of the experiment.
        families: tests among them.
    """

    facts: ResultKey
    stand_in: bool
    rows: tuple[Row, ...]
    families: tuple[Family, ...]

    @property
    def metrics(self) -> list[str]:
        """Those of the experiment that any row has: the K of Recall@K differ by dataset."""
        found = dict.fromkeys(metric for row in self.rows for metric in row.numbers)
        return [
            m for m in found if any(r.numbers[m].ours or r.numbers[m].printed for r in self.rows)
        ]

    @property
    def parts(self) -> list[str]:
        """Data, backbone, embedding size, protocol, and how models combine, in words."""
        f = self.facts
        dim = "" if f.dim is None else f"{f.dim}-d"
        evaluation = "" if f.evaluation == "single" else f.evaluation
        stand_in = "stand-in data" if self.stand_in else ""
        return list(filter(None, [f.data, f.backbone, dim, f.protocol, evaluation, stand_in]))

    @property
    def title(self) -> str:
        """In a line."""
        return ", ".join(self.parts)


@dataclass(frozen=True)
class Report:
    """All that is known of an experiment.

    Attributes:
        id: of the experiment.
        title: what it is, if its file says so.
        source: where its numbers are printed.
        sections: its rows.
        groups: its runs, by configuration.
        swept: options that it varies.
        figures: kinds of pictures that it wants.
        script: command that draws what needs no training of its own, if there is one.
        command: that runs all of it.
        cells: how many it has.
        missing: those that no run fills.
        problems: folders that were left out.
        unfinished: folders of runs that are not finished.
    """

    id: str
    title: str
    source: Source
    sections: tuple[Section, ...]
    groups: tuple[Group, ...]
    swept: tuple[str, ...]
    figures: tuple[str, ...]
    script: str | None
    command: str
    cells: int
    missing: tuple[Cell, ...]
    problems: tuple[Problem, ...]
    unfinished: tuple[Path, ...]

    @property
    def rows(self) -> list[Row]:
        """All of all sections."""
        return [row for section in self.sections for row in section.rows]

    @property
    def marks(self) -> list[str]:
        """Codes of the marks that occur, in the order of `MEANING`."""
        found = {mark.code for row in self.rows for mark in row.marks}
        return [code for code in MEANING if code in found]

    @property
    def status(self) -> str:
        """How far it is, in words."""
        if not self.groups and not self.cells:
            return "drawn by a script" if self.script else "no runs"
        if not self.groups:
            return f"not run ({self.cells} cells)"
        if not self.cells:
            return f"{len(self.groups)} configuration{'s' if len(self.groups) > 1 else ''}"
        done = self.cells - len(self.missing)
        if done == 0 and all(group.stand_in for group in self.groups):
            return f"stand-in only ({self.cells} cells)"
        return f"{done} of {self.cells} cells run"


def build(name: str, cells: Sequence[Cell], root: Path, node: Mapping[str, Any]) -> Report:
    """The report of an experiment.

    Args:
        name: its id, which is also the folder of its runs below `root`.
        cells: all of it; none for runs of no experiment.
        root: where run folders are.
        node: its `experiment` node; empty for runs of no experiment.
    """
    found = collect(root, name)
    groups = grouped(found.runs)
    source = source_of(node)
    all_rows = rows(groups, cells, source)
    return Report(
        id=name,
        title=str(node.get("title") or ""),
        source=source,
        sections=tuple(_sections(all_rows, source)),
        groups=tuple(groups),
        swept=swept(cells),
        figures=tuple(node.get("figures") or (() if node else SINGLE_FIGURES)),
        script=node.get("script"),
        command=shlex.join(["python", "train.py", f"experiment={name}", *elsewhere(root)]),
        cells=len(cells),
        missing=tuple(missing(all_rows)),
        problems=found.problems,
        unfinished=found.unfinished,
    )


def elsewhere(root: Path) -> tuple[str, ...]:
    """The override that a command needs if runs are not in `outputs`."""
    return () if root == Path("outputs") else (f"outputs={root}",)


def source_of(node: Mapping[str, Any]) -> Source:
    """Where an experiment's numbers are printed, from its `experiment` node."""
    return Source(
        node.get("source"),
        tuple(node.get("tables") or ()),
        tuple(node.get("metrics") or SINGLE.metrics),
        str(node.get("spread") or "ci95"),
    )


def _sections(found: Sequence[Row], source: Source) -> list[Section]:
    """Those with runs first, then those of printed numbers alone; none with neither."""
    together: dict[ResultKey, list[Row]] = {}
    for row in found:
        together.setdefault(replace(row.facts, method="", setting=""), []).append(row)
    tested = next(filter(is_score, source.metrics), source.metrics[0])
    sections = [
        Section(
            facts,
            any(row.group is not None and row.group.stand_in for row in same),
            tuple(same),
            tuple(families(same, tested, source.source)),
        )
        for facts, same in together.items()
        if any(row.group or any(n.printed for n in row.numbers.values()) for row in same)
    ]
    known = [section for section in sections if section.metrics]  # joined models have no steps
    return sorted(known or sections, key=lambda section: not any(row.group for row in section.rows))
