"""Report of one experiment: rows by data and protocol, tests, baselines, missing cells."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dml.config.identity import identity, method_name
from dml.config.schema import ExperimentConfig
from dml.core.counts import count_of
from dml.core.installation import shell_command
from dml.core.metric_names import ACCURACIES, MEANS_OF_CATEGORIES, is_score, metric_label
from dml.core.option_values import EXTRA_METRICS, SEEN_CLASSES
from dml.core.statistics import Estimate
from dml.results import compare
from dml.results.catalog import Cell
from dml.results.frame import (
    IMAGES,
    Runs,
    comparable,
    differing_options,
    estimates,
    format_option,
    join_runs,
    join_some,
    make_runs,
    short_names,
    varied_options,
)
from dml.results.pretraining import Pretraining, find_pretraining
from dml.results.published import (
    LOSS_NAMES,
    PublishedResult,
    ResultKey,
    find_results,
    parse_setting,
    read_result,
    rows_of,
)
from dml.runs.console import DASH
from dml.runs.folder.stored_run import StoredRun, find_runs, read_run

UNTRAINED = "untrained"  # the method whose runs train nothing
OF_TEST_IMAGES = (
    "data.root", "data.reader.split_seed", "data.classes", "data.images_per_class_at_most",
    "data.crop", "data.images", "data.query_gallery", "data.background", "data.exif_orientation",
    "data.skip_corrupt", "transform.size", "transform.test_resize", IMAGES,
)  # fmt: skip
NETWORKS = "networks"  # `experiment.rows` of tables with a row per network
NO_RUNS = make_runs(())


@dataclass(frozen=True)
class Score:
    """A metric of a row: our estimate, the published result, their comparison; None if absent."""

    ours: Estimate | None = None
    published: PublishedResult | None = None
    comparison: compare.Comparison | None = None


NO_SCORE = Score()


@dataclass(eq=False)
class Row:
    """One method under one setting.

    Attributes:
        key: what it was, or would be, measured on.
        options: that make its configuration.
        method: its name in tables and figures.
        cell: cell of the experiment that its runs belong to; None without a cell.
        position: of the cell in the experiment; infinite without a cell.
        runs: a table row per run and repeat; none if it has not been run.
        caveats: see `dml.results.compare`.
        scores: by metric, those with an estimate or a published result.
        label: what distinguishes it from rows of the same key.
    """

    key: ResultKey
    options: Mapping[str, Any]
    method: str
    cell: Cell | None = None
    position: float = math.inf
    runs: Runs = NO_RUNS
    caveats: list[compare.Caveat] = field(default_factory=list)
    scores: dict[str, Score] = field(default_factory=dict)
    label: str = ""

    @property
    def name(self) -> str:
        """Method and label."""
        return f"{self.method} ({self.label})" if self.label else self.method

    @property
    def missing(self) -> Cell | None:
        """Its cell, if that has not been run."""
        return self.cell if self.runs.table.empty else None

    @property
    def repeats(self) -> list[int]:
        """The different numbers of repeats of its metrics, in order."""
        numbers = {score.ours.n for score in self.scores.values() if score.ours}
        return sorted(numbers)

    @cached_property
    def stored(self) -> list[StoredRun]:
        """Its runs, in the order of their seeds."""
        return self.runs.select(self.runs.table.sort_values("seed", kind="stable")).distinct

    @property
    def pretraining(self) -> Pretraining | None:
        """What is known of its network's pretraining images."""
        return find_pretraining(self.key.backbone, self.key.data)

    def score(self, metric: str) -> Score:
        """Returns the score of a metric; an empty one if there is none."""
        return self.scores.get(metric, NO_SCORE)

    def option_text(self, name: str) -> str:
        """Returns the text of an option, or of the run's `name=`; a dash if it is not set."""
        if name == "name":
            return ", ".join(filter(None, self.runs.table["name"].unique())) or DASH
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

    @property
    def all_rows(self) -> list[Row]:
        """Its rows, and then its baselines."""
        return [*self.rows, *self.baselines]


