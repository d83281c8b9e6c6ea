"""Tables of a report: texts of their cells, captions and notes, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
from rich.text import Text

from dml.core.installation import shell_command
from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label
from dml.results import compare
from dml.results.compare import MARKS, VERDICTS
from dml.results.frame import short_names
from dml.results.report import Family, Report, Row, Section
from dml.results.tables import (
    Cell,
    Column,
    Table,
    fit_columns,
    markdown_table,
    table_width,
    terminal_table,
)
from dml.runs.console import DASH

DECIMALS = {"train_steps": 0, "best_epoch": 1}  # of metrics where nothing is published
MAX_COMMANDS = 5  # that the terminal shows
METRIC_NAMES = {
    "best_epoch": "best epoch",
    "train_steps": "steps",
    "epoch_seconds": "s per epoch",
    "ms_per_batch": "ms per batch",
    "w2": "W2",
}
CSV_COLUMNS = (
    *("experiment", "data", "backbone", "dim", "protocol", "evaluation", "method", "setting"),
    *("label", "metric", "mean", "ci95", "std", "repeats", "printed", "printed_spread_text"),
    *("printed_spread_kind", "printed_runs", "printed_origin", "source", "table", "verdict"),
    *("difference", "p_value", "marks", "details", "folders", "command"),
)


def metric_name(metric: str) -> str:
    """Returns a metric's name with its unit."""
    return METRIC_NAMES.get(metric, metric_label(metric))


def decimals(rows: Sequence[Row], metric: str) -> int:
    """Returns the digits after the point: those of the published results, two without any."""
    digits = [row.published[metric].decimals for row in rows if metric in row.published]
    return max(digits, default=DECIMALS.get(metric, 2))


def section_table(section: Section, report: Report, metrics: Sequence[str] | None = None) -> Table:
    """Returns the table of a section, baselines last.

    Published results and marks only where there are any.

    Args:
        section: rows of the table.
        report: report of the section.
        metrics: some of the section's; None for all.
    """
    metrics = section.metrics if metrics is None else metrics
    rows = (*section.rows, *section.baselines)
    own = len(section.rows)
    names = [
        row.method if section.settings and place < own else row.name
        for place, row in enumerate(rows)
    ]
    columns = [Column("method", names)]
    for rank, (name, title) in enumerate(short_names(section.settings).items(), start=1):
        texts = [row.option_text(name) for row in section.rows]
        columns.append(Column(title, texts + [""] * len(section.baselines), rank, right=True))
    for metric in metrics:
        columns += _metric_columns(section, report, metric)
    repeats = []
    for row in rows:
        counts = sorted({one.n for one in row.ours.values()})
        repeats.append(Cell("/".join(map(str, counts)) or DASH, runs=row.stored))
    columns.append(Column("n", repeats, right=True))
    marks = []
    for row in rows:
        caveats = shown_caveats(row, report)
        kind = "" if compare.is_comparable(caveats) else "blocks"
        letters = dict.fromkeys(caveat.mark for caveat in caveats)
        marks.append(Cell(" ".join(letters), kind, "; ".join(map(str, caveats))))
    if any(marks):
        columns.append(Column("marks", marks))
    text = caption(section, report, metrics)
    return Table(section.title, columns, text, len(section.baselines))


def _metric_columns(section: Section, report: Report, metric: str) -> Iterator[Column]:
    rows = (*section.rows, *section.baselines)
    digits, best = decimals(section.rows, metric), best_rows(section, metric)
    name, ours, published, differences = metric_name(metric), [], [], []
    for place, row in enumerate(rows):
        found = row.ours.get(metric)
        text = found.format(digits, report.about.spread) if found else DASH
        ours.append(Cell(text, "best" if place in best else ""))
        text, hint = DASH, ""
        if result := row.published.get(metric):
            text, hint = str(result), f"{result.source} {result.table}, {result.origin}"
        published.append(Cell(text, "published", hint))
        text = kind = hint = ""
        if comparison := row.comparisons.get(metric):
            kind = comparison.verdict
            text, hint = VERDICTS[kind]
            if comparison.difference is not None:
                text = f"{comparison.difference:+.{digits}f} {text}"
            if comparison.p_value is not None:
                hint += f"; Welch against the published mean: p = {comparison.p_value:.2g}"
        differences.append(Cell(text, kind, hint))
    yield Column(name, ours, right=True, group=name)
    if any(metric in row.published for row in rows):
        yield Column("published", published, right=True, group=name)
        yield Column("Δ", differences, right=True, group=name)


