"""Report of one experiment: rows by data and protocol, tests, baselines, missing cells."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dml.config.identity import identity, method_name
from dml.config.schema import ExperimentConfig
from dml.core.installation import shell_command
from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.option_values import EXTRA_METRICS
from dml.core.statistics import Estimate
from dml.results import compare
from dml.results.catalog import Cell
from dml.results.frame import (
    comparable,
    differing_options,
    estimates,
    format_option,
    make_frame,
    short_names,
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
MAX_LABEL_OPTIONS = 4  # options named in the label of a row; the others are counted
# Options whose values depend on loss and method by default: a column of own runs only where rows of
# one method differ.
OF_METHODS = (
    *("loss.", "method.", "space.", "optim.loss_lr", "data.sampler", "data.images_per_class"),
)
# Options that must be equal in two rows for a fair test, beside the key of their section.
CONDITIONS = (
    *("backbone.weights", "data.label_noise", "protocol.name", "protocol.epochs"),
    *("protocol.steps_per_epoch", "protocol.select_metric", "search.trials"),
)


@dataclass(eq=False)
class Row:
    """One method under one setting.

    Attributes:
        key: what it was, or would be, measured on.
        options: that make its configuration.
        cell: cell of the experiment; None for runs that belong to none.
        runs: rows of the table of runs; None if it has not been run.
        caveats: see `dml.results.compare`.
        ours, published, comparisons: by metric, where there is one.
        label: what distinguishes it from rows of the same key.
        title: name of the method where it is not that of `key`.
    """

    key: ResultKey
    options: Mapping[str, Any]
    cell: Cell | None = None
    runs: pd.DataFrame | None = None
    caveats: list[compare.Caveat] = field(default_factory=list)
    ours: dict[str, Estimate] = field(default_factory=dict)
    published: dict[str, PublishedResult] = field(default_factory=dict)
    comparisons: dict[str, compare.Comparison] = field(default_factory=dict)
    label: str = ""
    title: str = ""

    @property
    def method(self) -> str:
        """Name of the method in tables and figures."""
        return self.title or LOSS_NAMES.get(self.key.method, self.key.method)

    @property
    def name(self) -> str:
        """Method and label."""
        return f"{self.method} ({self.label})" if self.label else self.method

    @cached_property
    def stored(self) -> list[StoredRun]:
        """Its runs, in the order of their seeds."""
        if self.runs is None:
            return []
        return list(self.runs.drop_duplicates("folder").sort_values("seed", kind="stable").run)

    def option_text(self, name: str) -> str:
        """Returns the text of an option, or of the run's `name=`; a dash if it is not set."""
        if name == "name" and self.runs is not None:
            return ", ".join(filter(None, self.runs["name"].unique())) or DASH
        return format_option(self.options[name]) if name in self.options else DASH


@dataclass(frozen=True)
class Family:
    """Tests of all pairs of rows under equal conditions (`compare.pair_tests`)."""

    metric: str
    rows: Sequence[Row]
    tests: pd.DataFrame


@dataclass(frozen=True)
class Section:
    """Rows with the same data, protocol and evaluation.

    Attributes:
        title: data, backbone, embedding size, protocol and evaluation, as far as they tell.
        rows: in the order of the experiment.
        families: tests among them.
        metrics: those of the experiment that any row has: the K of Recall@K differ by dataset.
        settings: dotted options in which runs of no experiment differ, a column each.
        baselines: networks before training, or off the shelf.
        selected_on_test: whether the scores of test images selected the epoch of any run.
    """

    title: str
    rows: Sequence[Row]
    families: Sequence[Family]
    metrics: Sequence[str]
    settings: Sequence[str]
    baselines: Sequence[Row]
    selected_on_test: bool


