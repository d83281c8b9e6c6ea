"""Tables of a report: texts of their cells, captions and notes, and the tables of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rich.console import Group as Renderables
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dml.core.installation import shell_command
from dml.reporting.comparison import Verdict
from dml.reporting.pairwise_tests import Family
from dml.reporting.report import Report, Section
from dml.reporting.rows import Row
from dml.runs.console import is_score, title

DASH = "\u2013"  # where there is no number
DECIMALS = {"train_steps": 0, "best_epoch": 1}  # of metrics where nothing is published
MAX_COMMANDS = 5  # that the terminal shows
METRIC_NAMES = {
    "best_epoch": "best epoch",
    "train_steps": "steps",
    "epoch_seconds": "s per epoch",
    "ms_per_batch": "ms per batch",
    "w2": "W2",
}


def metric_name(metric: str) -> str:
    """Returns a metric's name with its unit."""
    return METRIC_NAMES.get(metric, title(metric))


def decimals(rows: Sequence[Row], metric: str) -> int:
    """Returns the digits after the point: those of the published results, two without any."""
    digits = [one.decimals for row in rows if (one := row.numbers[metric].published)]
    return max(digits, default=DECIMALS.get(metric, 2))


def format_ours(row: Row, metric: str, spread: str, digits: int) -> str:
    """Returns our mean ± its spread; a dash where it has not been run."""
    estimate = row.numbers[metric].ours
    if estimate is None:
        return DASH
    half = estimate.std if spread == "std" else estimate.ci95
    return f"{estimate.mean:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def format_published(row: Row, metric: str) -> str:
    """Returns the published result; a dash where there is none."""
    return str(row.numbers[metric].published or DASH)


def format_difference(row: Row, metric: str, digits: int) -> str:
    """Returns ours − published and the verdict's sign; only the sign where not compared."""
    comparison = row.numbers[metric].comparison
    if comparison is None:
        return ""
    if comparison.difference is None:
        return comparison.verdict.symbol
    return f"{comparison.difference:+.{digits}f} {comparison.verdict.symbol}"


def format_repeats(row: Row) -> str:
    """Returns the number of repeats; several numbers if metrics differ."""
    counts = {number.ours.n for number in row.numbers.values() if number.ours}
    return "/".join(map(str, sorted(counts))) or DASH


def format_caveats(row: Row) -> str:
    """Returns the letters of the caveats."""
    return " ".join(caveat.kind.code for caveat in row.caveats)


# Columns after the metrics, in the terminal, Markdown, the page and CSV. The page and CSV show the
# repeats and the letters of the caveats in their own way.
ROW_COLUMNS: dict[str, Callable[[Row], str]] = {"n": format_repeats, "marks": format_caveats}


def more_columns() -> dict[str, Callable[[Row], str]]:
    """Returns `ROW_COLUMNS` without the two that page and CSV show in their own way."""
    return {name: text for name, text in ROW_COLUMNS.items() if name not in ("n", "marks")}


def build_grid(
    section: Section, report: Report, metrics: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Returns header and lines of a section; published results only where there are any.

    Args:
        section: rows of the table.
        report: report of the section.
        metrics: some of the section's; None for all.
    """
    header = ["method"]
    columns: list[list[str]] = [[row.name for row in section.rows]]
    for metric in section.metrics if metrics is None else metrics:
        digits = decimals(section.rows, metric)
        header.append(metric_name(metric))
        columns.append([format_ours(r, metric, report.about.spread, digits) for r in section.rows])
        if any(row.numbers[metric].published for row in section.rows):
            header += ["published", "Δ"]
            columns.append([format_published(row, metric) for row in section.rows])
            columns.append([format_difference(row, metric, digits) for row in section.rows])
    for name, text in ROW_COLUMNS.items():
        header.append(name)
        columns.append([text(row) for row in section.rows])
    return header, [list(cells) for cells in zip(*columns, strict=True)]


def build_test_grid(family: Family) -> tuple[list[str], list[list[str]]]:
    """Returns header and lines of the tests of every row against every other."""
    places = range(len(family.rows))
    lines = []
    for a in places:
        line = [f"{a + 1} {family.rows[a].name}"]
        for b in places:
            test = family.tests.get((a, b))
            paper = f" ({test.paper_symbol})" if test and test.paper else ""
            line.append("" if test is None else test.symbol + paper)
        lines.append(line)
    return ["", *(str(place + 1) for place in places)], lines


def caption(report: Report) -> str:
    """Returns the units of a report's numbers."""
    spread = "standard deviation" if report.about.spread == "std" else "95 % interval"
    percent = "scores in percent; " if any(map(is_score, report.about.metrics)) else ""
    return f"{percent}± {spread} over n repeats"


def tests_title(family: Family) -> str:
    """Returns the title of a table of tests."""
    return f"{metric_name(family.metric)}: differences between methods"


def tests_caption(family: Family) -> str:
    """Returns the meaning of the signs in a table of tests."""
    paper = "; the paper's in brackets" if any(t.paper for t in family.tests.values()) else ""
    return f"▲ higher than the column's row, ▼ lower: Welch, Holm-corrected, 5 %{paper}"


def legend(report: Report) -> list[tuple[str, str]]:
    """Returns the signs and letters that occur in a report, with their meanings."""
    numbers = [number for row in report.rows for number in row.numbers.values()]
    verdicts = {number.comparison.verdict for number in numbers if number.comparison}
    signs = [(verdict.symbol, str(verdict)) for verdict in Verdict if verdict in verdicts]
    return signs + [(kind.code, kind.meaning) for kind in report.caveat_kinds]


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
    for run in report.runs.unreadable:
        yield f"left out: {run.path}: {run.reason}"
    for folder in report.runs.unfinished:
        yield f"not finished: {folder}; {shell_command('train')} resume={folder}"
    if report.about.script and not report.groups:
        yield f"drawn by: {report.about.script}"
    for cell in report.missing[:max_commands]:
        yield f"missing: {cell.command}"
    more = len(report.missing) - len(report.missing[:max_commands])
    if more:
        yield f"missing: {more} more; {report.command} runs all and skips finished runs"


def terminal_tables(report: Report, width: int) -> RenderableType:
    """Returns tables for a terminal of `width` columns, with as many metrics each as fit."""
    parts: list[RenderableType] = [Text(heading(report), style="bold")]
    for section in report.sections:
        name = section.title
        for metrics in _split_metrics(section, report, width):
            table = _terminal_table(*build_grid(section, report, metrics), "right")
            table.title, table.caption = name, caption(report)
            parts.append(table)
            name = f"{section.title} (more)"
        for family in section.families:
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
        table.add_row(*line)
    return table
