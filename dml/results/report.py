"""Report of one experiment: rows by data and protocol, tests, baselines, missing cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dml.config.identity import identity, method_name
from dml.config.schema import ExperimentConfig
from dml.core.installation import shell_command
from dml.core.metric_names import is_score, metric_label
from dml.core.option_values import EXTRA_METRICS
from dml.core.statistics import Estimate
from dml.results import compare
from dml.results.catalog import Cell
from dml.results.frame import (
    comparable,
    differing_options,
    estimates,
    format_option,
    join_some,
    make_frame,
    short_names,
    varied_options,
)
from dml.results.published import (
    LOSS_NAMES,
    PublishedResult,
    ResultKey,
    find_results,
    parse_setting,
)
from dml.runs.console import DASH
from dml.runs.folder.stored_run import StoredRun, find_runs, read_run

UNTRAINED = "untrained"  # the method whose runs train nothing
NO_RUNS = make_frame(())


@dataclass(eq=False)
class Row:
    """One method under one setting.

    Attributes:
        key: what it was, or would be, measured on.
        options: that make its configuration.
        method: its name in tables and figures.
        cell: cell of the experiment; None for runs that belong to none.
        runs: rows of the table of runs; empty if it has not been run.
        caveats: see `dml.results.compare`.
        ours, published, comparisons: by metric, where there is one.
        label: what distinguishes it from rows of the same key.
    """

    key: ResultKey
    options: Mapping[str, Any]
    method: str
    cell: Cell | None = None
    runs: pd.DataFrame = field(default_factory=lambda: NO_RUNS)
    caveats: list[compare.Caveat] = field(default_factory=list)
    ours: dict[str, Estimate] = field(default_factory=dict)
    published: dict[str, PublishedResult] = field(default_factory=dict)
    comparisons: dict[str, compare.Comparison] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """Method and label."""
        return f"{self.method} ({self.label})" if self.label else self.method

    @cached_property
    def stored(self) -> list[StoredRun]:
        """Its runs, in the order of their seeds."""
        return list(self.runs.drop_duplicates("folder").sort_values("seed", kind="stable").run)

    def option_text(self, name: str) -> str:
        """Returns the text of an option, or of the run's `name=`; a dash if it is not set."""
        if name == "name":
            return ", ".join(filter(None, self.runs["name"].unique())) or DASH
        return format_option(self.options[name]) if name in self.options else DASH


@dataclass(frozen=True)
class Section:
    """Rows with the same data, network, protocol and evaluation.

    Attributes:
        title: data, backbone, embedding size, protocol and evaluation, if they vary.
        rows: in the order of the experiment.
        baselines: networks before training, or off the shelf.
        metrics: those of the experiment that any row has: the K of Recall@K differ by dataset.
        settings: dotted options in which runs of no experiment differ, a column each.
        tested: rows that are tested against each other.
        tests: `compare.pair_tests` among them.
    """

    title: str
    rows: Sequence[Row]
    baselines: Sequence[Row]
    metrics: Sequence[str]
    settings: Sequence[str]
    tested: Sequence[Row]
    tests: pd.DataFrame


