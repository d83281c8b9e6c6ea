"""The layout of tables for the terminal, Markdown and HTML; their columns are chosen elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, zip_longest
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

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Neighboring columns of one group, with its name; other columns alone."""
        groups = groupby(self.columns, lambda column: column.group or column.title)
        return [(name, list(columns)) for name, columns in groups]


def terminal_table(table: Table, width: int) -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    Columns of the highest rank are left out until it fits, and named below; where that is not
    enough, the cells of the widest are wrapped. rich's own tables take a second for 500 rows.
    """
    columns = [_show_column(column) for column in table.columns]
    while (excess := sum(len(GAP) + c.width for c in columns) - len(GAP) - width) > 0:
        if (rank := max(column.rank for column in columns)) == 0:
            break
        columns = [column for column in columns if column.rank < rank]
    sizes = [column.width for column in columns]
    widest = sizes.index(max(sizes))
    sizes[widest] = max(sizes[widest] - max(excess, 0), NARROWEST)

    def lines(cells: Sequence[str], style: str = "") -> Iterator[Text]:
        texts = [wrap(c, n) if len(c) > n else [c] for c, n in zip(cells, sizes, strict=True)]
        for parts in zip_longest(*texts, fillvalue=""):
            line = Text(style=style)
            for part, cell, column, size in zip(parts, cells, columns, sizes, strict=True):
                text = part.rjust(size) if column.right else part.ljust(size)
                line.append(text + GAP, STYLES.get(getattr(cell, "kind", "")))
            line.rstrip()
            yield line

    rule = Text("─" * (sum(sizes) + len(GAP) * (len(sizes) - 1)), "dim")
    rows = [[*lines(cells)] for cells in zip(*(one.cells for one in columns), strict=True)]
    rows.insert(len(rows) - table.below, [rule] if table.below else [])
    shown = [Text(show_line(table.title))] if table.title else []
    shown += [*lines([one.title for one in columns], "bold"), rule, *chain(*rows)]
    ranks = {column.rank for column in columns}
    left_out = dict.fromkeys(c.group or c.title for c in table.columns if c.rank not in ranks)
    more = [f"no space for: {join_some([*left_out], 8)}"] if left_out else []
    texts = chain(*(wrap(text, width) for text in (show_line(table.caption), *more)))
    return Text("\n").join([*shown, *(Text(text, "dim") for text in texts)])


def _show_column(column: Column) -> Column:
    """Returns the column with its control characters shown, a line a cell."""
    cells = [_show_cell(cell) for cell in column.cells]
    return replace(column, title=show_line(column.title), cells=cells)


def _show_cell(cell: str) -> Cell:
    kind = getattr(cell, "kind", "")
    return Cell(show_line(cell), kind)


def markdown_table(table: Table) -> list[str]:
    """Returns the lines of a table, with title and caption."""
    titles = [_markdown_cell(Cell(one.title)) for one in table.columns]
    ruler = ["---:" if one.right else "---" for one in table.columns]
    lines = [titles, ruler]
    for row in table.rows:
        lines.append([_markdown_cell(cell) for cell in row])
    body = [f"| {' | '.join(line)} |" for line in lines]
    title, caption = markdown_text(table.title), markdown_text(table.caption)
    return [f"### {title}", "", *body, "", caption, ""]


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.replace("|", "/"))
    return f"**{text}**" if cell.kind == "best" else text
