"""Small tables as text, in the form of pandas, which is not loaded for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def _format(value: Any) -> str:
    if value is None:
        return "NaN"
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        value = float(value)
    if isinstance(value, float):
        return "NaN" if value != value else f"{value:.4f}"
    return str(value).translate(ESCAPES)
