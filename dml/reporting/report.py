"""Report of one experiment: rows by what they were measured on, tests, missing cells."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dml.config.schema import ExperimentConfig
from dml.reporting.catalog import Cell
from dml.reporting.caveats import CaveatKind
from dml.reporting.finished_runs import RunCollection, collect_runs
from dml.reporting.pairwise_tests import Family, build_families
from dml.reporting.published_results import ResultKey
from dml.reporting.rows import Row, build_rows, missing_cells, swept_options
from dml.reporting.run_groups import RunGroup, group_runs
from dml.runs.console import is_score


@dataclass(frozen=True)
class Section:
    """Rows that were measured on the same.

    Attributes:
        key: what they share (method and setting are empty).
        stand_in: whether the data are stand-in data.
        rows: in the order of the experiment.
        families: tests among them.
    """

    key: ResultKey
    stand_in: bool
    rows: tuple[Row, ...]
    families: tuple[Family, ...]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the experiment that any row has: the K of Recall@K differ by dataset."""
        names = dict.fromkeys(metric for row in self.rows for metric in row.numbers)
        return [
            name
            for name in names
            if any(row.numbers[name].ours or row.numbers[name].published for row in self.rows)
        ]

    @property
    def parts(self) -> list[str]:
        """Data, backbone, embedding size, protocol and evaluation, as far as they tell anything."""
        key = self.key
        dim = "" if key.dim is None else f"{key.dim}-d"
        evaluation = "" if key.evaluation == "single" else key.evaluation
        stand_in = "stand-in data" if self.stand_in else ""
        parts = [key.data, key.backbone, dim, key.protocol, evaluation, stand_in]
        return list(filter(None, parts))

    @property
    def title(self) -> str:
        """Parts in one line."""
        return ", ".join(self.parts)


@dataclass(frozen=True)
class Report:
    """Everything known about an experiment.

    Attributes:
        about: its description.
        cells: its runs as planned; none for runs of no experiment.
        runs: its run folders.
        groups: its finished runs, by configuration.
        sections: its rows.
        missing: cells that no run fills.
        command: command that runs all of it.
    """

    about: ExperimentConfig
    cells: tuple[Cell, ...]
    runs: RunCollection
    groups: tuple[RunGroup, ...]
    sections: tuple[Section, ...]
    missing: tuple[Cell, ...]
    command: str

    @property
    def id(self) -> str:
        """Id of the experiment."""
        return self.about.id

    @property
    def rows(self) -> list[Row]:
        """Rows of all sections."""
        return [row for section in self.sections for row in section.rows]

    @property
    def swept(self) -> tuple[str, ...]:
        """Options that the experiment varies."""
        return swept_options(self.cells)

    @property
    def caveat_kinds(self) -> list[CaveatKind]:
        """Kinds of caveats that occur."""
        found = {caveat.kind for row in self.rows for caveat in row.caveats}
        return [kind for kind in CaveatKind if kind in found]

    @property
    def status(self) -> str:
        """Progress in words."""
        cells, groups = len(self.cells), len(self.groups)
        if not cells:
            if groups:
                return _count(groups, "configuration")
            return "drawn by a script" if self.about.script else "no runs"
        if not groups:
            return f"not run ({_count(cells, 'cell')})"
        done = cells - len(self.missing)
        if done == 0 and all(group.stand_in for group in self.groups):
            return f"stand-in data only ({_count(cells, 'cell')})"
        return f"{done} of {cells} cells run"


def build_report(about: ExperimentConfig, cells: Sequence[Cell], root: Path) -> Report:
    """Returns the report of an experiment.

    Args:
        about: its description; `about.id` is the folder of its runs below `root`.
        cells: all its runs; none for runs of no experiment.
        root: folder of run folders.
    """
    runs = collect_runs(root, about.id)
    groups = tuple(group_runs(runs.finished))
    rows = build_rows(groups, cells, about)
    words = ["python", "train.py", f"experiment={about.id}", *outputs_override(root)]
    return Report(
        about=about,
        cells=tuple(cells),
        runs=runs,
        groups=groups,
        sections=tuple(_build_sections(rows, about)),
        missing=tuple(missing_cells(rows)),
        command=shlex.join(words),
    )


def outputs_override(root: Path) -> tuple[str, ...]:
    """Returns the override that a command needs if run folders are not in `outputs`."""
    return () if root == Path("outputs") else (f"outputs={root}",)


def _build_sections(rows: Sequence[Row], about: ExperimentConfig) -> list[Section]:
    """Returns the sections with runs, then those with published results only."""
    by_key: dict[ResultKey, list[Row]] = {}
    for row in rows:
        by_key.setdefault(replace(row.key, method="", setting=""), []).append(row)
    tested = next(filter(is_score, about.metrics), about.metrics[0])
    sections = [
        Section(
            key,
            any(row.group is not None and row.group.stand_in for row in same),
            tuple(same),
            tuple(build_families(same, tested, about.source)),
        )
        for key, same in by_key.items()
        if any(row.group or any(n.published for n in row.numbers.values()) for row in same)
    ]
    # Concatenated models have no steps to count, for example.
    with_numbers = [section for section in sections if section.metrics]
    return sorted(
        with_numbers or sections, key=lambda section: not any(row.group for row in section.rows)
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
