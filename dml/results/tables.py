"""Tables for the terminal, Markdown and HTML: columns of texts, formatted once for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from textwrap import wrap

from rich.text import Text

from dml.runs.folder.stored_run import StoredRun

STYLES = {  # of the terminal, by the kind of a cell
    "best": "bold", "finished": "green", "running": "cyan", "searching": "cyan",
    "stopped": "yellow", "empty": "yellow", "failed": "red", "damaged": "red",
}  # fmt: skip
JOINED = "options"  # title of the column that joins options without columns of their own
MIN_WORDS = 30  # characters of that column
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

    @property
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
    texts = [
        " ".join(f"{title}={cell}" for title, cell in zip(options, row, strict=True) if cell)
        for row in zip(*options.values(), strict=True)
    ]
    joined = [Column(JOINED, texts)] if texts else []
    ranks = sorted({one.rank for one in (*before, *after)} | {0}, reverse=True)
    tried = [(apart, 0, rank) for rank in ranks if rank > 1 or not options]
    tried += [(joined, MIN_WORDS, rank) for rank in ranks]
    for middle, least, rank in tried:
        left, right = ([one for one in side if one.rank <= rank] for side in (before, after))
        needed = [min(one.width, least) if least else one.width for one in middle]
        others = [one.width for one in (*left, *right)]
        if sum(width + GAP for width in (*others, *needed)) - GAP <= width:
            break
    return [*left, *middle, *right]


def terminal_table(table: Table, width: int) -> Text:
    """Returns a table without vertical lines, which is easy to read and to copy.

    A column titled `options` wraps. rich's own tables take a second for 500 rows.
    """
    rest = width - sum(one.width + GAP for one in table.columns if one.title != JOINED)
    columns = [(one, max(rest, 8) if one.title == JOINED else one.width) for one in table.columns]
    if not columns:
        return Text(table.title)
    head = (" " * GAP).join(_align(one, one.title, size) for one, size in columns)
    rule = Text("─" * len(head), "dim")
    lines = [Text(table.title)] if table.title else []
    lines += [Text(head.rstrip(), "bold"), rule]
    for place, row in enumerate(table.rows):
        if table.below and place == len(table.rows) - table.below:
            lines.append(rule)
        parts = [
            wrap(cell, size) or [""] if one.title == JOINED else [cell]
            for (one, size), cell in zip(columns, row, strict=True)
        ]
        kinds = [cell.kind for cell in row]
        for texts in zip_longest(*parts, fillvalue=""):
            line = Text()
            for (one, size), text, kind in zip(columns, texts, kinds, strict=True):
                line.append(_align(one, text, size), STYLES.get(kind))
                line.append(" " * GAP)
            line.rstrip()
            lines.append(line)
    lines += [Text(line, "dim") for line in wrap(table.caption, width)]
    return Text("\n").join(lines)


def _align(column: Column, text: str, width: int) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


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