@dataclass(frozen=True)
class Report:
    """Runs, tables and tests of an experiment.

    Attributes:
        about: its description; one without a source is of a folder of other runs.
        cells: its runs as planned; none for runs of no experiment.
        runs: table of its runs in any state, local and contributed.
        sections: its rows.
        missing: cells without a run that follows the experiment.
        command: command that runs all of it.
    """

    about: ExperimentConfig
    cells: Sequence[Cell]
    runs: pd.DataFrame
    sections: Sequence[Section]
    missing: Sequence[Cell]
    command: str

    @property
    def rows(self) -> list[Row]:
        """Rows of all sections."""
        return [row for section in self.sections for row in section.rows]

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the finished runs."""
        return self.runs.query("state == 'finished'")

    @property
    def problems(self) -> list[str]:
        """A line for every folder that is left out, and one on the runs without a summary."""
        damaged = self.runs.query("state == 'damaged'")
        lines = [f"left out: {run.folder}: {run.problem}" for run in damaged.itertuples()]
        if count := len(self.runs.query("state != 'damaged' and state != 'finished'")):
            lines.append(
                f"not finished: {_count(count, 'run')}; {shell_command('runs')} lists them"
            )
        return lines

    @property
    def status(self) -> str:
        """Progress in words."""
        cells, frame = len(self.cells), self.frame
        if cells:
            return f"{cells - len(self.missing)} of {cells} cells run"
        if frame.empty:
            return "drawn by a script" if self.about.script else "no runs"
        runs = _count(frame.folder.nunique(), "run")
        return f"{_count(frame.configuration.nunique(), 'configuration')}, {runs}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def build_report(
    about: ExperimentConfig,
    cells: Sequence[Cell],
    root: Path,
    contributed: Iterable[StoredRun] = (),
) -> Report:
    """Returns the report of an experiment.

    Args:
        about: its description; `about.id` is the folder of its runs below `root`.
        cells: all its runs; none for runs of no experiment.
        root: folder of run folders.
        contributed: runs of other users, of any experiment.
    """
    stored = {r.folder.name: r for r in contributed if r.config and r.config.experiment == about.id}
    local = map(read_run, find_runs(root / about.id))
    stored |= {r.folder.name: r for r in local if r.summary or r.folder.name not in stored}
    runs = make_frame(stored.values())
    if about.source is None:  # which measures to print is up to the runs
        more = [name for name in EXTRA_METRICS if name in runs]
        about = about.model_copy(update={"metrics": [*about.metrics, *more]})
    rows = _build_rows(runs[runs.state == "finished"], cells, about)
    done = {id(r.cell) for r in rows if len(r.runs) and compare.is_comparable(r.caveats)}
    missing = [cell for cell in cells if id(cell) not in done]
    place = "" if root == Path("outputs") else f" outputs={root}"
    command = f"{shell_command('train')} experiment={about.id}{place}"
    return Report(about, cells, runs, _build_sections(rows, about), missing, command)


def metric_name(metric: str) -> str:
    """Returns a metric's name in tables and figures: `MAP@R`, `best epoch`."""
    return metric_label(metric) if is_score(metric) else metric.replace("_", " ")


def main_metric(about: ExperimentConfig) -> str:
    """Returns the metric that is tested and drawn: the first score."""
    return next(filter(is_score, about.metrics), about.metrics[0])


def _build_rows(frame: pd.DataFrame, cells: Sequence[Cell], about: ExperimentConfig) -> list[Row]:
    """Returns the rows of the cells in their order, run or not, then of runs that fit no cell."""
    planned = [
        Row(key, comparable(identity(cell.options)), LOSS_NAMES.get(key.method, key.method), cell)
        for cell in cells
        for key in cell.result_keys()
    ]
    rows = []
    for (_, evaluation), runs in frame.groupby(["configuration", "evaluation"], sort=False):
        first, options = runs.iloc[0], comparable(runs.options.iloc[0])
        place = (first["data"], first.backbone, int(first.dim), first.protocol_id)
        key = ResultKey(*place, str(evaluation), first.result_id, first.setting)
        same = [row for row in planned if row.key.measured == key.measured]
        plan = min(same, key=lambda r: len(differing_options([options, r.options])), default=None)
        caveats = compare.list_caveats(runs, options, plan.options if plan else None, about.source)
        name = LOSS_NAMES.get(key.method, key.method)
        if about.source is None:
            name = method_name(first.loss, first.method)
        rows.append(Row(key, options, name, plan.cell if plan else None, runs, caveats))
    done, order = {id(row.cell) for row in rows}, {id(cell): n for n, cell in enumerate(cells)}
    rows += [row for row in planned if id(row.cell) not in done]
    rows.sort(key=lambda row: order.get(id(row.cell), len(cells)))
    by_key: dict[ResultKey, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row.key if about.source else replace(row.key, method=row.method)].append(row)
        _add_numbers(row, about)
    for key, same in by_key.items():
        names = short_names(differing_options([row.options for row in same]))
        setting = [f"{name} {value}" for name, value in parse_setting(key.setting).items()]
        for row in same:
            texts = [f"{short} {row.option_text(name)}" for name, short in names.items()]
            row.label = join_some([*setting, *texts])
    return rows


