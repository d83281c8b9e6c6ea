"""Small tables as text, in the form of pandas, which is not loaded for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ESCAPES = str.maketrans({"\t": "\\t", "\r": "\\r", "\n": "\\n"})  # so that a row is a line


def format_table(columns: Mapping[str, Iterable[Any]]) -> str:
    """Returns a table as text: titles, then a line for each row, columns aligned to the right.

    Floating-point numbers have four decimals. A column without any value (None) is left out.

    Args:
        columns: values by title, equally many in each.
    """
    texts = []
    for title, values in columns.items():
        if any(value is not None for value in values):
            # pandas sets titles of numbers and truth values apart by a space
            is_text = any(isinstance(value, str) for value in values)
            cells = [title if is_text else f" {title}", *map(_format, values)]
            width = max(map(len, cells))
            texts.append([cell.rjust(width) for cell in cells])
    return "\n".join(" ".join(row) for row in zip(*texts, strict=True))


def fit_table(columns: Mapping[str, Sequence[Any]], width: int) -> str:
    """Returns a table as `format_table`, for a terminal.

    Where it is too wide, columns with the same value in all rows become a line below it.

    Args:
        columns: values by title, equally many in each, in one row or more.
        width: of the terminal, in columns.
    """
    shown, below = dict(columns), []
    for title, values in reversed(list(columns.items())):
        if _width(shown) <= width:
            break
        is_constant = values[0] is not None and all(value == values[0] for value in values)
        if is_constant and len(shown) > 1:
            del shown[title]
            below.append(f"{title} {_format(values[0])}")
    table = format_table(shown)
    return f"{table}\nin all rows: {', '.join(reversed(below))}" if below else table


def _width(columns: Mapping[str, Sequence[Any]]) -> int:
    return len(format_table(columns).partition("\n")[0])


def _format(value: Any) -> str:
    if value is None:
        return "NaN"
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        value = float(value)
    if isinstance(value, float):
        return "NaN" if value != value else f"{value:.4f}"
    return str(value).translate(ESCAPES)