def best_rows(section: Section, metric: str) -> set[int]:
    """Returns the positions of the rows with the highest score, as printed.

    Empty for metrics without a direction, and for tables in which one row has been run.
    """
    digits = decimals(section.rows, metric)
    found = {
        place: f"{row.ours[metric].mean:.{digits}f}"
        for place, row in enumerate(section.rows)
        if metric in row.ours
    }
    if len(found) < 2 or not is_score(metric):
        return set()
    best = max(found.values(), key=float)
    return {place for place, text in found.items() if text == best}


def shown_caveats(row: Row, report: Report) -> list[compare.Caveat]:
    """Returns the caveats without the one that the title of the table states: stand-in data.

    Tables of a paper keep it, where it rules out the comparison.
    """
    return [caveat for caveat in row.caveats if report.of_paper or caveat.mark != "S"]


def caption(section: Section, report: Report, metrics: Sequence[str]) -> str:
    """Returns units and spread of some metrics, and what selected the epochs."""
    repeats = {one.n for row in section.rows for one in row.ours.values()}
    parts = ["scores in percent"] if any(map(is_score, metrics)) else []
    if report.of_paper or max(repeats, default=0) > 2:
        spread = "standard deviation" if report.about.spread == "std" else "95 % interval"
        parts.append(f"± {spread} over n repeats")
    if 2 in repeats:
        parts.append("of two repeats both values")
    if any(best_rows(section, metric) for metric in metrics):
        parts.append("bold: highest after training" if section.baselines else "bold: highest")
    if section.runs.selected_by.str.endswith(" on test").any():
        parts.append("best epoch selected on the test images, as in the literature")
    return "; ".join(parts)


def family_table(family: Family) -> Table:
    """Returns the table of the tests of every row against every other; no columns if all agree."""
    name = metric_name(family.metric)
    if not family.shows_differences:
        tested = f"{len(family.rows)} rows, Welch, Holm-corrected, 5 %"
        return Table(f"{name}: no significant difference ({tested})", ())
    numbers = range(len(family.rows))
    columns = [Column(name, [f"{n + 1} {family.rows[n].name}" for n in numbers])]
    for other in numbers:
        cells = []
        for n in numbers:
            test = family.tests.get((n, other))
            if test is None:
                cells.append(Cell(""))
                continue
            kind = ("above" if test.higher else "below") if test.differs else "overlap"
            pair = f"{family.rows[n].name} against {family.rows[other].name}"
            paper = f"; the paper: {test.paper}" if test.paper else ""
            values = f"p = {test.p_value:.2g}, corrected {test.corrected:.2g}"
            cells.append(Cell(test.symbol, kind, f"{pair}: {values}{paper}"))
        columns.append(Column(str(other + 1), cells))
    paper = "; the paper's in brackets" if any(t.paper for t in family.tests.values()) else ""
    text = f"▲ higher than the column's row, ▼ lower: Welch, Holm-corrected, 5 %{paper}"
    return Table(f"{name}: differences between methods", columns, text)


def legend(report: Report) -> list[tuple[str, str]]:
    """Returns the signs and letters that occur in a report, with their meanings."""
    verdicts = {one.verdict for row in report.rows for one in row.comparisons.values()}
    found = {caveat.mark for row in report.rows for caveat in shown_caveats(row, report)}
    signs = [VERDICTS[name] for name in VERDICTS if name in verdicts]
    return signs + [(mark, meaning) for mark, meaning in MARKS.items() if mark in found]