def _add_numbers(row: Row, about: ExperimentConfig) -> None:
    """Adds the estimates of a row, the published results of its cell, and their comparison."""
    row.ours = estimates(row.runs, about.metrics)
    if row.cell is not None and about.source:
        # The published result is the cell's, whatever options the run has.
        key = replace(next(row.cell.result_keys()), evaluation=row.key.evaluation)
        for metric in about.metrics:
            for result in find_results(key, metric, about.source, about.tables)[:1]:
                row.published[metric] = result
    repeats = max((one.n for one in row.ours.values()), default=0)
    row.caveats += compare.result_caveats(repeats, next(iter(row.published.values()), None))
    for metric in row.ours.keys() & row.published.keys():
        ours, published = row.ours[metric], row.published[metric]
        row.comparisons[metric] = compare.compare(ours, published, row.caveats, metric)


def _build_sections(rows: Sequence[Row], about: ExperimentConfig) -> list[Section]:
    """Returns the sections with runs, then those with published results only."""
    by_key: dict[ResultKey, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[replace(row.key, method="", setting="")].append(row)
    sections, metric = [], main_metric(about)
    for key, same in sorted(by_key.items(), key=lambda item: all(r.runs.empty for r in item[1])):
        trained = [r for r in same if r.options.get("method.name") != UNTRAINED] or same
        runs = pd.concat([row.runs for row in trained])
        shelf = [replace(row, method="off the shelf") for row in same if row not in trained]
        names = runs["name"].unique()
        title = [
            *(key.data, key.backbone, f"{key.dim}-d" if key.dim else "", key.protocol),
            "" if key.evaluation == "single" else key.evaluation,
            "stand-in data" if runs.stand_in.any() else "",
            f'"{names[0]}"' if len(names) == 1 and names[0] else "",
        ]
        settings = [] if about.source else [*["name"] * (len(names) > 1), *varied_options(runs)]
        if about.source is None:
            trained.sort(key=lambda row: (row.method, _values(row, settings)))
        metrics = [m for m in about.metrics if any(m in (*r.ours, *r.published) for r in same)]
        if not metrics:  # concatenated models have no steps to count, for example
            continue
        tested = [row for row in trained if metric in row.ours and row.ours[metric].n > 1]
        if about.source:
            tested = [row for row in tested if compare.is_comparable(row.caveats)]
        if len(tested) > compare.MAX_ROWS:
            tested = []
        samples = [(row.key, row.ours[metric]) for row in tested]
        tests = compare.pair_tests(samples, metric, about.source)
        before = runs[runs["method"] != UNTRAINED]
        baselines = [*_untrained_rows(before, key, about.metrics), *shelf]
        text = ", ".join(filter(None, title))
        sections.append(Section(text, trained, baselines, metrics, settings, tested, tests))
    return sections


def _values(row: Row, names: Sequence[str]) -> list[tuple]:
    """Returns the values of some options to sort by, numbers in their order before texts."""
    values = [row.options.get(name) for name in names]
    return [(0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values]


def _untrained_rows(runs: pd.DataFrame, key: ResultKey, metrics: Sequence[str]) -> list[Row]:
    """Returns a row per initialization of the network: its scores before training, over seeds."""
    networks = [
        {name: v for name, v in options.items() if name.startswith(("backbone.", "embed"))}
        for options in runs.options
    ]
    names, rows = differing_options(networks), []
    labels = [join_some([f"{n} {format_option(one.get(n))}" for n in names]) for one in networks]
    for label, same in runs.groupby(np.array(labels, dtype=object), sort=False):
        if ours := estimates(same, metrics, "untrained_"):
            rows.append(Row(key, {}, UNTRAINED, ours=ours, label=str(label)))
    return rows
