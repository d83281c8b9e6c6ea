"""Settings: the options in which runs of no experiment differ, a column of their table each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dml.reporting.option_texts import differing_options, format_option, short_names
from dml.reporting.rows import Row
from dml.runs.console import DASH

# Options whose values depend on loss and method by default; a column only where rows of one method
# differ.
OF_METHODS = (
    *("loss.", "method.", "space."),
    *("optim.loss_lr", "data.sampler", "data.images_per_class"),
)
NAME = "name"  # given by users, and no option that decides the result
MAX_COLUMNS = 6  # further settings share one column
Columns = dict[str, Callable[[Row], str]]


def list_settings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns the dotted names of the options in which rows with runs differ, after any `name`.

    Of options with the same value in every row, such as two paths of one dataset, the first counts.
    """
    rows = [row for row in rows if row.group]
    found = {
        name
        for name in differing_options([row.options for row in rows])
        if not name.startswith(OF_METHODS)
    }
    for method in {row.method for row in rows}:
        found |= set(differing_options([row.options for row in rows if row.method == method]))
    by_texts: dict[tuple[str, ...], str] = {}
    for name in sorted(found, key=lambda name: (not name.startswith(OF_METHODS), name)):
        by_texts.setdefault(tuple(setting_text(row, name) for row in rows), name)
    named = (NAME,) if len({row.group.label for row in rows if row.group}) > 1 else ()
    return *named, *by_texts.values()


def setting_text(row: Row, name: str) -> str:
    """Returns the value of an option, or a dash where a row does not have it."""
    if name == NAME:
        return (row.group and row.group.label) or DASH
    return format_option(row.options[name]) if name in row.options else DASH


def setting_columns(names: Sequence[str]) -> Columns:
    """Returns the columns of some settings: header → text of a row."""
    shorts = short_names(names)
    columns: Columns = {
        shorts[name]: lambda row, name=name: setting_text(row, name)  # type: ignore[misc]
        for name in names[:MAX_COLUMNS]
    }
    if rest := names[MAX_COLUMNS:]:
        columns["other settings"] = lambda row: _list_values(row, rest, shorts)
    return columns


def describe_settings(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """Returns the rows with their settings as labels, as far as rows of their method differ."""
    rows, shorts = list(rows), short_names(names)
    labeled = []
    for row in rows:
        same = [other for other in rows if other.method == row.method]
        own = [name for name in names if len({setting_text(one, name) for one in same}) > 1]
        labeled.append(replace(row, label=_list_values(row, own, shorts)))
    return labeled


def sort_rows(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """Returns rows by method, then by settings, numbers in their order."""

    def place(row: Row) -> tuple:
        values = [row.options.get(name) for name in names]
        numbers = [(0, v, "") if isinstance(v, int | float) else (1, 0, str(v)) for v in values]
        return row.method, numbers

    return sorted(rows, key=place)


def _list_values(row: Row, names: Sequence[str], shorts: dict[str, str]) -> str:
    return ", ".join(f"{shorts[name]} {setting_text(row, name)}" for name in names)