@dataclass(frozen=True)
class Report:
    """Runs, tables and tests of an experiment.

    Attributes:
        about: its description; `source` is None for a folder of runs of no paper.
        cells: its runs as planned; none for runs of no experiment.
        runs: its runs in any state, local and contributed.
        sections: its rows.
        missing: cells without a comparable run.
        command: command that runs all of it.
    """

    about: ExperimentConfig
    cells: Sequence[Cell]
    runs: Runs
    sections: Sequence[Section]
    missing: Sequence[Cell]
    command: str

    @property
    def rows(self) -> list[Row]:
        """Rows of all sections."""
        rows: list[Row] = []
        for section in self.sections:
            rows += section.rows
        return rows

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the finished runs."""
        return self.runs.table.query("state == 'finished'")

    @property
    def problems(self) -> list[str]:
        """A line for every folder that is left out, and a line that counts unfinished runs."""
        table = self.runs.table
        damaged = table.query("state == 'damaged'")
        lines = [f"left out: {run.folder}: {run.problem}" for run in damaged.itertuples()]
        unfinished = len(table.query("state != 'damaged' and state != 'finished'"))
        if unfinished:
            count = count_of(unfinished, "run")
            lines.append(f"not finished: {count}; {shell_command('runs')} lists them")
        return lines

    @property
    def status(self) -> str:
        """Progress in words."""
        cells = len(self.cells)
        if cells:
            return f"{cells - len(self.missing)} of {cells} cells run"
        frame = self.frame
        if frame.empty:
            return "drawn by a script" if self.about.script else "no runs"
        configurations = count_of(frame.configuration.nunique(), "configuration")
        runs = count_of(frame.folder.nunique(), "run")
        return f"{configurations}, {runs}"


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
    runs = make_runs(_read_stored(about.id, root, contributed))
    if about.source is None:  # which measures to print is up to the runs
        possible = (*ACCURACIES, *EXTRA_METRICS, *MEANS_OF_CATEGORIES, *runs.custom_metrics)
        measured = [name for name in possible if name in runs.table]
        about = about.model_copy(update={"metrics": about.metrics + measured})
    finished = runs.table[runs.table.state == "finished"]
    rows = _build_rows(runs.select(finished), cells, about)
    done = set()
    for row in rows:
        if not row.runs.table.empty and compare.is_comparable(row.caveats):
            done.add(row.position)
    missing = [cell for position, cell in enumerate(cells) if position not in done]
    command = f"{shell_command('train')} experiment={about.id}"
    if root != Path("outputs"):
        command += f" outputs={root}"
    return Report(about, cells, runs, _build_sections(rows, about), missing, command)


def _read_stored(name: str, root: Path, contributed: Iterable[StoredRun]) -> list[StoredRun]:
    """Returns the runs of an experiment; of equal runs the local one, if it is finished."""
    of_others = {}
    for run in contributed:
        if run.config and run.config.experiment == name:
            of_others[run.folder.name] = run
    stored = dict(of_others)
    for folder in find_runs(root / name):
        run = read_run(folder)
        if run.summary or run.folder.name not in of_others:
            stored[run.folder.name] = run
    return list(stored.values())


def metric_name(metric: str) -> str:
    """Returns a metric's name in tables and figures: `MAP@R`, `best epoch`."""
    label = metric_label(metric)
    return label if is_score(metric) else label.replace("_", " ")


def main_metric(about: ExperimentConfig) -> str:
    """Returns the metric that is tested and drawn: the first score."""
    return next(filter(is_score, about.metrics), about.metrics[0])


def _build_rows(runs: Runs, cells: Sequence[Cell], about: ExperimentConfig) -> list[Row]:
    """Returns the rows of the cells in their order, run or not, then of runs that fit no cell."""
    planned = _plan_rows(cells)
    rows = []
    for (_, evaluation), table in runs.table.groupby(["configuration", "evaluation"], sort=False):
        rows.append(_measured_row(runs.select(table), str(evaluation), planned, about))
    done = {row.position for row in rows}
    rows += [row for row in planned if row.position not in done]
    rows.sort(key=attrgetter("position"))
    for row in rows:
        _add_scores(row, about)
    if about.rows == NETWORKS:
        rows += _published_rows(rows, about)
        for row in rows:
            row.method = row.key.backbone
    _add_labels(rows, about)
    return rows


def _plan_rows(cells: Sequence[Cell]) -> list[Row]:
    """Returns a row without runs per cell and evaluation."""
    rows = []
    for position, cell in enumerate(cells):
        options = comparable(identity(cell.options))
        for key in cell.result_keys():
            name = LOSS_NAMES.get(key.method, key.method)
            rows.append(Row(key, options, name, cell, position))
    return rows


def _measured_row(
    runs: Runs, evaluation: str, planned: Sequence[Row], about: ExperimentConfig
) -> Row:
    """Returns the row of runs of one configuration, with the cell that it differs least from."""
    first = runs.table.iloc[0]
    options = comparable(runs.options[0])
    key = ResultKey(
        first["data"],
        first.backbone,
        int(first.dim),
        first.protocol_id,
        evaluation,
        first.result_id,
        first.setting,
    )
    row = Row(key, options, LOSS_NAMES.get(key.method, key.method), runs=runs)
    if about.source is None:
        row.method = method_name(first.loss, first.method)
    if about.rows == NETWORKS:
        planned = [plan for plan in planned if plan.key.backbone == key.backbone]
    plan = _closest_plan(row, planned)
    planned_options = None
    if plan is not None:
        row.cell, row.position = plan.cell, plan.position
        planned_options = plan.options
    row.caveats = compare.list_caveats(runs, options, planned_options, about.source)
    return row