@dataclass(frozen=True)
class Report:
    """Runs, tables and tests of an experiment.

    Attributes:
        about: its description; one without a source is of a folder of other runs.
        cells: its runs as planned; none for runs of no experiment.
        runs: table of its runs in any state, own ones and contributed ones.
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
        return self.runs[self.runs.state == "finished"]

    @property
    def damaged(self) -> list[Any]:
        """Folders that the report leaves out, with their problems."""
        return [*self.runs[self.runs.state == "damaged"].itertuples()]

    @property
    def unfinished(self) -> str:
        """Line on the runs without a summary; empty if there are none."""
        folders = self.runs.folder[~self.runs.state.isin(["damaged", "finished"])]
        if len(folders) > 1:
            return f"not finished: {len(folders)} runs; {shell_command('runs')} lists them"
        return "".join(
            f"not finished: {one}; {shell_command('train')} resume={one} continues it"
            for one in folders
        )

    @property
    def status(self) -> str:
        """Progress in words."""
        cells, frame = len(self.cells), self.frame
        if not cells:
            if frame.empty:
                return "drawn by a script" if self.about.script else "no runs"
            runs = _count(frame.folder.nunique(), "run")
            return f"{_count(frame.configuration.nunique(), 'configuration')}, {runs}"
        if frame.empty:
            return f"not run ({_count(cells, 'cell')})"
        done = cells - len(self.missing)
        if done == 0 and frame.stand_in.all():
            return f"stand-in data only ({_count(cells, 'cell')})"
        return f"{done} of {cells} cells run"


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
        contributed: runs that somebody sent, of any experiment.
    """
    stored = {folder.name: read_run(folder) for folder in find_runs(root / about.id)}
    for run in contributed:
        if run.config is not None and run.config.experiment == about.id:
            stored.setdefault(run.folder.name, run)
    runs = make_frame(stored.values(), timed="epoch_seconds" in about.metrics)
    if about.source is None:  # which measures to print is up to the runs
        more = [name for name in EXTRA_METRICS if name in runs]
        about = about.model_copy(update={"metrics": [*about.metrics, *more]})
    rows = _build_rows(runs[runs.state == "finished"], cells, about)
    done = {id(r.cell) for r in rows if r.runs is not None and compare.is_comparable(r.caveats)}
    missing = [cell for cell in cells if id(cell) not in done]
    words = ["python", "train.py", f"experiment={about.id}", *outputs_override(root)]
    return Report(about, cells, runs, _build_sections(rows, about), missing, shlex.join(words))


def outputs_override(root: Path) -> tuple[str, ...]:
    """Returns the override that a command needs if run folders are not in `outputs`."""
    return () if root == Path("outputs") else (f"outputs={root}",)


def main_metric(about: ExperimentConfig) -> str:
    """Returns the metric that is tested and drawn: the first score."""
    return next(filter(is_score, about.metrics), about.metrics[0])


def swept_options(cells: Sequence[Cell]) -> list[str]:
    """Returns the dotted names of the options (not groups of options) that cells vary."""
    words = [word.lstrip("+").partition("=") for cell in cells for word in cell.overrides]
    names = dict.fromkeys(name for name, _, _ in words if "." in name)
    return [one for one in names if len({value for name, _, value in words if name == one}) > 1]


