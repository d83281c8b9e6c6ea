"""Comparison of two runs: options that differ, scores, curves, and a test over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from dml.core.errors import UserError
from dml.core.metric_names import is_retrieval_metric, metric_label
from dml.core.statistics import Estimate, welch
from dml.results.list_tables import GAP, Column, format_table
from dml.results.option_columns import ENDS_NOT_COMPARED, common_names, group_key
from dml.results.option_texts import differing_options, format_option
from dml.results.run_curves import draw_curves, read_curves
from dml.results.run_groups_by_seed import group_by_seed
from dml.results.run_list import ListedRun


def compare_runs(
    first: ListedRun, second: ListedRun, runs: Sequence[ListedRun], folder: Path, width: int
) -> list[Text]:
    """Returns tables and lines that compare two runs, and draws their curves.

    Args:
        first, second: readable runs.
        runs: all runs, among which those with other seeds are found for the test.
        folder: of the picture.
        width: characters of the terminal.

    Raises:
        UserError: the same run twice, or one that cannot be read.
    """
    for run in (first, second):
        if not run.options:
            raise UserError(
                f"compare: {run.id} is {run.state}: {run.problem or 'it has no config'}"
            )
    if first.folder.resolve() == second.folder.resolve():
        raise UserError(f"compare: {first.id} is one run; type two ids")
    shown: list[Text] = [_option_table(first, second, width)]
    if table := _score_table(first, second, width):
        shown += [Text(), table]
    shown += [Text(), Text(_describe_test(first, second, runs))]
    curves = read_curves([first, second])
    if curves and first.selected_by == second.selected_by:
        path = folder / f"{first.id}-{second.id}.png"
        draw_curves(curves, first.selected_by, common_names([first, second]), path)
        shown.append(Text(f"curves  {path}"))
    return shown


def _option_table(first: ListedRun, second: ListedRun, width: int) -> Text:
    names = [
        name
        for name in differing_options([first.options, second.options])
        if not name.endswith(ENDS_NOT_COMPARED)
        and (first.options.get(name), second.options.get(name)) != (None, None)
    ]
    if not names:
        return Text("no option differs that decides the result")
    room = max((width - max(map(len, names))) // 2 - GAP, 8)
    cells = [
        [format_option(run.options.get(name, ""))[-room:] for name in names]
        for run in (first, second)
    ]
    columns = [Column("option", names), Column(first.id, cells[0]), Column(second.id, cells[1])]
    return format_table(columns, width)


def _score_table(first: ListedRun, second: ListedRun, width: int) -> Text | None:
    metrics = [name for name in first.scores if name in second.scores and is_retrieval_metric(name)]
    if not metrics:
        return None
    values = [[100 * run.scores[name] for name in metrics] for run in (first, second)]
    differences = [f"{b - a:+.2f}" for a, b in zip(*values, strict=True)]
    texts = [[f"{value:.2f}" for value in column] for column in values]
    return format_table(
        [
            Column("test, percent", [metric_label(name) for name in metrics]),
            Column(first.id, texts[0], 0, True),
            Column(second.id, texts[1], 0, True),
            Column("difference", differences, 0, True),
        ],
        width,
    )


def _describe_test(first: ListedRun, second: ListedRun, runs: Sequence[ListedRun]) -> str:
    """Returns a line about Welch's test between the groups of two runs.

    Runs of equal seeds are not paired: what a seed draws differs between losses.
    """
    groups = {group_key(same[0]): same for same in group_by_seed(runs)}
    keys = [group_key(run) for run in (first, second)]
    if keys[0] == keys[1]:
        return "no test: the runs differ only in seed and repeats"
    scores = [
        tuple(100 * run.scores["map_at_r"] for run in groups.get(key, ()) if run.scores)
        for key in keys
    ]
    if min(map(len, scores)) < 2:
        return "no test: it needs two or more seeds of both"
    a, b = map(Estimate, scores)
    p_value = welch(a.moments, b.moments)
    shown = "all scores are equal" if p_value is None else f"p = {p_value:.3g}"
    return (
        f"MAP@R of {a.n} and {b.n} seeds: {b.mean - a.mean:+.2f} points, {shown} (Welch's t-test)"
    )