def _published_rows(rows: Sequence[Row], about: ExperimentConfig) -> Iterator[Row]:
    """Yields a row for each published result of networks that no cell has."""
    metric = main_metric(about)
    shown = set()
    datasets = set()
    for row in rows:
        datasets.add(row.key.data)
        result = row.score(metric).published
        if result is not None:
            shown.add(result.line)
    for line in rows_of("source", about.source or "", metric):
        result = read_result(line)
        is_asked = line["table"] in about.tables and line["dataset"] in datasets
        if is_asked and result.line not in shown:
            names = (line["protocol"], line["evaluation"], line["method"], line["setting"])
            key = ResultKey(line["dataset"], line["backbone"], None, *names)
            yield Row(key, {}, line["method"], scores={metric: Score(published=result)})


def _closest_plan(row: Row, planned: Sequence[Row]) -> Row | None:
    """Returns the planned row of the same method and data that differs in the fewest options."""
    closest = None
    fewest: float = math.inf
    for plan in planned:
        if plan.key.measured != row.key.measured:
            continue
        differing = len(differing_options([row.options, plan.options]))
        if differing < fewest:
            closest, fewest = plan, differing
    return closest


def _add_labels(rows: Sequence[Row], about: ExperimentConfig) -> None:
    """Adds what distinguishes rows of the same key: their settings and differing options."""
    by_key: dict[ResultKey, list[Row]] = defaultdict(list)
    for row in rows:
        key = row.key if about.source else replace(row.key, method=row.method)
        by_key[key].append(row)
    for key, same in by_key.items():
        options = [row.options for row in same]
        names = short_names(differing_options(options))
        setting = [f"{name} {value}" for name, value in parse_setting(key.setting).items()]
        for row in same:
            texts = list(setting)
            for name, short in names.items():
                texts.append(f"{short} {row.option_text(name)}")
            row.label = join_some(texts)


def _add_scores(row: Row, about: ExperimentConfig) -> None:
    """Adds the estimates of a row, the published results of its cell, and their comparison."""
    ours = estimates(row.runs.table, about.metrics)
    published = _published_results(row, about)
    repeats = max((estimate.n for estimate in ours.values()), default=0)
    first_result = next(iter(published.values()), None)
    row.caveats += compare.result_caveats(repeats, first_result)
    other = _describe_other_setting(row, first_result)
    if other:
        row.caveats.append(compare.Caveat("N", f"not compared: the published result has {other}"))
    for metric in about.metrics:
        score = Score(ours.get(metric), published.get(metric))
        if score.ours and score.published:
            compared = compare.compare(score.ours, score.published, row.caveats, metric)
            if _describe_other_setting(row, score.published):
                compared = compare.Comparison("not_compared")
            score = replace(score, comparison=compared)
        if score != NO_SCORE:
            row.scores[metric] = score


def _describe_other_setting(row: Row, published: PublishedResult | None) -> str:
    """Returns the setting of a published result if it is not the row's; else an empty text."""
    if published is None:
        return ""
    setting = parse_setting(published.setting)
    if setting == parse_setting(row.key.setting):
        return ""
    return join_some([f"{name} {value}" for name, value in setting.items()])


def _published_results(row: Row, about: ExperimentConfig) -> dict[str, PublishedResult]:
    """Returns metric → published result of a row's cell, whatever options the runs have.

    In a table of networks, one in another setting stands in for a number in the cell's setting.
    """
    results: dict[str, PublishedResult] = {}
    if row.cell is None or not about.source:
        return results
    key = replace(next(row.cell.result_keys()), evaluation=row.key.evaluation)
    for metric in about.metrics:
        matching = find_results(key, metric, about.source, about.tables)
        if not matching and about.rows == NETWORKS:
            matching = _in_other_settings(key, metric, about)
        if matching:
            results[metric] = matching[0]
    return results


def _in_other_settings(
    key: ResultKey, metric: str, about: ExperimentConfig
) -> list[PublishedResult]:
    """Returns the published results for a key in any setting."""
    source = about.source or ""
    settings = {row["setting"]: None for row in rows_of("source", source, metric)}
    results = []
    for setting in settings:
        results += find_results(replace(key, setting=setting), metric, source, about.tables)
    return results