def heading(report: Report) -> str:
    """Returns id, title and progress."""
    title = f"{report.about.title}: " if report.about.title else ""
    return f"{report.id} — {title}{report.status}"


def list_notes(report: Report, max_commands: int | None = None) -> Iterator[str]:
    """Yields a line for everything that is missing, unfinished or left out.

    Args:
        report: the report.
        max_commands: commands to show; None for all.
    """
    for run in report.damaged:
        yield f"left out: {run.folder}: {run.problem}"
    if report.about.script and report.frame.empty:
        yield f"drawn by: {report.about.script}"
    for cell in report.missing[:max_commands]:
        yield f"missing: {cell.command}"
    if more := len(report.missing) - len(report.missing[:max_commands]):
        yield f"missing: {more} more; {report.command} runs all and skips finished runs"
    if report.unfinished:
        yield describe_unfinished(report)


def describe_unfinished(report: Report) -> str:
    """Returns how many runs are not finished, and the command that continues or lists them."""
    first, *more = [run.folder for run in report.unfinished]
    if not more:
        return f"not finished: {first}; {shell_command('train')} resume={first} continues it"
    return f"not finished: {len(more) + 1} runs; {shell_command('runs')} lists them"


def terminal_report(report: Report, width: int) -> list[Text]:
    """Returns the tables of a report, each with as many metrics as fit into a width."""
    parts = [Text(heading(report), style="bold")]
    for section in report.sections:
        tables = [section_table(section, report, m) for m in _split_metrics(section, report, width)]
        for table in (*tables, *map(family_table, section.families)):
            columns = fit_columns(table.columns, width)
            parts += [terminal_table(replace(table, columns=columns), width), Text()]
    return parts + [Text(f"{sign}  {meaning}") for sign, meaning in legend(report)]


def _split_metrics(section: Section, report: Report, width: int) -> Iterator[list[str]]:
    """Yields as many metrics at a time as fit beside the names, at least one."""
    part: list[str] = []
    for metric in section.metrics:
        columns = section_table(section, report, [*part, metric]).columns
        if part and table_width(columns) > width:
            yield part
            part = []
        part.append(metric)
    yield part


def to_markdown(reports: Sequence[Report]) -> str:
    """Returns reports as Markdown."""
    lines: list[str] = []
    for report in reports:
        lines += [f"## {heading(report)}", ""]
        for section in report.sections:
            lines += ["### ", *markdown_table(section_table(section, report))]
            for family in section.families:
                lines += markdown_table(family_table(family))
        lines += [f"- `{sign}` {meaning}" for sign, meaning in legend(report)]
        lines += ["", *(f"- {line}" for line in list_notes(report)), ""]
    return "\n".join(lines).replace("### \n", "### ").rstrip() + "\n"


def to_csv(reports: Sequence[Report]) -> str:
    """Returns reports as CSV: one line per row and metric, in the ids of `results.csv`."""
    lines = [
        _csv_line(report, row, metric)
        for report in reports
        for section in report.sections
        for row in (*section.rows, *section.baselines)
        for metric in section.metrics
    ]
    return pd.DataFrame(lines, columns=CSV_COLUMNS, dtype=object).to_csv(index=False)


def _csv_line(report: Report, row: Row, metric: str) -> dict[str, Any]:
    line = {"experiment": report.id, **asdict(row.key), "label": row.label, "metric": metric}
    if ours := row.ours.get(metric):
        line |= {"mean": ours.mean, "repeats": ours.n, "ci95": ours.half_width, "std": ours.std}
    if one := row.published.get(metric):
        line |= {f"printed_{name}": value for name, value in asdict(one).items()}
        line |= {"printed": one.text, "source": one.source, "table": one.table}
    if comparison := row.comparisons.get(metric):
        line |= asdict(comparison)
    line["marks"] = " ".join(dict.fromkeys(caveat.mark for caveat in row.caveats))
    line["details"] = "; ".join(map(str, row.caveats))
    line["folders"] = " ".join(str(run.folder) for run in row.stored)
    line["command"] = row.cell.command if row.cell and row.runs is None else ""
    return line
