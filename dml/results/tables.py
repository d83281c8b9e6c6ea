"""The layout of tables for the terminal, Markdown and HTML; their columns are chosen elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from operator import attrgetter
from textwrap import wrap

from rich.text import Text

from dml.core.plain_text import markdown_text, show_line
from dml.results.frame import join_some
from dml.runs.folder.stored_run import StoredRun

STYLES = {  # of the terminal, by the kind of a cell
    "best": "bold", "finished": "green", "running": "cyan", "searching": "cyan",
    "stopped": "yellow", "empty": "yellow", "failed": "red", "damaged": "red",
}  # fmt: skip
GAP = "  "  # between columns
NARROWEST = 10  # characters of a column that is wrapped


class Cell(str):
    """A text of a table.

    Attributes:
        kind: decides its color: `best`, a verdict, a state; class of the cell in HTML.
        hint: what HTML shows in addition when the mouse rests on it.
        runs: whose provenance HTML unfolds.
    """

    kind: str
    hint: str
    runs: Sequence[StoredRun]

    def __new__(
        cls, text: str, kind: str = "", hint: str = "", runs: Sequence[StoredRun] = ()
    ) -> Cell:
        """Returns the text with its attributes."""
        cell = super().__new__(cls, text)
        cell.kind, cell.hint, cell.runs = kind, hint, runs
        return cell


@dataclass(frozen=True, eq=False)
class Column:
    """One column.

    Attributes:
        title: in the header.
        cells: a text per row.
        rank: columns of the highest rank are left out first where space is short; 0: never.
        right: whether cells are aligned at the right.
        group: metric whose columns stay together: ours, published, difference.
    """

    title: str
    cells: Sequence[str]
    rank: int = 0
    right: bool = False
    group: str = ""

    @cached_property
    def width(self) -> int:
        """Characters of the longest cell."""
        return max(map(len, [self.title, *self.cells]))

    @property
    def group_name(self) -> str:
        """Name of its group; its title if it has none."""
        return self.group or self.title


@dataclass(frozen=True)
class Table:
    """Columns of equal length, with a title, a caption, and a line above the last `below` rows."""

    title: str
    columns: Sequence[Column]
    caption: str = ""
    below: int = 0

    @property
    def rows(self) -> list[list[Cell]]:
        """The cells by row."""
        rows = []
        for cells in _rows(self.columns):
            rows.append(list(map(_as_cell, cells)))
        return rows

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Neighboring columns of one group, with its name; other columns alone."""
        groups = []
        for name, columns in groupby(self.columns, attrgetter("group_name")):
            groups.append((name, list(columns)))
        return groups


def _rows(columns: Iterable[Column]) -> list[tuple[str, ...]]:
    cells = [column.cells for column in columns]
    return list(zip(*cells, strict=True))


def _as_cell(text: str) -> Cell:
    return text if isinstance(text, Cell) else Cell(text)


def terminal_table(table: Table, width: int) -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    Columns of the highest rank are left out until it fits, and named below; where that is not
    enough, the cells of the widest are wrapped. rich's own tables take a second for 500 rows.
    """
    columns = _choose_columns([_show_column(column) for column in table.columns], width)
    sizes = _column_sizes(columns, width)
    rule = Text("─" * _total_width(sizes), "dim")
    lines = []
    if table.title:
        lines.append(Text(show_line(table.title)))
    titles = [column.title for column in columns]
    lines += _row_lines(titles, columns, sizes, "bold")
    lines.append(rule)
    rows = _rows(columns)
    first_below = len(rows) - table.below
    for position, cells in enumerate(rows):
        if position == first_below:
            lines.append(rule)
        lines += _row_lines(cells, columns, sizes)
    lines += _wrapped_lines(show_line(table.caption), width)
    left_out = _names_left_out(table.columns, columns)
    if left_out:
        lines += _wrapped_lines(f"not shown (narrow terminal): {join_some(left_out, 8)}", width)
    return Text("\n").join(lines)


def _choose_columns(columns: list[Column], width: int) -> list[Column]:
    """Returns the columns that fit, or else those that are never left out."""
    while _total_width([column.width for column in columns]) > width:
        rank = max([column.rank for column in columns])
        if rank == 0:
            break
        columns = [column for column in columns if column.rank < rank]
    return columns


def _column_sizes(columns: Sequence[Column], width: int) -> list[int]:
    """Returns the widths of columns; the widest one is narrowed until they fit."""
    sizes = [column.width for column in columns]
    widest = sizes.index(max(sizes))
    excess = max(_total_width(sizes) - width, 0)
    sizes[widest] = max(sizes[widest] - excess, NARROWEST)
    return sizes


def _total_width(sizes: Sequence[int]) -> int:
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


def _names_left_out(columns: Sequence[Column], shown: Sequence[Column]) -> list[str]:
    """Returns the different names of the columns, or of their groups, that are not shown."""
    ranks = {column.rank for column in shown}
    names: dict[str, None] = {}
    for column in columns:
        if column.rank not in ranks:
            names[column.group_name] = None
    return list(names)


def _wrapped_lines(text: str, width: int) -> Iterator[Text]:
    """Yields the lines of a text below a table."""
    for line in wrap(text, width):
        yield Text(line, "dim")


def _row_lines(
    cells: Sequence[str], columns: Sequence[Column], sizes: Sequence[int], style: str = ""
) -> Iterator[Text]:
    """Yields the lines of a row, several where a cell is wrapped."""
    wrapped = []
    for cell, size in zip(cells, sizes, strict=True):
        is_long = len(cell) > size
        wrapped.append(_wrap_cell(cell, size) if is_long else [cell])
    for parts in zip_longest(*wrapped, fillvalue=""):
        line = Text(style=style)
        for part, cell, column, size in zip(parts, cells, columns, sizes, strict=True):
            align = part.rjust if column.right else part.ljust
            line.append(align(size) + GAP, STYLES.get(_as_cell(cell).kind))
        line.rstrip()
        yield line


def _wrap_cell(text: str, size: int) -> list[str]:
    """Returns the lines of a cell, broken between words, or after a `.` or `_` of a long name."""
    parts: list[str] = []
    for word in text.split():
        is_long = len(word) > size
        parts += re.split(r"(?<=[._])(?=.)", word) if is_long else [word]
        parts[-1] += " "
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > size:
            lines.append("")
        lines[-1] += part
    broken = []
    for line in lines:
        broken += wrap(line, size)  # a part may still be too long
    return broken


def _show_column(column: Column) -> Column:
    """Returns the column with its control characters shown, a line a cell."""
    cells = []
    for cell in column.cells:
        cells.append(Cell(show_line(cell), _as_cell(cell).kind))
    return replace(column, title=show_line(column.title), cells=cells)


def markdown_table(table: Table) -> list[str]:
    """Returns the lines of a table, with title and caption."""
    titles = []
    ruler = []
    for column in table.columns:
        titles.append(_markdown_cell(Cell(column.title)))
        ruler.append("---:" if column.right else "---")
    lines = [f"### {markdown_text(table.title)}", "", _markdown_row(titles), _markdown_row(ruler)]
    for row in table.rows:
        lines.append(_markdown_row(map(_markdown_cell, row)))
    lines += ["", markdown_text(table.caption), ""]
    return lines


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.replace("|", "/"))
    return f"**{text}**" if cell.kind == "best" else text
