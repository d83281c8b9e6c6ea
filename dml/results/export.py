"""Reports as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product

from dml.results.report import Report
from dml.results.rows import Row
from dml.results.tables import (
    Best,
    build_grid,
    build_test_grid,
    caption,
    format_caveats,
    heading,
    legend,
    list_notes,
    more_columns,
    tests_caption,
    tests_title,
)

COLUMNS = (
    *("experiment", "data", "backbone", "dim", "protocol", "evaluation", "method", "setting"),
    *("label", "metric", "mean", "ci95", "std", "repeats", "printed", "printed_spread"),
    *("printed_spread_kind", "printed_runs", "source", "table", "origin", "verdict", "difference"),
    *("p_value", "marks", "details", "folders", "command"),
)


def to_markdown(reports: Sequence[Report]) -> str:
    """Returns reports as Markdown."""
    lines: list[str] = []
    for report in reports:
        lines += [f"## {heading(report)}", ""]
        for section in report.sections:
            lines += [f"### {section.title}", "", *_markdown_table(*build_grid(section, report))]
            lines += ["", caption(section, report), ""]
            for family in section.families:
                lines += [tests_title(family), ""]
                if family.shows_differences:
                    table = _markdown_table(*build_test_grid(family))
                    lines += [*table, "", tests_caption(family), ""]
        lines += [f"- `{sign}` {meaning}" for sign, meaning in legend(report)]
        lines += [""] if report.rows else []
        lines += [f"- {line}" for line in list_notes(report)]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def to_csv(reports: Sequence[Report]) -> str:
    """Returns reports as CSV: one line per row and metric, in the ids of `results.csv`."""
    text = io.StringIO()
    columns = (*COLUMNS, *more_columns())
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for report in reports:
        for section in report.sections:
            for row, metric in product((*section.rows, *section.baselines), section.metrics):
                writer.writerow(_csv_line(report, row, metric))
    return text.getvalue()


def _markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---"] + ["---:"] * (len(header) - 1)
    bold = [[f"**{cell}**" if isinstance(cell, Best) else cell for cell in line] for line in lines]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in (header, ruler, *bold)]
    return [f"| {' | '.join(line)} |" for line in escaped]


def _csv_line(report: Report, row: Row, metric: str) -> dict[str, object]:
    number = row.numbers[metric]
    line: dict[str, object] = {
        "experiment": report.id,
        **asdict(row.key),
        "label": row.label,
        "metric": metric,
        "marks": format_caveats(row),
        "details": "; ".join(map(str, row.caveats)),
        "folders": " ".join(str(run.folder) for run in row.group.runs) if row.group else "",
        "command": row.cell.command if row.cell and row.group is None else "",
        **{name: text(row) for name, text in more_columns().items()},
    }
    if (ours := number.ours) is not None:
        line |= {"mean": ours.mean, "repeats": ours.n, "ci95": ours.half_width, "std": ours.std}
    if (one := number.published) is not None:
        line |= {"printed": one.text, "printed_spread": one.spread_text}
        line |= {"printed_spread_kind": one.spread_kind, "printed_runs": one.runs}
        line |= {"source": one.source, "table": one.table, "origin": one.origin}
    if (comparison := number.comparison) is not None:
        line |= {"verdict": str(comparison.verdict), "difference": comparison.difference}
        line |= {"p_value": comparison.p_value}
    return line  # None is written as an empty field