def _build_rows(frame: pd.DataFrame, cells: Sequence[Cell], about: ExperimentConfig) -> list[Row]:
    """Returns the rows of the cells in their order, run or not, then of runs that fit no cell."""
    options_of = [comparable(identity(cell.options)) for cell in cells]
    planned = [
        Row(key, options, cell)
        for cell, options in zip(cells, options_of, strict=True)
        for key in cell.result_keys()
    ]
    rows = []
    for _, runs in frame.groupby("configuration", sort=False):
        first, options = runs.iloc[0], comparable(runs.options.iloc[0])
        measured = (first["data"], first.result_id, first.setting)
        same = [r for r in planned if (r.key.data, r.key.method, r.key.setting) == measured]
        plan = min(same, key=lambda r: len(differing_options([options, r.options])), default=None)
        caveats = compare.list_caveats(runs, options, plan.options if plan else options)
        if plan is None and about.source and not first.stand_in:
            caveats.append(compare.Caveat("O", "not part of the experiment"))
        title = "" if about.source else method_name(first.loss, first.method)
        for evaluation, some in runs.groupby("evaluation", sort=False):
            place = (first["data"], first.backbone, int(some.dim.iloc[0]), first.protocol_id)
            key = ResultKey(*place, str(evaluation), first.result_id, first.setting)
            rows.append(
                Row(key, options, plan.cell if plan else None, some, [*caveats], title=title)
            )
    done = {id(row.cell) for row in rows}
    rows += [row for row in planned if id(row.cell) not in done]
    swept, rank = swept_options(cells), {id(cell): n for n, cell in enumerate(cells)}
    methods = [row.key.method for row in planned]

    def order(row: Row) -> tuple:
        if row.cell is not None:
            return (rank[id(row.cell)],)
        return len(cells), [*methods, row.key.method].index(row.key.method), _values(row, swept)

    rows.sort(key=order)
    for row in rows:
        row.label = _label(row, rows, swept)
        _add_numbers(row, about)
    return rows


