"""Tables for the terminal, Markdown and HTML: columns of texts, formatted once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from textwrap import wrap

import pandas as pd
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
        """Characters of the longest cell."""
        return max(map(len, [self.title, *self.cells]))


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


def table_width(columns: Sequence[Column]) -> int:
    """Returns the number of characters of a line."""
    return sum(one.width + len(GAP) for one in columns) - len(GAP)


def terminal_table(table: Table, width: int) -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    Columns of the highest rank are left out first until it fits. rich's own tables take a second
    for 500 rows.
    """
    columns = list(table.columns)
    while any(one.rank for one in columns) and table_width(columns) > width:
        columns.remove(max(reversed(columns), key=lambda one: one.rank))
    table = replace(table, columns=columns)

    def line(cells: Sequence[str], style: str = "") -> Text:
        text = Text(style=style)
        for column, cell in zip(table.columns, cells, strict=True):
            align = str.rjust if column.right else str.ljust
            text.append(align(cell, column.width), STYLES.get(getattr(cell, "kind", "")))
            text.append(GAP)
        text.rstrip()
        return text

    lines = [Text(table.title)] if table.title else []
    if table.columns:
        rule = Text("─" * table_width(table.columns), "dim")
        rows = [*map(line, table.rows)]
        own = len(rows) - table.below
        lines += [line([one.title for one in table.columns], "bold"), rule, *rows[:own]]
        lines += [rule, *rows[own:]] if table.below else []
        lines += [Text(text, "dim") for text in wrap(table.caption, width)]
    return Text("\n").join(lines)


def markdown_table(table: Table, heading: str = "") -> list[str]:
    """Returns the lines of a table, with title and caption."""
    ruler = ["---:" if one.right else "---" for one in table.columns]
    cells = [[f"**{cell}**" if cell.kind == "best" else cell for cell in row] for row in table.rows]
    lines = [[one.title for one in table.columns], ruler, *cells] if table.columns else []
    escaped = [[escape(cell, quote=False).replace("|", "\\|") for cell in line] for line in lines]
    body = [f"| {' | '.join(line)} |" for line in escaped]
    texts = [escape(text, quote=False) for text in (heading + table.title, table.caption)]
    return [texts[0], "", *([*body, "", texts[1], ""] if body else [])]


def csv_text(frame: pd.DataFrame) -> str:
    """Returns a table as CSV; what a spreadsheet would compute begins with an apostrophe."""
    return frame.map(lambda cell: f"'{cell}" if _is_formula(cell) else cell).to_csv(index=False)


def _is_formula(cell: object) -> bool:
    if not (isinstance(cell, str) and cell.startswith(("=", "+", "-", "@"))):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False
