"""A report as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import product

from dml.reporting.report import Report
from dml.reporting.rows import Row
from dml.reporting.tables import (
    caption,
    grid,
    heading,
    legend,
    matrix,
    notes,
    tests_caption,
    tests_title,
)


def markdown(reports: Sequence[Report]) -> str:
    """Reports as Markdown."""
    lines: list[str] = []
    for report in reports:
        lines += [f"## {heading(report)}", ""]
        for section in report.sections:
            header, cells = grid(section, report)
            lines += [f"### {section.title}", "", *_markdown_table(header, cells), ""]
            lines += [caption(report), ""]
            for family in section.families:
                names = [str(number + 1) for number in range(len(family.rows))]
                named = [
                    [f"{number} {row.name}", *line]
                    for number, row, line in zip(names, family.rows, matrix(family), strict=True)
                ]
                lines += [f"{tests_title(family)}", ""]
                lines += [*_markdown_table(["", *names], named), "", tests_caption(family), ""]
        lines += [f"- `{sign}` {meaning}" for sign, meaning in legend(report)]
        lines += [""] if report.rows else []
        lines += [f"- {line}" for line in notes(report)]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    ruler = ["---"] + ["---:"] * (len(header) - 1)
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in (header, ruler, *lines)]
    return [f"| {' | '.join(line)} |" for line in escaped]


COLUMNS = (
    *("experiment", "data", "backbone", "dim", "protocol", "evaluation", "method", "setting"),
    *("label", "metric", "mean", "ci95", "std", "repeats", "printed", "printed_spread"),
    *("printed_spread_kind", "printed_runs", "source", "table", "origin", "verdict", "difference"),
    *("p_value", "marks", "details", "folders", "command"),
)


def as_csv(reports: Sequence[Report]) -> str:
    """Reports as CSV: one line per row and metric, named as in the tables of printed results."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for report in reports:
        for section in report.sections:
            for row, metric in product(section.rows, section.metrics):
                writer.writerow(_csv_line(report, row, metric))
    return text.getvalue()


def _csv_line(report: Report, row: Row, metric: str) -> dict[str, object]:
    facts, number = row.facts, row.numbers[metric]
    line: dict[str, object] = {
        "experiment": report.id,
        "data": facts.data,
        "backbone": facts.backbone,
        "dim": "" if facts.dim is None else facts.dim,
        "protocol": facts.protocol,
        "evaluation": facts.evaluation,
        "method": facts.method,
        "setting": facts.setting,
        "label": row.label,
        "metric": metric,
        "marks": " ".join(mark.code for mark in row.marks),
        "details": "; ".join(map(str, row.marks)),
        "folders": " ".join(str(run.folder) for run in row.group.runs) if row.group else "",
        "command": row.cell.command if row.cell and row.group is None else "",
    }
    if number.ours is not None:
        estimate = number.ours
        line |= {"mean": estimate.mean, "repeats": estimate.n}
        line |= {"ci95": _or_empty(estimate.ci95), "std": _or_empty(estimate.std)}
    if number.printed is not None:
        one = number.printed
        line |= {"printed": one.text, "printed_spread": one.spread_text}
        line |= {"printed_spread_kind": one.spread_kind, "printed_runs": _or_empty(one.runs)}
        line |= {"source": one.source, "table": one.table, "origin": one.origin}
    if number.comparison is not None:
        line |= {"verdict": str(number.comparison.verdict)}
        line |= {"difference": _or_empty(number.comparison.difference)}
        line |= {"p_value": _or_empty(number.comparison.p_value)}
    return line


def _or_empty(value: object) -> object:
    return "" if value is None else value