def _values(row: Row, names: Sequence[str]) -> list[tuple]:
    """Returns the values of some options to sort by, numbers in their order before texts."""
    values = [row.options.get(name) for name in names]
    return [(0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values]


def _label(row: Row, rows: Sequence[Row], swept: Sequence[str]) -> str:
    """Returns the label of a row: the settings that rows with the same key do not share.

    The setting of the published table comes first, then the options in which they differ.
    """
    parts = [f"{name} {value}" for name, value in parse_setting(row.key.setting).items()]
    names = differing_options([other.options for other in rows if other.key == row.key])
    names.sort(key=lambda name: name not in swept)
    shorts = list(short_names(names).items())[:MAX_LABEL_OPTIONS]
    parts += [f"{short} {row.option_text(name)}" for name, short in shorts]
    if len(names) > MAX_LABEL_OPTIONS:
        parts.append(f"and {len(names) - MAX_LABEL_OPTIONS} more options")
    return ", ".join(parts)


def _add_numbers(row: Row, about: ExperimentConfig) -> None:
    """Adds the estimates of a row, the published results of its cell, and their comparison."""
    if row.runs is not None:
        row.ours = estimates(row.runs, about.metrics)
    if row.cell is not None and about.source:
        # The published result is the cell's, whatever options the run has.
        key = replace(next(row.cell.result_keys()), evaluation=row.key.evaluation)
        for metric in about.metrics:
            for result in find_results(key, metric, about.source, about.tables)[:1]:
                row.published[metric] = result
    repeats = max((one.n for one in row.ours.values()), default=0)
    row.caveats += compare.result_caveats(repeats, next(iter(row.published.values()), None))
    if row.runs is not None and set(compare.TIMES) & set(about.metrics):
        row.caveats.append(compare.Caveat("N", "times depend on the device and are not compared"))
    for metric in row.ours.keys() & row.published.keys():
        ours, published = row.ours[metric], row.published[metric]
        row.comparisons[metric] = compare.compare(ours, published, row.caveats, metric)


def _build_sections(rows: Sequence[Row], about: ExperimentConfig) -> list[Section]:
    """Returns the sections with runs, then those with published results only."""

    def table(row: Row) -> tuple[str, ...]:  # what a network off the shelf must share with it
        return row.key.data, row.key.backbone, row.key.protocol, row.key.evaluation

    shelf = [row for row in rows if row.cell is None and not _is_trained(row)]
    tables = {table(row) for row in rows if row not in shelf}
    by_key: dict[ResultKey, list[Row]] = defaultdict(list)
    for row in rows:
        # Networks off the shelf are baselines of the tables of their data, if there are any.
        if row not in shelf or table(row) not in tables:
            by_key[replace(row.key, method="", setting="")].append(row)
    sections = []
    for key, same in sorted(by_key.items(), key=lambda item: all(r.runs is None for r in item[1])):
        baselines = _untrained_rows(same, key, about.metrics) + [
            replace(row, title="off the shelf", label=f"{row.key.dim}-d")
            for row in shelf
            if table(row) == table(same[0]) and row not in same
        ]
        runs = pd.concat([make_frame(()), *(row.runs for row in same if row.runs is not None)])
        names = runs["name"].unique()
        title = [
            *(key.data, key.backbone, f"{key.dim}-d" if key.dim else "", key.protocol),
            "" if key.evaluation == "single" else key.evaluation,
            "stand-in data" if runs.stand_in.any() else "",
            f'"{names[0]}"' if len(names) == 1 and names[0] else "",
        ]
        settings = _list_settings(same) if about.source is None else []
        if about.source is None:
            same.sort(key=lambda row: (row.method, _values(row, settings)))
        metrics = [m for m in about.metrics if any(m in (*r.ours, *r.published) for r in same)]
        on_test = bool(runs.selected_by.str.endswith(" on test").any())
        if metrics:  # concatenated models have no steps to count, for example
            families = _build_families(same, main_metric(about), about.source)
            text = ", ".join(filter(None, title))
            sections.append(Section(text, same, families, metrics, settings, baselines, on_test))
    return sections


def _is_trained(row: Row) -> bool:
    return row.options.get("method.name") != UNTRAINED


def _list_settings(rows: Sequence[Row]) -> list[str]:
    """Returns the dotted names of the options in which rows differ, after any `name`.

    Of options with the same value in every row, such as two paths of one dataset, the first counts.
    """
    names = differing_options([row.options for row in rows])
    found = {name for name in names if not name.startswith(OF_METHODS)}
    for method in {row.method for row in rows}:
        found |= {*differing_options([row.options for row in rows if row.method == method])}
    by_texts: dict[tuple[str, ...], str] = {}
    for name in ("name", *sorted(found, key=lambda n: (not n.startswith(OF_METHODS), n))):
        texts = tuple(row.option_text(name) for row in rows)
        if len(set(texts)) > 1:
            by_texts.setdefault(texts, name)
    return list(by_texts.values())


def _untrained_rows(rows: Sequence[Row], key: ResultKey, metrics: Sequence[str]) -> list[Row]:
    """Returns a row per initialization of the network: its scores before training, over seeds."""
    networks: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for row in rows:
        if row.runs is not None and _is_trained(row):
            network = {n: v for n, v in row.options.items() if n.startswith(("backbone.", "embed"))}
            networks[json.dumps(network, sort_keys=True, default=str)].append(row.runs)
    options = [json.loads(one) for one in networks]
    names, baselines = differing_options(options), []
    for values, runs in zip(options, map(pd.concat, networks.values()), strict=True):
        label = ", ".join(f"{name} {format_option(values.get(name))}" for name in names)
        if ours := estimates(runs, metrics, "untrained_"):
            baselines.append(Row(key, {}, ours=ours, label=label, title=UNTRAINED))
    return baselines


def _build_families(rows: Sequence[Row], metric: str, source: str | None) -> list[Family]:
    """Returns the tests among rows of one section, a family per set of equal conditions.

    Runs of no paper are one family: conditions in which they differ are columns of their table.
    """
    families: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if metric in row.ours and row.ours[metric].n > 1:
            conditions = CONDITIONS if source else ()
            families[tuple(str(row.options.get(name)) for name in conditions)].append(row)
    return [
        Family(
            metric,
            same,
            compare.pair_tests([(r.key, r.ours[metric]) for r in same], metric, source),
        )
        for same in families.values()
        if 2 <= len(same) <= compare.MAX_ROWS
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
