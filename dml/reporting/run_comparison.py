"""Comparison of two runs: options that differ, scores, curves, and a paired test over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from dml.core.errors import UserError
from dml.core.metric_names import is_retrieval_metric, metric_label
from dml.reporting.list_tables import GAP, Column, format_table
from dml.reporting.option_columns import ENDS_NOT_COMPARED, common_names, group_key
from dml.reporting.option_texts import differing_options, format_option
from dml.reporting.run_curves import draw_curves, read_curves
from dml.reporting.run_groups_by_seed import group_by_seed, pair_by_seed
from dml.reporting.run_list import ListedRun


@dataclass(frozen=True)
class PairedTest:
    """Paired t-test over the seeds that two groups of runs share.

    Attributes:
        seeds: of the pairs, at least two.
        mean: mean difference, second − first, in points of percent.
        p_value: two-sided; None if all differences are equal.
    """

    seeds: tuple[int, ...]
    mean: float
    p_value: float | None


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


def paired_test(
    first: Sequence[ListedRun], second: Sequence[ListedRun], metric: str = "map_at_r"
) -> PairedTest | None:
    """Returns the test of the difference second − first over common seeds; None below two."""
    pairs = pair_by_seed(first, second)
    pairs = [(a, b) for a, b in pairs if metric in a.scores and metric in b.scores]
    if len(pairs) < 2:
        return None
    from scipy import stats  # late: it takes half a second to import

    a, b = ([100 * pair[side].scores[metric] for pair in pairs] for side in (0, 1))
    differences = [y - x for x, y in zip(a, b, strict=True)]
    p_value = None
    if max(differences) - min(differences) > 1e-9:
        p_value = float(stats.ttest_rel(b, a).pvalue)
    seeds = tuple(int(pair[0].seed) for pair in pairs)
    return PairedTest(seeds, sum(differences) / len(differences), p_value)


def _describe_test(first: ListedRun, second: ListedRun, runs: Sequence[ListedRun]) -> str:
    """Returns a line about the paired test of the groups of two runs."""
    groups = {group_key(same[0]): same for same in group_by_seed(runs)}
    keys = [group_key(run) for run in (first, second)]
    if keys[0] == keys[1]:
        return "paired test: the runs differ only in seed and repeats"
    found = paired_test(groups.get(keys[0], ()), groups.get(keys[1], ()))
    if found is None:
        return "paired test: needs finished runs of both with two or more common seeds"
    seeds = ", ".join(map(str, found.seeds))
    p_value = "all differences are equal" if found.p_value is None else f"p = {found.p_value:.3g}"
    return f"paired t-test of MAP@R over seeds {seeds}: {found.mean:+.2f} points, {p_value}"
