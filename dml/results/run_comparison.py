"""Several runs in comparison: options in which they differ, scores, tests and curves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd
from rich.text import Text

from dml.core.counts import count_of
from dml.core.errors import UserError
from dml.core.metric_names import is_score, tabled
from dml.core.option_values import SEEN_CLASSES
from dml.core.statistics import Estimate, holm, welch
from dml.results.frame import NAMED, Runs, differing_options, estimate, format_option, join_runs
from dml.results.run_curves import draw_curves
from dml.results.run_list import RANKED, RANKED_NAMES
from dml.results.tables import Column, Table, terminal_table
from dml.runs.folder.stored_run import StoredRun

NO_TEST = "no test: it needs two configurations, and two or more seeds or repeats of both"
OTHER_CLASSES = (
    f"no scores: those of some runs are of {SEEN_CLASSES} (protocol=closed_set), those of others "
    f"of unseen ones"
)
CORRECTED = (
    "differences of mean MAP@R over all seeds and repeats of a configuration: Welch's t-tests, p "
    "corrected for all of them by Holm's method"
)
PICTURE_IDS = 4  # in the name of a picture of a comparison


def compare_runs(compared: Sequence[Runs], runs: Runs, folder: Path, width: int) -> list[Text]:
    """Returns tables and lines that compare two or more runs, and draws their curves.

    Runs of equal seeds are not paired in the test: what a seed draws differs between losses.

    Args:
        compared: of `find_run`, at least two; without scores if some of them have seen the test
            classes, and others not.
        runs: all rows: those of the same configurations are tested.
        folder: of the picture.
        width: characters of the terminal.

    Raises:
        UserError: a run cannot be read.
    """
    chosen = join_runs(compared)
    for run in chosen.by_row:
        if not run.options:
            raise UserError(f"compare: {run.id} is {run.state}: {run.problem or 'no config yet'}")
    is_pair = len(compared) == 2
    rows = _option_rows(chosen.by_row)
    seen = {run.has_seen_classes for run in chosen.by_row}
    scores = _score_rows(chosen.table) if len(seen) == 1 else []
    rows += scores
    titles = ["option; test, percent", *chosen.table.id, "difference"]
    columns = []
    for number, (title, texts) in enumerate(zip(titles, zip(*rows, strict=True), strict=True)):
        rank = max(number - 2, 0)  # the first two runs are always shown
        if title != titles[-1]:
            columns.append(Column(title, texts, rank))
        elif is_pair:
            columns.append(Column(title, texts))
    shown = [terminal_table(Table("", columns, "", len(scores)), width), Text()]
    if len(seen) > 1:
        return [*shown, Text(OTHER_CLASSES)]
    shown.append(_test_compared(chosen.table, runs.table, width))
    if chosen.table.selected_by.nunique() == 1:
        shown += draw_curves(chosen, folder / f"{_comparison_name(chosen.table.id)}.png")
    return shown


def _test_compared(chosen: pd.DataFrame, runs: pd.DataFrame, width: int) -> Text:
    """Returns the tests of compared runs, or why there is none.

    Args:
        chosen: a row per compared run.
        runs: all rows, in which their configurations may have other seeds and repeats.
        width: characters of the terminal.
    """
    differing = [RANKED_NAMES[name] for name in RANKED if chosen[name].nunique() > 1]
    if differing:
        names = " and ".join(differing)
        return Text(f"no test: the runs differ in {names}, not in their methods alone")
    if len(chosen) == 2:
        return Text(_test_configurations(chosen.configuration, runs))
    return _test_pairs(chosen, runs, width)


def _comparison_name(ids: Sequence[str]) -> str:
    """Returns the name of the picture of a comparison: its ids, the first ones of many."""
    name = "-".join(list(ids)[:PICTURE_IDS])
    if len(ids) <= PICTURE_IDS:
        return name
    others = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:8]
    return f"{name}-and-{len(ids) - PICTURE_IDS}-{others}"


def _option_rows(runs: Sequence[StoredRun]) -> list[tuple[str, ...]]:
    """Returns the options in which runs differ, with their values, and an empty difference."""
    rows: list[tuple[str, ...]] = []
    options = [run.options for run in runs]
    for name in differing_options(options):
        if not name.endswith(NAMED[1:]):
            values = [format_option(mapping.get(name, "")) for mapping in options]
            rows.append((name, *values, ""))
    if not rows:
        rows.append(("no option differs that decides the result", *[""] * len(runs), ""))
    return rows


def _score_rows(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """Returns the scores that runs have in common, and last minus first."""
    rows: list[tuple[str, ...]] = []
    common = runs.dropna(axis=1, how="any")
    for name, label in tabled(filter(is_score, common)).items():
        scores = common[name].to_list()
        texts = [f"{score:.2f}" for score in scores]
        rows.append((label, *texts, f"{scores[-1] - scores[0]:+.2f}"))
    return rows


def _test_configurations(configurations: Iterable[str], table: pd.DataFrame) -> str:
    """Returns the outcome of a test between the runs of two configurations."""
    first, second = configurations
    if first == second:
        return NO_TEST
    return _describe_test(_estimate_of(first, table), _estimate_of(second, table))


def _estimate_of(configuration: str, table: pd.DataFrame) -> Estimate | None:
    """Returns MAP@R of the models of a configuration."""
    of_models = table[table.evaluation != "concatenated"]
    return estimate(of_models[of_models.configuration == configuration], "map_at_r")


def _test_pairs(compared: pd.DataFrame, table: pd.DataFrame, width: int) -> Text:
    """Returns the tests of all pairs of configurations, with p corrected by Holm.

    Args:
        compared: a row for each run; those of one configuration count once.
        table: all rows.
        width: characters of the terminal.
    """
    pairs = []
    p_values = []
    for first, second in combinations(compared.drop_duplicates("configuration").itertuples(), 2):
        before = _estimate_of(str(first.configuration), table)
        after = _estimate_of(str(second.configuration), table)
        if before is None or after is None:
            continue
        p_value = welch(before.moments, after.moments)
        if p_value is not None:
            difference = f"{after.mean - before.mean:+.2f}"
            pairs.append((first.id, second.id, difference, f"{p_value:.3g}"))
            p_values.append(p_value)
    if not pairs:
        return Text(NO_TEST)
    rows = []
    for pair, corrected in zip(pairs, holm(p_values), strict=True):
        rows.append((*pair, f"{corrected:.3g}"))
    titles = ("from", "to", "difference", "p", "p, corrected")
    columns = []
    for number, (title, texts) in enumerate(zip(titles, zip(*rows, strict=True), strict=True)):
        columns.append(Column(title, texts, right=number > 1))
    return terminal_table(Table("", columns, CORRECTED), width)


def _describe_test(first: Estimate | None, second: Estimate | None) -> str:
    """Returns the outcome of Welch's test, or what it lacks."""
    if first is None or second is None or min(first.n, second.n) < 2:
        return NO_TEST
    p_value = welch(first.moments, second.moments)
    p = "all scores are equal" if p_value is None else f"p = {p_value:.3g}"
    difference = f"{second.mean - first.mean:+.2f} points"
    return (
        f"MAP@R of {first.n} and {count_of(second.n, 'model')}: {difference}, {p} (Welch's t-test)"
    )
