"""Reports as text: for the terminal, and as Markdown, LaTeX and a CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from dml.core.plain_text import markdown_text
from dml.results.compare import LEVEL, MARKS
from dml.results.departures import Departure, find_departures
from dml.results.latex import PREAMBLE, latex_list, latex_table
from dml.results.report import Report, Row, Section, main_metric, metric_name
from dml.results.section_tables import describe_table, legend, letters_of, section_table
from dml.results.tables import Table, markdown_table

TABLE_OF_PAPER = ("Δ", "better than", "in the paper", "published (what differs)")  # not in LaTeX
DAGGER = "†"
DEPARTURES = "Departures from the paper or its authors' code:"


def heading(report: Report) -> str:
    """Returns id, title and progress."""
    title = f"{report.about.title}: " if report.about.title else ""
    return f"{report.about.id} — {title}{report.status}"


def list_parts(report: Report, max_commands: int | None = None) -> Iterator[str | Table]:
    """Yields the tables of a report, and lines: signs, and what is missing or left out.

    Args:
        report: the report.
        max_commands: commands to show; None for all.
    """
    for section in report.sections:
        yield section_table(section, report)
    for sign, meaning in legend(report):
        yield f"{sign}  {meaning}"
    yield from report.problems
    if report.about.script and report.frame.empty:
        yield f"drawn by: {report.about.script}"
    shown = report.missing[:max_commands]
    for cell in shown:
        yield f"missing: {cell.command}"
    more = len(report.missing) - len(shown)
    if more:
        yield f"missing: {more} more; {report.command} runs all and skips finished runs"


def to_markdown(reports: Sequence[Report]) -> str:
    """Returns reports as Markdown."""
    lines: list[str] = []
    for report in reports:
        lines += [f"## {markdown_text(heading(report))}", ""]
        for part in list_parts(report):
            if isinstance(part, Table):
                lines += markdown_table(part)
            else:
                lines.append(f"- {markdown_text(part)}")
        lines.append("")
    return "\n".join(lines)


def to_latex(reports: Sequence[Report]) -> str:
    """Returns the tables of reports for a paper, and the departures that apply to their rows.

    They have no differences from published results: those are beside ours.
    """
    parts = [f"% The preamble needs {PREAMBLE}."]
    for report in reports:
        for number, section in enumerate(report.sections, start=1):
            table = _paper_table(section, report)
            parts.append(latex_table(table, f"tab:{report.about.id}-{number}"))
        departures = list_departures(report)
        if departures:
            parts.append(latex_list(DEPARTURES, map(str, departures)))
    return "\n".join([*parts, ""])


def _paper_table(section: Section, report: Report) -> Table:
    """Returns the table of a section in the columns of a paper, with marks of significance."""
    table = section_table(section, report)
    metric = main_metric(report.about)
    lower = _rows_below(section, metric)
    columns = []
    for column in table.columns:
        if column.title in TABLE_OF_PAPER:
            continue
        if column.title == metric_name(metric):
            column = replace(column, cells=list(_add_daggers(column.cells, section, lower)))
        columns.append(column)
    caption = [describe_table(section, report, has_tests=False)]
    for mark in MARKS:
        if any(mark in letters_of(row.caveats).split() for row in section.all_rows):
            caption.append(f"{mark}: {MARKS[mark]}")
    if lower:
        caption.append(
            f"{DAGGER}: {metric_name(metric)} significantly below the highest of the tested rows "
            f"(Welch's test, p ≤ {LEVEL} after Holm's correction for all pairs of rows)"
        )
    return replace(table, columns=columns, caption="; ".join(caption))


def _rows_below(section: Section, metric: str) -> list[Row]:
    """Returns the rows that are significantly below the one with the highest mean."""
    means = []
    for row in section.tested:
        ours = row.score(metric).ours
        assert ours is not None
        means.append(ours.mean)
    if not means:
        return []
    tests = section.tests
    is_lower = (tests.other == means.index(max(means))) & (tests.ours == "below")
    return [section.tested[position] for position in tests.row[is_lower]]


def _add_daggers(cells: Sequence[str], section: Section, lower: Sequence[Row]) -> Iterator[str]:
    for row, cell in zip(section.all_rows, cells, strict=True):
        yield f"{cell}{DAGGER}" if row in lower else cell


def list_departures(report: Report) -> list[Departure]:
    """Returns what differs from the papers or their authors' code, for the rows of a report."""
    return find_departures([row.options for row in report.rows], report.about)


def to_frame(reports: Sequence[Report]) -> pd.DataFrame:
    """Returns a line per row and metric of reports, in the ids of `results.csv`.

    `p_values` and `corrected_p_values` (Holm, over all pairs of rows of a table) are JSON objects:
    other row → p-value of Welch's test; `p_value` is that against the published result.
    """
    lines = []
    for report in reports:
        for section in report.sections:
            for row in section.all_rows:
                for metric in section.metrics:
                    line = {"experiment": report.about.id, **_describe_score(row, metric)}
                    if metric == main_metric(report.about):
                        line |= _describe_tests(row, section)
                    lines.append(line)
    return pd.DataFrame(lines, dtype=object)


def _describe_tests(row: Row, section: Section) -> dict[str, str]:
    """Returns the p-values of a row against the others of its table; none if it is not tested."""
    if row not in section.tested:
        return {}
    tests = section.tests[section.tests.row == section.tested.index(row)]
    others = [section.tested[position].name for position in tests.other]
    columns = {}
    for column, values in (("p_values", tests.p_value), ("corrected_p_values", tests.corrected)):
        columns[column] = json.dumps(dict(zip(others, values, strict=True)), ensure_ascii=False)
    return columns


def _describe_score(row: Row, metric: str) -> dict[str, Any]:
    """Returns the columns of a row and a metric in `to_frame`."""
    line: dict[str, Any] = {**asdict(row.key), "label": row.label, "metric": metric}
    score = row.score(metric)
    ours = score.ours
    if ours:
        line |= {"mean": ours.mean, "ci95": ours.half_width, "std": ours.std, "repeats": ours.n}
    if score.published:
        for name, value in asdict(score.published).items():
            line[f"printed_{name}"] = value
    if score.comparison:
        line |= asdict(score.comparison)
    line["marks"] = letters_of(row.caveats)
    line["details"] = "; ".join(map(str, row.caveats))
    folders = [str(run.folder) for run in row.stored]
    line["folders"] = " ".join(folders)
    line["command"] = row.missing.command if row.missing else ""
    return line
