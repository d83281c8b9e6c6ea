"""Tables for the terminal, Markdown and HTML: columns of texts, formatted once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from textwrap import wrap

from rich.text import Text

from dml.runs.folder.stored_run import StoredRun

STYLES = {  # of the terminal, by the kind of a cell
    "best": "bold", "finished": "green", "running": "cyan", "searching": "cyan",
    "stopped": "yellow", "empty": "yellow", "failed": "red", "damaged": "red",
}  # fmt: skip
GAP = "  "  # between columns


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


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: in the header.
        cells: one per row.
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
        """Characters of the longest cell, and of the gap after it."""
        return max(map(len, [self.title, *self.cells])) + len(GAP)


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
        rows = zip(*(column.cells for column in self.columns), strict=True)
        return [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in rows]

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Neighboring columns of one group, with its name; other columns alone."""
        groups = groupby(self.columns, lambda column: column.group or column.title)
        return [(name, list(columns)) for name, columns in groups]


def terminal_table(table: Table, width: int) -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    Columns of the highest rank are left out until it fits; groups of columns that still do not fit
    continue below. rich's own tables take a second for 500 rows.
    """
    columns = list(table.columns)
    while any(one.rank for one in columns) and sum(one.width for one in columns) > width:
        columns.remove(max(reversed(columns), key=lambda one: one.rank))
    parts: list[list[Column]] = [columns[:1]]
    for _, group in Table("", columns[1:]).groups:
        if sum(one.width for one in (*parts[-1], *group)) > width + len(GAP) and parts[-1][1:]:
            parts.append(columns[:1])
        parts[-1] = [*parts[-1], *group]
    lines = [Text(table.title)] if table.title else []
    for part in parts if columns else ():
        rule = Text("─" * (sum(one.width for one in part) - len(GAP)), "dim")
        rows = [_line(part, cells) for cells in zip(*(one.cells for one in part), strict=True)]
        above = len(rows) - table.below
        lines += [_line(part, [one.title for one in part], "bold"), rule, *rows[:above]]
        lines += [rule, *rows[above:]] if table.below else []
    return Text("\n").join([*lines, *(Text(text, "dim") for text in wrap(table.caption, width))])


def _line(columns: Sequence[Column], cells: Sequence[str], style: str = "") -> Text:
    text = Text(style=style)
    for column, cell in zip(columns, cells, strict=True):
        size = column.width - len(GAP)
        shown = cell.rjust(size) if column.right else cell.ljust(size)
        text.append(shown + GAP, STYLES.get(getattr(cell, "kind", "")))
    text.rstrip()
    return text


def markdown_table(table: Table) -> list[str]:
    """Returns the lines of a table, with title and caption."""
    ruler = ["---:" if one.right else "---" for one in table.columns]
    cells = [[f"**{cell}**" if cell.kind == "best" else cell for cell in row] for row in table.rows]
    lines = [[one.title for one in table.columns], ruler, *cells] if table.columns else []
    body = [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]
    texts = [f"### {table.title}", "", *body, "", table.caption, ""]
    return [escape(text, quote=False) for text in texts]
