"""Tables for the terminal, Markdown and HTML: columns of texts, formatted once for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from textwrap import wrap

from rich.text import Text

from dml.runs.folder.stored_run import StoredRun

STYLES = {  # of the terminal, by the kind of a cell
    "best": "bold", "finished": "green", "running": "cyan", "searching": "cyan",
    "stopped": "yellow", "empty": "yellow", "failed": "red", "damaged": "red",
}  # fmt: skip
GAP = 2  # characters between columns


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
    """Columns of equally many cells, with a title above, a caption below, and a line above the
    last `below` rows."""

    title: str
    columns: Sequence[Column]
    caption: str = ""
    below: int = 0
    rows: Sequence[Sequence[Cell]] = field(init=False)

    def __post_init__(self) -> None:
        """Transposes the columns."""
        columns = (
            [c if isinstance(c, Cell) else Cell(c) for c in one.cells] for one in self.columns
        )
        rows = list(zip(*columns, strict=True))
        object.__setattr__(self, "rows", rows)


def fit_columns(columns: Sequence[Column], width: int) -> list[Column]:
    """Returns the columns that fit into a width: those of the highest rank are left out first."""
    kept = list(columns)
    while any(one.rank for one in kept) and table_width(kept) > width:
        kept.remove(max(reversed(kept), key=lambda one: one.rank))
    return kept


def table_width(columns: Sequence[Column]) -> int:
    """Returns the number of characters of a line."""
    return sum(one.width + GAP for one in columns) - GAP


def terminal_table(table: Table, width: int) -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    rich's own tables take a second for 500 rows.
    """
    lines = [Text(table.title)] if table.title else []
    if not table.columns:
        return lines[0]
    head = (" " * GAP).join(_align(one, one.title) for one in table.columns)
    rule = Text("─" * table_width(table.columns), "dim")
    lines += [Text(head.rstrip(), "bold"), rule]
    for place, row in enumerate(table.rows):
        if table.below and place == len(table.rows) - table.below:
            lines.append(rule)
        line = Text()
        for column, cell in zip(table.columns, row, strict=True):
            line.append(_align(column, cell), STYLES.get(cell.kind)).append(" " * GAP)
        line.rstrip()
        lines.append(line)
    lines += [Text(line, "dim") for line in wrap(table.caption, width)]
    return Text("\n").join(lines)


def _align(column: Column, text: str) -> str:
    return text.rjust(column.width) if column.right else text.ljust(column.width)


def markdown_table(table: Table) -> list[str]:
    """Returns the lines of a table, with title and caption."""
    if not table.columns:
        return [table.title, ""]
    ruler = ["---:" if one.right else "---" for one in table.columns]
    cells = [[f"**{cell}**" if cell.kind == "best" else cell for cell in row] for row in table.rows]
    lines = [[one.title for one in table.columns], ruler, *cells]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return [
        table.title,
        "",
        *(f"| {' | '.join(line)} |" for line in escaped),
        "",
        table.caption,
        "",
    ]