def _build_sections(rows: Sequence[Row], about: ExperimentConfig) -> list[Section]:
    """Returns the sections with runs, then those with published results only."""
    by_key: dict[ResultKey, list[Row]] = defaultdict(list)
    for row in rows:
        key = replace(row.key, method="", setting="")
        if about.rows == NETWORKS:
            key = replace(key, backbone="", dim=None)
        by_key[key].append(row)
    with_runs, published_only = [], []
    for key, same in by_key.items():
        measured: set[str] = set()
        for row in same:
            measured.update(row.scores)
        metrics = [metric for metric in about.metrics if metric in measured]
        if not metrics:  # concatenated models have no steps to count, for example
            continue
        section = _build_section(key, same, metrics, about)
        if all(row.runs.table.empty for row in same):
            published_only.append(section)
        else:
            with_runs.append(section)
    return with_runs + published_only


def _build_section(
    key: ResultKey, rows: list[Row], metrics: Sequence[str], about: ExperimentConfig
) -> Section:
    """Returns the section of rows with one key, of which `metrics` have been measured."""
    trained = []
    untrained = []
    for row in rows:
        is_untrained = row.options.get("method.name") == UNTRAINED
        if is_untrained and about.rows != NETWORKS:
            untrained.append(row)
        else:
            trained.append(row)
    if not trained:
        trained, untrained = untrained, []
    runs = join_runs([row.runs for row in trained])
    table = runs.table
    settings = []
    if about.source is None:
        settings = varied_options(runs)
        if len(table["name"].unique()) > 1:
            settings.insert(0, "name")
        trained.sort(key=lambda row: (row.method, _sort_values(row, settings)))
    metric = main_metric(about)
    tested = []
    samples = []
    for row, estimate in _list_tested(trained, metric, about):
        tested.append(row)
        samples.append((row.key, estimate))
    tests = compare.pair_tests(samples, metric, about.source)
    trained_runs = runs.select(table[table["method"] != UNTRAINED])
    baselines = _untrained_rows(trained_runs, key, about.metrics)
    for row in untrained:
        baselines.append(replace(row, method="off the shelf"))
    title = _section_title(key, table, any(run.has_seen_classes for run in runs.distinct))
    return Section(title, trained, baselines, metrics, settings, tested, tests)


def _section_title(key: ResultKey, runs: pd.DataFrame, seen_classes: bool) -> str:
    """Returns data, backbone, embedding size, protocol and evaluation, and a common name."""
    names = runs["name"].unique()
    parts = [key.data, key.backbone]
    if key.dim:
        parts.append(f"{key.dim}-d")
    parts.append(key.protocol)
    if key.evaluation != "single":
        parts.append(key.evaluation)
    if seen_classes:
        parts.append(SEEN_CLASSES)
    if runs.stand_in.any():
        parts.append("stand-in data")
    if len(names) == 1 and names[0]:
        parts.append(f'"{names[0]}"')
    return ", ".join(filter(None, parts))


def _list_tested(
    rows: Sequence[Row], metric: str, about: ExperimentConfig
) -> list[tuple[Row, Estimate]]:
    """Returns the rows that are tested, with their estimates; none if they are too many."""
    tested = []
    for row in rows:
        ours = row.score(metric).ours
        if ours is None or ours.n < 2:
            continue
        if about.source is None or compare.is_comparable(row.caveats):
            tested.append((row, ours))
    return tested if len(tested) <= compare.MAX_ROWS else []


def _sort_values(row: Row, names: Sequence[str]) -> list[tuple]:
    """Returns the values of some options to sort by, numbers in their order before texts."""
    values: list[tuple] = []
    for name in names:
        value = row.options.get(name)
        if isinstance(value, int | float):
            values.append((0, value, ""))
        else:
            values.append((1, 0, str(value)))
    return values


def _untrained_rows(runs: Runs, key: ResultKey, metrics: Sequence[str]) -> list[Row]:
    """Returns a row per network and test images: scores before training, over seeds."""
    networks = [_options_before_training(options) for options in runs.options]
    names = differing_options(networks)
    labels = []
    for network in networks:
        texts = []
        for name in names:
            texts.append(f"{name} {format_option(network.get(name))}")
        labels.append(join_some(texts))
    rows = []
    for label, same in runs.table.groupby(np.array(labels, dtype=object), sort=False):
        ours = estimates(same, metrics, "untrained_")
        if ours:
            scores = {metric: Score(estimate) for metric, estimate in ours.items()}
            rows.append(Row(key, {}, UNTRAINED, scores=scores, label=str(label)))
    return rows


def _options_before_training(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that decide the scores of a network before training."""
    chosen = {}
    for name, value in options.items():
        if name.startswith(("backbone.", "embed")) or name in OF_TEST_IMAGES:
            chosen[name] = value
    return chosen
