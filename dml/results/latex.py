"""The layout of tables in LaTeX, with booktabs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import pandas as pd

from dml.core.plain_text import show_line
from dml.results.tables import Cell, Table

PREAMBLE = r"\usepackage{booktabs}, \usepackage[T1]{fontenc}"  # what the tables need
SYMBOLS = {
    "±": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MINUS SIGN}": "$-$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "‖": r"$\|$",
    "√": r"$\surd$",
    "∞": r"$\infty$",
    "₀": "$_0$",
    "₁": "$_1$",
    "₂": "$_2$",
    "²": "$^2$",
    "\N{EN DASH}": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\dots{}",
    "†": r"$^\dagger$",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{PRIME}": "$'$",
    "\N{NO-BREAK SPACE}": "~",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': r"\textquotedbl{}",
    "|": r"\textbar{}",
}
RESERVED = "&%$#_{}"
GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (\w+)")


def escape_latex(text: str) -> str:
    """Returns a text whose reserved characters, symbols and Greek letters LaTeX prints.

    Other letters stay as they are, in UTF-8.
    """
    escaped = "".join(map(_escape, show_line(text)))
    return escaped.replace("--", "-{}-")  # LaTeX joins two hyphens to a dash


def _escape(character: str) -> str:
    if character in RESERVED:
        return f"\\{character}"
    greek = GREEK.fullmatch(unicodedata.name(character, ""))
    if greek is None:
        return SYMBOLS.get(character, character)
    name = greek[2].lower().replace("lamda", "lambda")  # as Unicode spells it
    if greek[1] == "CAPITAL":
        name = name.capitalize()
    return f"$\\{name}$"


def latex_table(table: Table, label: str) -> str:
    """Returns a floating table: title and caption above it, the best cells bold.

    Args:
        table: all its columns are shown.
        label: for references.
    """
    frame = pd.DataFrame([list(map(_latex_cell, row)) for row in table.rows])
    titles = [escape_latex(column.title) for column in table.columns]
    alignment = ["r" if column.right else "l" for column in table.columns]
    styled = frame.style.hide(axis="index").relabel_index(titles, axis="columns")
    text = styled.to_latex(
        hrules=True,
        column_format="".join(alignment),
        position="t",
        position_float="centering",
        caption=f"{escape_latex(table.title)}: {escape_latex(table.caption)}.",
        label=label,
    )
    return _add_rule(text, len(frame) - table.below) if table.below else text


def _latex_cell(cell: Cell) -> str:
    text = escape_latex(cell)
    return rf"\textbf{{{text}}}" if cell.kind == "best" else text


def _add_rule(text: str, rows: int) -> str:
    """Returns a table with a rule below its first rows."""
    lines = text.split("\n")
    lines.insert(lines.index(r"\midrule") + 1 + rows, r"\midrule")
    return "\n".join(lines)


def latex_list(title: str, items: Iterable[str]) -> str:
    """Returns a list in small print; what stands between backquotes is code."""
    lines = [rf"{{\footnotesize {escape_latex(title)}", r"\begin{itemize}"]
    for item in items:
        text = re.sub(r"`([^`]*)`", r"\\texttt{\1}", escape_latex(item))
        lines.append(rf"\item {text}")
    return "\n".join([*lines, "\\end{itemize}}"])
