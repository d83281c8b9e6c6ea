"""Tables of a report for a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Group as Renderables
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dml.results.report import Report, Section
from dml.results.tables import (
    Best,
    build_grid,
    build_test_grid,
    caption,
    heading,
    legend,
    tests_caption,
    tests_title,
)


def terminal_tables(report: Report, width: int) -> RenderableType:
    """Returns tables for a terminal of `width` columns, with as many metrics each as fit."""
    parts: list[RenderableType] = [Text(heading(report), style="bold")]
    for section in report.sections:
        name = section.title
        for metrics in _split_metrics(section, report, width):
            table = _terminal_table(*build_grid(section, report, metrics), "right")
            if section.baselines:
                table.rows[len(section.rows) - 1].end_section = True
            table.title, table.caption = name, caption(section, report, metrics)
            parts.append(table)
            name = f"{section.title} (more)"
        for family in section.families:
            if not family.shows_differences:
                parts.append(Text(tests_title(family)))
                continue
            table = _terminal_table(*build_test_grid(family), "center")
            table.title, table.caption = tests_title(family), tests_caption(family)
            parts.append(table)
    parts += [Text(f"{sign}  {meaning}") for sign, meaning in legend(report)]
    return Renderables(*parts)


def _split_metrics(section: Section, report: Report, width: int) -> Iterator[list[str]]:
    """Yields as many metrics at a time as fit beside the names, at least one."""
    part: list[str] = []
    for metric in section.metrics:
        header, lines = build_grid(section, report, [*part, metric])
        columns = zip(header, *lines, strict=True)
        if part and sum(max(map(len, column)) + 3 for column in columns) + 1 > width:
            yield part
            part = []
        part.append(metric)
    yield part


def _terminal_table(
    header: Sequence[str], lines: Sequence[Sequence[str]], justify: Literal["right", "center"]
) -> Table:
    table = Table(title_justify="left")
    table.add_column(header[0])
    for column in header[1:]:
        table.add_column(column, justify=justify, no_wrap=justify == "right")
    for line in lines:
        table.add_row(*(Text(cell, "bold") if isinstance(cell, Best) else cell for cell in line))
    return table
