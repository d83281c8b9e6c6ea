"""Tables of runs that fit the terminal: all runs, and groups of runs that differ only in seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from dml.core.metric_names import metric_label
from dml.core.progress import format_epoch
from dml.results.option_columns import common_names, given_name, option_columns
from dml.results.run_groups_by_seed import SeedGroup
from dml.results.run_list import ListedRun, State

STYLES = {
    State.FINISHED: "green",
    State.RUNNING: "cyan",
    State.SEARCHING: "cyan",
    State.STOPPED: "yellow",
    State.EMPTY: "yellow",
    State.FAILED: "red",
    State.DAMAGED: "red",
}
MIN_WORDS = 30  # characters of the column that joins options without columns of their own
JOINED = "options"
GAP = 2  # characters between columns


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: in the header.
        cells: one per row.
        rank: columns of the highest rank are left out first where space is short; 0: never.
        right: whether cells are aligned at the right.
        styles: one per row.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    right: bool = False
    styles: Sequence[str] = field(default_factory=tuple)

    @property
    def width(self) -> int:
        """Characters of the longest cell."""
        return max(map(len, [self.title, *self.cells]))


def fit_columns(
    before: Sequence[Column],
    options: Mapping[str, Sequence[str]],
    after: Sequence[Column],
    width: int,
) -> list[Column]:
    """Returns the columns that fit into a width: options apart, or joined in one column.

    Args:
        before, after: the other columns.
        options: title → cells.
        width: characters of the terminal.
    """
    apart = [Column(title, cells) for title, cells in options.items()]
    ranks = sorted({one.rank for one in (*before, *after)} | {0}, reverse=True)
    kept = {
        rank: [[one for one in side if one.rank <= rank] for side in (before, after)]
        for rank in ranks
    }
    for left, right in (kept[rank] for rank in ranks if rank > 1 or not options):
        if _total([*left, *apart, *right]) <= width:
            return [*left, *apart, *right]
    joined = _join(options)
    for left, right in kept.values():
        free = width - _total([*left, *right]) - GAP
        if all(free >= min(one.width, MIN_WORDS) for one in joined):
            return [*left, *joined, *right]
    left, right = kept[0]
    return [*left, *joined, *right]


def _join(options: Mapping[str, Sequence[str]]) -> list[Column]:
    """Returns the options as one column of `lr=0.001 epochs=60`; none for no options."""
    rows = [
        " ".join(f"{title}={cell}" for title, cell in zip(options, row, strict=True) if cell != "")
        for row in zip(*options.values(), strict=True)
    ]
    return [Column(JOINED, rows)] if rows else []


def _total(columns: Sequence[Column]) -> int:
    return sum(one.width + GAP for one in columns) - GAP


def format_table(columns: Sequence[Column], width: int, title: str = "") -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    A column titled `options` wraps. rich's own tables take a second for 500 rows.

    Args:
        columns: of equally many cells.
        width: characters of the terminal.
        title: line above the table.
    """
    rest = width - sum(one.width + GAP for one in columns if one.title != JOINED)
    widths = [one.width if one.title != JOINED else max(rest, 8) for one in columns]
    heads = [_align(one, one.title, width) for one, width in zip(columns, widths, strict=True)]
    head = (" " * GAP).join(heads)
    lines = [Text(title)] if title else []
    lines += [Text(head.rstrip(), "bold"), Text("─" * len(head), "dim")]
    for place in range(len(columns[0].cells)):
        cells = [
            wrap(one.cells[place], width) or [""] if one.title == JOINED else [one.cells[place]]
            for one, width in zip(columns, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            line = Text()
            for one, part, width in zip(columns, parts, widths, strict=True):
                line.append(_align(one, part, width), one.styles[place] if one.styles else None)
                line.append(" " * GAP)
            line.rstrip()
            lines.append(line)
    return Text("\n").join(lines)


def _align(column: Column, text: str, width: int) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def run_table(runs: Sequence[ListedRun], width: int) -> list[Text]:
    """Returns the table of a list of runs, and the problems below it."""
    before = [
        Column("id", [run.id for run in runs]),
        Column("state", [run.state for run in runs], styles=[STYLES[run.state] for run in runs]),
        *name_column(runs),
    ]
    after = [
        *seed_column(runs),
        *score_columns(runs),
        Column("epoch", [epoch_of(run) for run in runs], 4, True),
        Column("age", [format_age(run.age) for run in runs], 3, True),
        Column("size", [format_size(run.size) for run in runs], 6, True),
    ]
    columns = fit_columns(before, option_columns(runs), after, width)
    count = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    names = common_names(runs)
    table = format_table(columns, width, f"{count}: {names}" if names else count)
    problems = [Text(f"{run.id}  {run.problem}", "red") for run in runs if run.problem]
    return [table, *problems]


def score_columns(runs: Sequence[ListedRun]) -> list[Column]:
    """Returns the score that selects the epoch, and MAP@R and R@1 of the test images."""
    test = {
        "MAP@R": [percent(run.scores.get("map_at_r")) for run in runs],
        "R@1": [percent(run.scores.get("recall_at_1")) for run in runs],
    }
    selected = {run.selected_by for run in runs if run.selected_by}
    columns = [
        Column(title, cells, 2 + 3 * n, True) for n, (title, cells) in enumerate(test.items())
    ]
    scores = [percent(run.score) for run in runs]
    if selected == {"map_at_r on test"}:
        return [Column("MAP@R", scores, 0, True), columns[1]]
    if len(selected) == 1:
        metric, _, where = next(iter(selected)).partition(" on ")
        title = f"{metric_label(metric).replace('Recall', 'R')} {where[:3]}."
    else:
        title = "selected"
    return [Column(title, scores, 0, True), *columns]


def best_table(groups: Sequence[SeedGroup], width: int) -> list[Text]:
    """Returns the table of groups of runs that differ only in seed, best first."""
    runs = [group.runs[0] for group in groups]
    before = [
        Column("rank", [str(group.rank) for group in groups], 0, True),
        *name_column(runs),
    ]
    scores = ["-" if one.score is None else one.score.format() for one in groups]
    metrics = {one.runs[0].selected_by for one in groups}
    alone = len(metrics) == 1
    title = metric_label(next(iter(metrics)).partition(" ")[0]) if alone else "selected"
    after = [
        Column("runs", [str(len(one.runs)) for one in groups], 0, True),
        Column(title, scores, 0, True),
        *_test_columns(groups, metrics),
        Column("ids", [_ids(one) for one in groups], 6),
    ]
    columns = fit_columns(before, option_columns(runs), after, width)
    ranking = f"{next(iter(metrics))} images" if alone else "the score that selects the epoch"
    about = f"percent, mean ± standard deviation over seeds; ranked by {ranking}"
    return [format_table(columns, width, common_names(runs)), Text(about, "dim")]


def _test_columns(groups: Sequence[SeedGroup], metrics: set[str]) -> list[Column]:
    columns = [
        Column("R@1", [one.format_test("recall_at_1") for one in groups], 3, True),
    ]
    if metrics != {"map_at_r on test"}:
        cells = [one.format_test("map_at_r") for one in groups]
        columns.insert(0, Column("test MAP@R", cells, 2, True))
    return columns


def _ids(group: SeedGroup) -> str:
    ids = [run.id for run in group.runs[:2]]
    return " ".join([*ids, "…"] if len(group.runs) > 2 else ids)


def name_column(runs: Sequence[ListedRun]) -> list[Column]:
    """Returns the column of names given with `name=`; none if all runs have the same or none."""
    names = [given_name(run)[:24] for run in runs]
    return [Column("name", names, 1)] if len(set(names)) > 1 else []


def seed_column(runs: Sequence[ListedRun]) -> list[Column]:
    """Returns the column of seeds; none if all are equal."""
    seeds = ["" if run.seed is None else str(run.seed) for run in runs]
    return [Column("seed", seeds, 0, True)] if len(set(seeds)) > 1 else []


def percent(value: float | None) -> str:
    """Returns a score 0–1 in percent; empty for None."""
    return "" if value is None else f"{100 * value:.2f}"


def epoch_of(run: ListedRun) -> str:
    """Returns best (last, if unfinished) and number of epochs."""
    return "" if run.epoch is None else f"{format_epoch(run.epoch)}/{run.epochs}"


def terminal() -> Console:
    """Returns the console for tables; colors only on a terminal."""
    return Console(highlight=False)


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit: `3 d`, `2 h`, `5 min` or `0 s`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def format_size(count: int) -> str:
    """Returns a number of bytes as `12 MB`, in powers of 1000."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= length:
            return f"{count / length:.{1 if count < 10 * length else 0}f} {unit}"
    return f"{count} B"
