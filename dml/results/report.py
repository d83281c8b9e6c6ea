"""Report of one experiment: rows by what they were measured on, tests, missing cells."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dml.config.schema import ExperimentConfig
from dml.core.option_values import EXTRA_METRICS
from dml.results.baselines import is_off_the_shelf, name_baseline, table_place, untrained_rows
from dml.results.catalog import Cell
from dml.results.finished_runs import RunCollection, collect_runs
from dml.results.pairwise_tests import Family, build_families
from dml.results.published_results import ResultKey
from dml.results.rows import Row, build_rows, missing_cells, swept_options
from dml.results.run_groups import RunGroup, group_runs
from dml.results.settings import describe_settings, list_settings, sort_rows
from dml.runs.console import is_score


@dataclass(frozen=True)
class Section:
    """Rows that were measured on the same.

    Attributes:
        key: what they share (method and setting are empty).
        stand_in: whether the data are stand-in data.
        rows: in the order of the experiment.
        families: tests among them.
        settings: dotted options in which runs of no experiment differ, a column each.
        baselines: networks before training, or off the shelf.
    """

    key: ResultKey
    stand_in: bool
    rows: tuple[Row, ...]
    families: tuple[Family, ...]
    settings: tuple[str, ...] = ()
    baselines: tuple[Row, ...] = ()

    @property
    def selected_on_test(self) -> bool:
        """True if epochs were selected by the scores that the table shows."""
        groups = [row.group for row in self.rows if row.group]
        return any(group.first.summary.get("selected_on") == "test" for group in groups)

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
        parts = [key.data, key.backbone, dim, key.protocol, evaluation, stand_in, self._name]
        return list(filter(None, parts))

    @property
    def _name(self) -> str:
        """Name that was given to all runs with `name=`; empty without one."""
        names = {row.group.label for row in self.rows if row.group}
        return f'"{name}"' if len(names) == 1 and (name := next(iter(names))) else ""

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
    def of_paper(self) -> bool:
        """True for an experiment of a paper, False for a folder of other runs."""
        return self.about.source is not None

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
    def status(self) -> str:
        """Progress in words."""
        cells, groups = len(self.cells), len(self.groups)
        if not cells:
            if groups:
                runs = sum(len(group.runs) for group in self.groups)
                return f"{_count(groups, 'configuration')}, {_count(runs, 'run')}"
            return "drawn by a script" if self.about.script else "no runs"
        if not groups:
            return f"not run ({_count(cells, 'cell')})"
        done = cells - len(self.missing)
        if done == 0 and all(group.stand_in for group in self.groups):
            return f"stand-in data only ({_count(cells, 'cell')})"
        return f"{done} of {cells} cells run"


def build_report(
    about: ExperimentConfig, cells: Sequence[Cell], root: Path, shared: Path | None = None
) -> Report:
    """Returns the report of an experiment.

    Args:
        about: its description; `about.id` is the folder of its runs below `root`.
        cells: all its runs; none for runs of no experiment.
        root: folder of run folders.
        shared: another folder of run folders, of runs that somebody sent.
    """
    runs = collect_runs(root, about.id)
    if shared is not None:
        runs = runs.join(collect_runs(shared, about.id))
    if about.source is None:  # which measures to print is up to the runs
        found = dict.fromkeys(name for run in runs.finished for name in run.summary["metrics"])
        more = [name for name in found if name in EXTRA_METRICS]
        about = about.model_copy(update={"metrics": [*about.metrics, *more]})
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
    off_the_shelf = list(filter(is_off_the_shelf, rows))
    trained = {
        key: [row for row in own if not is_off_the_shelf(row)] for key, own in by_key.items()
    }
    places = {table_place(key) for key, own in trained.items() if own}
    sections = []
    for key, same in by_key.items():
        # Networks off the shelf are baselines of the tables of their data, if there are any.
        if table_place(key) in places:
            same = trained[key]
        if any(row.group or any(n.published for n in row.numbers.values()) for row in same):
            baselines = [row for row in off_the_shelf if table_place(row.key) == table_place(key)]
            sections.append(_build_section(key, same, baselines, about))
    # Concatenated models have no steps to count, for example.
    with_numbers = [section for section in sections if section.metrics]
    return sorted(
        with_numbers or sections, key=lambda section: not any(row.group for row in section.rows)
    )


def _build_section(
    key: ResultKey, rows: Sequence[Row], off_the_shelf: Sequence[Row], about: ExperimentConfig
) -> Section:
    settings: tuple[str, ...] = ()
    if about.source is None:
        settings = list_settings(rows)
        rows = describe_settings(sort_rows(rows, settings), settings)
    groups = [row.group for row in rows if row.group]
    more = [name_baseline(row) for row in off_the_shelf if row.group not in groups]
    untrained = untrained_rows(groups, key, about.metrics)
    tested = next(filter(is_score, about.metrics), about.metrics[0])
    return Section(
        key,
        stand_in=any(group.stand_in for group in groups),
        rows=tuple(rows),
        families=tuple(build_families(rows, tested, about.source)),
        settings=settings,
        baselines=(*untrained, *more),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
