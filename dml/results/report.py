"""Report of one experiment: rows by what they were measured on, tests, baselines, missing cells."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dml.config.identity import identity, method_name
from dml.config.schema import ExperimentConfig
from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.option_values import EXTRA_METRICS
from dml.core.statistics import Estimate
from dml.results import compare
from dml.results.catalog import Cell
from dml.results.frame import (
    comparable,
    differing_options,
    estimate,
    format_option,
    make_frame,
    short_names,
)
from dml.results.published import PublishedResult, ResultKey, find_results, parse_setting
from dml.runs.console import DASH
from dml.runs.folder.stored_run import State, StoredRun, find_runs, read_run

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


@dataclass(frozen=True, eq=False)
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
    caveats: Sequence[compare.Caveat] = ()
    ours: Mapping[str, Estimate] = field(default_factory=dict)
    published: Mapping[str, PublishedResult] = field(default_factory=dict)
    comparisons: Mapping[str, compare.Comparison] = field(default_factory=dict)
    label: str = ""
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
    def stored(self) -> list[StoredRun]:
        """Its runs, in the order of their seeds."""
        if self.runs is None:
            return []
        return list(self.runs.drop_duplicates("folder").sort_values("seed", kind="stable").run)

    def option_text(self, name: str) -> str:
        """Returns the value of an option, or what was given with `name=`; a dash without one."""
        if name == "name":
            given = () if self.runs is None else filter(None, self.runs["name"].unique())
            return ", ".join(given) or DASH
        return format_option(self.options[name]) if name in self.options else DASH


@dataclass(frozen=True)
class Family:
    """Tests of all pairs of rows under equal conditions, by the positions of both rows."""

    metric: str
    rows: Sequence[Row]
    tests: Mapping[tuple[int, int], compare.PairTest]

    @property
    def shows_differences(self) -> bool:
        """True if any pair differs significantly, or the paper has marks to compare with."""
        return any(test.differs or test.paper for test in self.tests.values())


@dataclass(frozen=True)
class Section:
    """Rows that were measured on the same.

    Attributes:
        key: what they share (method and setting are empty).
        rows: in the order of the experiment.
        families: tests among them.
        named: metrics of the experiment.
        settings: dotted options in which runs of no experiment differ, a column each.
        baselines: networks before training, or off the shelf.
    """

    key: ResultKey
    rows: Sequence[Row]
    families: Sequence[Family]
    named: Sequence[str]
    settings: Sequence[str] = ()
    baselines: Sequence[Row] = ()

    @property
    def runs(self) -> pd.DataFrame:
        """Rows of the table of runs."""
        tables = [row.runs for row in self.rows if row.runs is not None]
        return pd.concat(tables) if tables else make_frame(())

    @property
    def metrics(self) -> list[str]:
        """Those that any row has: the K of Recall@K differ by dataset."""
        found = {name for row in self.rows for name in (*row.ours, *row.published)}
        return [name for name in self.named if name in found]

    @property
    def title(self) -> str:
        """Data, backbone, embedding size, protocol and evaluation, as far as they tell anything."""
        key, runs = self.key, self.runs
        dim = "" if key.dim is None else f"{key.dim}-d"
        evaluation = "" if key.evaluation == "single" else key.evaluation
        stand_in = "stand-in data" if runs.stand_in.any() else ""
        names = runs["name"].unique()
        name = f'"{names[0]}"' if len(names) == 1 and names[0] else ""
        parts = [key.data, key.backbone, dim, key.protocol, evaluation, stand_in, name]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Report:
    """Everything known about an experiment.

    Attributes:
        about: its description.
        cells: its runs as planned; none for runs of no experiment.
        runs: its run folders in any state, own ones and contributed ones.
        frame: table of the finished ones.
        sections: its rows.
        missing: cells without a run that follows the experiment.
        command: command that runs all of it.
    """

    about: ExperimentConfig
    cells: Sequence[Cell]
    runs: Sequence[StoredRun]
    frame: pd.DataFrame
    sections: Sequence[Section]
    missing: Sequence[Cell]
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
    def damaged(self) -> list[StoredRun]:
        """Folders that the report leaves out."""
        return [run for run in self.runs if run.state == State.DAMAGED]

    @property
    def unfinished(self) -> list[StoredRun]:
        """Runs without a summary."""
        return [run for run in self.runs if run.state not in (State.DAMAGED, State.FINISHED)]

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
    runs = {folder.name: read_run(folder) for folder in find_runs(root / about.id)}
    for run in contributed:
        if run.config is not None and run.config.experiment == about.id:
            runs.setdefault(run.folder.name, run)
    finished = [run for run in runs.values() if run.summary is not None]
    frame = make_frame(finished, timed="epoch_seconds" in about.metrics)
    if about.source is None:  # which measures to print is up to the runs
        more = [name for name in EXTRA_METRICS if name in frame]
        about = about.model_copy(update={"metrics": [*about.metrics, *more]})
    rows = _build_rows(frame, cells, about)
    done = {id(r.cell) for r in rows if r.runs is not None and compare.is_comparable(r.caveats)}
    words = ["python", "train.py", f"experiment={about.id}", *outputs_override(root)]
    return Report(
        about=about,
        cells=cells,
        runs=list(runs.values()),
        frame=frame,
        sections=_build_sections(rows, about),
        missing=[cell for cell in cells if id(cell) not in done],
        command=shlex.join(words),
    )


def outputs_override(root: Path) -> tuple[str, ...]:
    """Returns the override that a command needs if run folders are not in `outputs`."""
    return () if root == Path("outputs") else (f"outputs={root}",)


def swept_options(cells: Sequence[Cell]) -> list[str]:
    """Returns the dotted names of the options (not groups of options) that cells vary."""
    values: dict[str, set[str]] = defaultdict(set)
    for cell in cells:
        for override in cell.overrides:
            name, _, value = override.lstrip("+").partition("=")
            values[name].add(value)
    return [name for name, found in values.items() if len(found) > 1 and "." in name]


def _build_rows(frame: pd.DataFrame, cells: Sequence[Cell], about: ExperimentConfig) -> list[Row]:
    """Returns the rows of the cells in their order, run or not, then of runs that fit no cell."""
    planned = [(next(cell.result_keys()), comparable(identity(cell.config))) for cell in cells]
    found: dict[int | None, list[Row]] = defaultdict(list)
    for _, runs in frame.groupby("configuration", sort=False):
        options = comparable(runs.options.iloc[0])
        keys = {evaluation: _key(some.iloc[0]) for evaluation, some in runs.groupby("evaluation")}
        number = _closest_cell(next(iter(keys.values())), options, planned)
        cell, expected = (None, None) if number is None else (cells[number], planned[number][1])
        caveats = list(compare.list_caveats(runs, expected, options))
        if cell is None and about.source and not runs.stand_in.iloc[0]:
            caveats.append(compare.Caveat("O", "not part of the experiment"))
        title = "" if about.source else method_name(runs.loss.iloc[0], runs.method.iloc[0])
        for evaluation in runs.evaluation.unique():
            some = runs[runs.evaluation == evaluation]
            row = Row(keys[evaluation], options, cell, some, caveats, title=title)
            found[number].append(row)
    rows = []
    for number, cell in enumerate(cells):
        missing = [Row(key, planned[number][1], cell) for key in cell.result_keys()]
        rows += found[number] or missing
    swept, methods = swept_options(cells), [key.method for key, _ in planned]

    def place(row: Row) -> tuple[int, list]:
        known = row.key.method in methods
        return methods.index(row.key.method) if known else len(methods), _sortable(row, swept)

    rows += sorted(found[None], key=place)
    return [_add_numbers(row, about) for row in _add_labels(rows, swept)]


def _key(run: Any) -> ResultKey:
    """Returns what a row of the table of runs was measured on."""
    place = (run["data"], run.backbone, int(run.dim), run.protocol_id, run.evaluation)
    return ResultKey(*place, run.result_id, run.setting)


def _closest_cell(
    key: ResultKey, options: Mapping[str, Any], planned: Sequence[tuple[ResultKey, Mapping]]
) -> int | None:
    """Returns the cell of the same data, method and setting that differs in the fewest options."""
    distances = [
        (len(differing_options([options, expected])), number)
        for number, (of, expected) in enumerate(planned)
        if (of.data, of.method, of.setting) == (key.data, key.method, key.setting)
    ]
    return min(distances)[1] if distances else None


def _sortable(row: Row, names: Sequence[str]) -> list[tuple]:
    """Returns the values of some options, numbers in their order before texts."""
    values = [row.options.get(name) for name in names]
    return [(0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values]


def _add_labels(rows: Sequence[Row], swept: Sequence[str]) -> list[Row]:
    """Returns the rows with labels that distinguish those of the same key.

    The setting of the published table comes first, then the options in which they differ.
    """
    labeled = []
    for row in rows:
        parts = [f"{name} {value}" for name, value in parse_setting(row.key.setting).items()]
        names = differing_options([other.options for other in rows if other.key == row.key])
        names.sort(key=lambda name: name not in swept)
        shorts = list(short_names(names).items())[:MAX_LABEL_OPTIONS]
        parts += [f"{short} {row.option_text(name)}" for name, short in shorts]
        if len(names) > MAX_LABEL_OPTIONS:
            parts.append(f"and {len(names) - MAX_LABEL_OPTIONS} more options")
        labeled.append(replace(row, label=", ".join(parts)))
    return labeled


def _add_numbers(row: Row, about: ExperimentConfig) -> Row:
    """Returns the row with its estimates, and the published results of its cell."""
    ours, published = {}, {}
    for metric in about.metrics:
        if row.runs is not None and (found := estimate(row.runs, metric)):
            ours[metric] = found
        if row.cell is not None and about.source:
            # The published result is the cell's, whatever options the run has.
            keys = {key.evaluation: key for key in row.cell.result_keys()}
            key = keys.get(row.key.evaluation, row.key)
            for result in find_results(key, metric, about.source, about.tables)[:1]:
                published[metric] = result
    repeats = max((one.n for one in ours.values()), default=0)
    caveats = [*row.caveats, *compare.result_caveats(repeats, next(iter(published.values()), None))]
    if row.runs is not None and set(compare.TIMES) & set(about.metrics):
        caveats.append(compare.Caveat("N", "times depend on the device and are not compared"))
    comparisons = {
        metric: compare.compare(ours[metric], published[metric], caveats, metric)
        for metric in about.metrics
        if metric in ours and metric in published
    }
    return replace(row, ours=ours, published=published, comparisons=comparisons, caveats=caveats)


def _build_sections(rows: Sequence[Row], about: ExperimentConfig) -> list[Section]:
    """Returns the sections with runs, then those with published results only."""
    shelf = [row for row in rows if row.cell is None and not _is_trained(row)]
    tables = {_place(row.key) for row in rows if row not in shelf}
    by_key: dict[ResultKey, list[Row]] = defaultdict(list)
    for row in rows:
        # Networks off the shelf are baselines of the tables of their data, if there are any.
        if row not in shelf or _place(row.key) not in tables:
            by_key[replace(row.key, method="", setting="")].append(row)
    sections = [_build_section(key, same, shelf, about) for key, same in by_key.items()]
    # Concatenated models have no steps to count, for example.
    sections = [section for section in sections if section.metrics]
    return sorted(sections, key=lambda section: section.runs.empty)


def _is_trained(row: Row) -> bool:
    return row.options.get("method.name") != UNTRAINED


def _place(key: ResultKey) -> tuple[str, ...]:
    """Returns what a network off the shelf shares with the table that lists it as a baseline."""
    return key.data, key.backbone, key.protocol, key.evaluation


def _build_section(
    key: ResultKey, rows: list[Row], shelf: Sequence[Row], about: ExperimentConfig
) -> Section:
    settings: list[str] = []
    if about.source is None:
        settings = _list_settings(rows)
        rows = sorted(rows, key=lambda row: (row.method, _sortable(row, settings)))
    tested = next(filter(is_score, about.metrics), about.metrics[0])
    families = _build_families(rows, tested, about.source)
    baselines = _untrained_rows(rows, key, about.metrics)
    for row in shelf:
        if _place(row.key) == _place(key) and row not in rows:
            baselines.append(replace(row, title="off the shelf", label=f"{row.key.dim}-d"))
    return Section(key, rows, families, about.metrics, settings, baselines)


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
    networks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.runs is not None and _is_trained(row):
            network = {n: v for n, v in row.options.items() if n.startswith(("backbone.", "embed"))}
            networks[json.dumps(network, sort_keys=True, default=str)].append(row)
    options = [json.loads(one) for one in networks]
    baselines = []
    for own, same in zip(options, networks.values(), strict=True):
        names = differing_options(options)
        label = ", ".join(f"{name} {format_option(own.get(name))}" for name in names)
        runs = pd.concat([row.runs for row in same])
        found = {metric: estimate(runs, f"untrained_{metric}") for metric in metrics}
        if ours := {metric: one for metric, one in found.items() if one}:
            baselines.append(Row(key, {}, ours=ours, label=label, title=UNTRAINED))
    return baselines


def _build_families(rows: Sequence[Row], metric: str, source: str | None) -> list[Family]:
    """Returns the tests among rows of one section, a family per set of equal conditions.

    Runs of no paper are one family: conditions in which they differ are columns of their table.
    """
    by_conditions: dict[tuple[str, ...], list[tuple[Row, Estimate]]] = defaultdict(list)
    for row in rows:
        if (ours := row.ours.get(metric)) and ours.n > 1:
            conditions = CONDITIONS if source else ()
            values = tuple(str(row.options.get(name)) for name in conditions)
            by_conditions[values].append((row, ours))
    families = []
    for same in by_conditions.values():
        if 2 <= len(same) <= compare.MAX_ROWS:
            tested, samples = zip(*same, strict=True)
            tests = compare.pair_tests(samples, [row.key for row in tested], metric, source)
            families.append(Family(metric, tested, tests))
    return families


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
