"""Runs as tables: all of them, and configurations by score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
from rich.filesize import decimal
from rich.text import Text

from dml.core.metric_names import SAME, metric_label
from dml.core.plain_text import encode
from dml.core.progress import format_epoch
from dml.results.frame import GROUPS, SEEN, Runs, common_names, estimate, option_columns
from dml.results.nearest import find_nearest
from dml.results.tables import Cell, Column, Table, terminal_table

PUBLISHED = "published (what differs)"
RANKED = ["data", "images", "protocol", "selected_by"]  # runs are ranked if these are equal
RANKED_NAMES = {
    "data": "dataset",
    "images": "set of images",
    "protocol": "protocol",
    "selected_by": "selection",
}
# Where space is short, columns of the highest rank are left out first (`Column.rank`). Options in
# which runs differ have the ranks 20, 30, 40 …: two of them stay longer than the last five columns.
RANKS = {
    "name": 1, "data": 2, "MAP@R": 3, "protocol": 4, "method": 5, "backbone": 6, "age": 7,
    "epoch": 8, "untrained": 31, "P@1": 32, "size": 33, PUBLISHED: 34, "ids": 35,
}  # fmt: skip


def run_table(runs: Runs, width: int, order: str = "") -> list[Text]:
    """Returns the table of runs, and a line for each problem; `order` is for the title."""
    table = runs.table

    def texts(metric: str) -> list[str]:
        return [_number_text(value) for value in table.get(metric, ())]

    columns = [_column("id", table.id)]
    columns.append(_column("state", [Cell(state, state) for state in table.state]))
    columns += _option_columns(runs)
    columns += _seed_column(table)
    columns += _score_columns(table, texts)
    columns += _published_column(runs)
    columns.append(_epoch_column(table))
    columns.append(_column("age", list(map(format_age, table.age)), right=True))
    columns.append(_column("size", list(map(decimal, table["size"])), right=True))
    title = "1 run" if len(table) == 1 else f"{len(table)} runs"
    title += order
    names = common_names(runs)
    if names:
        title += f": {names}"
    shown = [terminal_table(Table(title, columns), width)]
    for run in table[table.problem != ""].itertuples():
        shown.append(Text(f"{run.id}  {run.problem}", "red"))
    return shown


def _column(title: str, texts: Sequence[str], right: bool = False) -> Column:
    return Column(title, texts, RANKS.get(title, 0), right)


def _number_text(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2f}"


def _seed_column(runs: pd.DataFrame) -> Iterator[Column]:
    """Yields the column of seeds, unless all runs have the same."""
    seeds = runs.seed.astype("string").fillna("")
    if seeds.nunique() > 1:
        yield _column("seed", seeds, right=True)


def _epoch_column(runs: pd.DataFrame) -> Column:
    """Returns the best epoch, or the last of an unfinished run, and the planned number."""
    texts = []
    for epoch, planned in zip(runs.epoch, runs.epochs, strict=True):
        texts.append("" if pd.isna(epoch) else f"{format_epoch(epoch)}/{planned}")
    return _column("epoch", texts, right=True)


def _published_column(runs: Runs) -> Iterator[Column]:
    """Yields the column of the nearest published numbers, if any run has one."""
    texts = [find_nearest(run) or "" for run in runs.by_row]
    if any(texts):
        yield _column(PUBLISHED, texts)


def _score_columns(runs: pd.DataFrame, texts: Callable[[str], list[str]]) -> list[Column]:
    """Returns the score that selects the epoch, and test scores, before training too.

    Args:
        runs: rows of the table.
        texts: returns the cells for a metric; an empty list leaves its column out.
    """
    selected = _selected_title(runs)
    metrics = {
        selected: "score",
        "untrained": "untrained_map_at_r",
        "MAP@R": "map_at_r",
        "P@1": "precision_at_1",
    }
    metrics[selected] = "score"  # also where it is `MAP@R` of test images
    columns = []
    for title, metric in metrics.items():
        cells = texts(metric)
        if cells:
            rank = 0 if metric == "score" else RANKS[title]
            columns.append(Column(title, cells, rank, right=True))
    return columns


def _selected_title(runs: pd.DataFrame) -> str:
    """Returns the title of the score that selects: `MAP@R val.`, or `MAP@R` of test images."""
    selected = runs.selected_by.dropna().unique()
    if len(selected) != 1:
        return "selected"
    metric, _, classes = selected[0].partition(" on ")
    label = metric_label(SAME[0] if metric in SAME else metric)
    return label if classes == "test" else f"{label} {classes[:3]}."


def _option_columns(runs: Runs) -> list[Column]:
    """Returns columns of the names and options in which runs differ."""
    columns = []
    names = []
    for name in runs.table["name"].astype(object).fillna(""):
        names.append(" ".join(name.split())[:24])
    if len(set(names)) > 1:
        columns.append(_column("name", names))
    next_rank = 20
    for title, texts in option_columns(runs).items():
        if any(text.endswith(SEEN) for text in texts):
            columns.append(Column(title, texts))  # however narrow the table
        elif title in GROUPS:
            columns.append(_column(title, texts))
        else:
            columns.append(Column(title, texts, next_rank))
            next_rank += 10
    return columns


def rank_runs(runs: Runs) -> list[Runs]:
    """Returns the rows of each finished configuration, best first within equal `RANKED`."""
    table = runs.table
    finished = table[(table.state == "finished") & (table.evaluation != "concatenated")]
    groups = [rows for _, rows in finished.groupby("configuration", sort=False)]
    groups.sort(key=_rank_key)
    return list(map(runs.select, groups))


def _rank_key(rows: pd.DataFrame) -> tuple:
    return (*rows[RANKED].iloc[0], -rows["score"].mean())


def best_table(groups: Sequence[Runs], width: int) -> list[Text]:
    """Returns the table of configurations (`rank_runs`), joined over seeds and repeats."""
    tables = [runs.table for runs in groups]

    def texts(metric: str) -> list[str]:
        return [] if "untrained" in metric else [_estimate_text(rows, metric) for rows in tables]

    first = pd.concat([rows.head(1) for rows in tables])
    runs = groups[0].select(first)
    ranks = first.groupby(RANKED).cumcount() + 1
    counts = []
    ids = []
    for rows in tables:
        different = list(rows.id.unique())
        counts.append(str(len(different)))
        ids.append(_first_ids(different))
    columns = [_column("rank", list(map(str, ranks)), right=True)]
    columns += _option_columns(runs)
    columns.append(_column("runs", counts, right=True))
    columns += _score_columns(first, texts)
    columns += _published_column(runs)
    columns.append(_column("ids", ids))
    by = " images or ".join(first.selected_by.unique())
    spread = "± 95 % interval over seeds and repeats, both values of two"
    text = f"percent; {spread}; ranked{describe_groups(first)} by {by} images"
    return [terminal_table(Table(common_names(runs), columns, text), width)]


def _estimate_text(rows: pd.DataFrame, metric: str) -> str:
    estimated = estimate(rows, metric)
    return "" if estimated is None else estimated.format(2)


def _first_ids(ids: Sequence[str]) -> str:
    text = " ".join(ids[:2])
    return f"{text} …" if len(ids) > 2 else text


def describe_groups(runs: pd.DataFrame) -> str:
    """Returns ` for each <names>` of what runs of `RANKED` differ in; empty for equal ones."""
    varied = [RANKED_NAMES[name] for name in RANKED if runs[name].nunique() > 1]
    return f" for each {' and '.join(varied)}" if varied else ""


def to_json(runs: Runs) -> str:
    """Returns a list of objects: all options, scores in percent, age in seconds, size in bytes."""
    plain = runs.table.map(_in_utf8)
    plain.insert(plain.columns.get_loc("configuration"), "options", runs.options)
    plain = plain.drop(columns="configuration")
    return str(plain.to_json(orient="records", indent=2, force_ascii=False))


def _in_utf8(value: Any) -> Any:
    return encode(value).decode() if isinstance(value, str) else value


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit: `3 d`, `2 h`, `5 min` or `0 s`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
