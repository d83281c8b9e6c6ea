"""A report as tables: their cells, the words around them, and how a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group as Renderables
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dml.reporting.caveats import MEANING
from dml.reporting.comparison import Verdict
from dml.reporting.pairwise_tests import Family
from dml.reporting.report import Report, Section
from dml.reporting.rows import Row
from dml.runs.console import is_score, title

DASH = "\u2013"  # where there is no number
COUNTS = {"train_steps": 0, "best_epoch": 1}  # digits after the point where nothing is printed
MOST_COMMANDS = 5  # that the terminal shows


def name_of(metric: str) -> str:
    """A metric's name with its unit."""
    known = {
        "best_epoch": "best epoch",
        "train_steps": "steps",
        "epoch_seconds": "s per epoch",
        "ms_per_batch": "ms per batch",
        "w2": "W2",
    }
    return known.get(metric, title(metric))


def decimals(rows: Sequence[Row], metric: str) -> int:
    """Digits after the point: those of the printed numbers, or two."""
    printed = [row.numbers[metric].printed for row in rows]
    digits = [one.decimals for one in printed if one is not None]
    return max(digits) if digits else COUNTS.get(metric, 2)


def ours(row: Row, metric: str, spread: str, digits: int) -> str:
    """Our mean ± its spread; a dash where it has not been run."""
    estimate = row.numbers[metric].ours
    if estimate is None:
        return DASH
    half = estimate.std if spread == "std" else estimate.ci95
    return f"{estimate.mean:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")


def printed(row: Row, metric: str) -> str:
    """The printed number; a dash where there is none."""
    one = row.numbers[metric].printed
    return DASH if one is None else str(one)


def difference(row: Row, metric: str, digits: int) -> str:
    """Ours − printed with the sign of the verdict; only the sign where they are not compared."""
    comparison = row.numbers[metric].comparison
    if comparison is None:
        return ""
    if comparison.difference is None:
        return comparison.verdict.symbol
    return f"{comparison.difference:+.{digits}f} {comparison.verdict.symbol}"


def repeats(row: Row) -> str:
    """How many repeats stand behind the row."""
    counts = {number.ours.n for number in row.numbers.values() if number.ours}
    return DASH if not counts else "/".join(map(str, sorted(counts)))


def grid(
    section: Section, report: Report, metrics: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a section; columns of printed numbers only where there are any.

    Args:
        section: the rows.
        report: it is of.
        metrics: some of the section's; None: all.
    """
    spread = report.source.spread
    header = ["method"]
    columns: list[list[str]] = [[row.name for row in section.rows]]
    for metric in section.metrics if metrics is None else metrics:
        digits = decimals(section.rows, metric)
        header.append(name_of(metric))
        columns.append([ours(row, metric, spread, digits) for row in section.rows])
        if any(row.numbers[metric].printed for row in section.rows):
            header += ["printed", "Δ"]
            columns.append([printed(row, metric) for row in section.rows])
            columns.append([difference(row, metric, digits) for row in section.rows])
    header += ["n", "marks"]
    columns.append([repeats(row) for row in section.rows])
    columns.append([" ".join(mark.code for mark in row.marks) for row in section.rows])
    return header, [list(cells) for cells in zip(*columns, strict=True)]


def matrix(family: Family) -> list[list[str]]:
    """Signs of the tests of every row against every other, the paper's mark in brackets."""
    signs = {"better": "▲", "worse": "▼", "no difference": "·"}
    lines = []
    for a in range(len(family.rows)):
        line = []
        for b in range(len(family.rows)):
            test = family.tests.get((a, b))
            paper = f" ({signs[test.paper]})" if test and test.paper else ""
            line.append("" if test is None else test.symbol + paper)
        lines.append(line)
    return lines


def caption(report: Report) -> str:
    """What the numbers of a report mean."""
    spread = "standard deviation" if report.source.spread == "std" else "95 % interval"
    percent = "scores in percent; " if any(map(is_score, report.source.metrics)) else ""
    return f"{percent}± {spread} over n repeats"


def legend(report: Report) -> list[tuple[str, str]]:
    """Signs and marks that occur in a report, with their meanings."""
    numbers = [number for row in report.rows for number in row.numbers.values()]
    verdicts = {number.comparison.verdict for number in numbers if number.comparison}
    found = [(verdict.symbol, str(verdict)) for verdict in Verdict if verdict in verdicts]
    return found + [(code, MEANING[code][0]) for code in report.marks]


def terminal(report: Report, width: int) -> RenderableType:
    """Tables for a terminal of `width` columns, as many metrics side by side as fit."""
    parts: list[RenderableType] = [Text(heading(report), style="bold")]
    for section in report.sections:
        for number, metrics in enumerate(_fitting(section, report, width)):
            more = "" if number == 0 else " (more)"
            parts.append(_terminal_rows(section, report, metrics, f"{section.title}{more}"))
        parts += [_terminal_tests(family) for family in section.families]
    parts += [Text(f"{sign}  {meaning}") for sign, meaning in legend(report)]
    return Renderables(*parts)


def _fitting(section: Section, report: Report, width: int) -> Iterator[list[str]]:
    """The metrics, as many at a time as fit beside the names; at least one."""
    taken: list[str] = []
    for metric in section.metrics:
        header, lines = grid(section, report, [*taken, metric])
        columns = zip(header, *lines, strict=True)
        if taken and sum(max(map(len, column)) + 3 for column in columns) + 1 > width:
            yield taken
            taken = []
        taken.append(metric)
    yield taken


def _terminal_rows(section: Section, report: Report, metrics: Sequence[str], name: str) -> Table:
    header, lines = grid(section, report, metrics)
    table = Table(title=name, title_justify="left", caption=caption(report))
    for number, column in enumerate(header):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=number > 0)
    for line in lines:
        table.add_row(*line)
    return table


def _terminal_tests(family: Family) -> Table:
    table = Table(title=tests_title(family), title_justify="left", caption=tests_caption(family))
    table.add_column("")
    for number in range(len(family.rows)):
        table.add_column(str(number + 1), justify="center")
    for number, (row, line) in enumerate(zip(family.rows, matrix(family), strict=True)):
        table.add_row(f"{number + 1} {row.name}", *line)
    return table


def tests_caption(family: Family) -> str:
    """What the signs of `matrix` mean."""
    paper = "; in brackets the paper's" if any(t.paper for t in family.tests.values()) else ""
    return f"▲ higher than the column's row, ▼ lower: Welch, Holm-corrected, 5 %{paper}"


def tests_title(family: Family) -> str:
    """What is tested."""
    return f"{name_of(family.metric)}: who differs from whom"


def heading(report: Report) -> str:
    """Name and status."""
    about = f"{report.title}: " if report.title else ""
    return f"{report.id} — {about}{report.status}"


def notes(report: Report, most: int | None = None) -> Iterator[str]:
    """What is missing, unfinished or was left out, a line each.

    Args:
        report: the report.
        most: commands to show; None shows all.
    """
    for problem in report.problems:
        yield f"left out: {problem.path}: {problem.reason}"
    for folder in report.unfinished:
        yield f"not finished: {folder}; python train.py resume={folder}"
    if report.script and not report.groups:
        yield f"drawn by: {report.script}"
    for cell in report.missing[:most]:
        yield f"missing: {cell.command}"
    more = len(report.missing) - len(report.missing[:most])
    if more:
        yield f"missing: {more} more; {report.command} runs all, and leaves finished ones alone"
