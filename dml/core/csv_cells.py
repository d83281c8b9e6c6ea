"""Cells of CSV files that spreadsheets show as text and never compute."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from dml.core.text_columns import plain_text_columns

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile("'*[=+\\-@\t\r]")
_QUOTED_FORMULA = re.compile("'+[=+\\-@\t\r]")


@plain_text_columns()
def write_csv(table: pd.DataFrame) -> str:
    """Returns a table as CSV without formulas (`quote_formulas`) and without its index."""
    quoted = quote_formulas(table)
    titles = quoted.head(0)
    return _to_csv(titles, header=True) + _to_csv(quoted, header=False)


def _to_csv(table: pd.DataFrame, header: bool) -> str:
    text = str(table.to_csv(index=False, header=header))
    if "\r" not in text:
        return text
    # pandas does not quote it, and readers begin a row there.
    return str(table.to_csv(index=False, header=header, quoting=csv.QUOTE_ALL))


def write_csv_columns(columns: Mapping[str, Iterable[Any]]) -> str:
    """Returns the text of `write_csv` for the columns of a table, without pandas.

    Args:
        columns: values by title, equally many in each; None and NaN are empty cells.
    """
    titles = _write_rows([[_quote_formula(title) for title in columns]])
    rows = []
    for row in zip(*columns.values(), strict=True):
        rows.append([_as_cell(_quote_formula(value)) for value in row])
    return titles + _write_rows(rows)


def _write_rows(rows: Sequence[Sequence[str]]) -> str:
    has_returns = any("\r" in cell for row in rows for cell in row)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if has_returns:
        # readers begin a row there unless it is quoted
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows(rows)
    return text.getvalue()


def _as_cell(value: Any) -> str:
    if value is None or value != value:
        return ""
    is_number = hasattr(value, "dtype") and value.dtype.kind == "f"
    return str(float(value)) if is_number else str(value)


def quote_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table for CSV in which no cell or title is a formula of a spreadsheet.

    Texts that begin with `=`, `+`, `-`, `@`, a tab or a carriage return, and are no numbers, get a
    leading apostrophe; so do those with apostrophes before these signs, so that `unquote_formula`
    gives every text back.
    """
    return table.map(_quote_formula).rename(columns=_quote_formula)


def unquote_formula(text: str) -> str:
    """Returns the text of a cell of `quote_formulas`."""
    return text[1:] if _QUOTED_FORMULA.match(text) else text


def _quote_formula(value: Any) -> Any:
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _is_number(value)
    return f"'{value}" if is_formula else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not text.startswith(("\t", "\r"))
