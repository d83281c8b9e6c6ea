"""Tables of a report: texts of their cells, captions and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dml.core.installation import shell_command
from dml.results.caveats import CaveatKind
from dml.results.comparison import Verdict
from dml.results.pairwise_tests import Family
from dml.results.report import Report, Section
from dml.results.rows import Row
from dml.results.settings import setting_columns
from dml.runs.console import DASH, is_score, title

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
    """Returns our mean ± its spread (`Estimate.format`); a dash where it has not been run."""
    estimate = row.numbers[metric].ours
    return DASH if estimate is None else estimate.format(digits, spread)


class Best(str):
    """The text of a cell that is the best of its column."""


def best_rows(section: Section, metric: str) -> set[int]:
    """Returns the positions of the rows with the highest score, as printed.

    Empty for metrics without a direction, and for tables in which one row has been run.
    """
    means = [
        None if (ours := row.numbers[metric].ours) is None else ours.mean for row in section.rows
    ]
    known = [mean for mean in means if mean is not None]
    if len(known) < 2 or not is_score(metric):
        return set()
    digits = decimals(section.rows, metric)
    best = f"{max(known):.{digits}f}"
    return {
        place
        for place, mean in enumerate(means)
        if mean is not None and f"{mean:.{digits}f}" == best
    }


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
    """Returns header and lines of a section, baselines last; the best of a column is `Best`.

    Published results only where there are any, and marks only where there are any.

    Args:
        section: rows of the table.
        report: report of the section.
        metrics: some of the section's; None for all.
    """
    rows = (*section.rows, *section.baselines)
    columns = {
        "method": [
            row.method if row.label and row in section.rows and section.settings else row.name
            for row in rows
        ]
    }
    columns |= {
        name: [text(row) if row in section.rows else "" for row in rows]
        for name, text in setting_columns(section.settings).items()
    }
    grid = list(columns.items())
    for metric in section.metrics if metrics is None else metrics:
        digits, best = decimals(section.rows, metric), best_rows(section, metric)
        texts = [format_ours(row, metric, report.about.spread, digits) for row in rows]
        marked = [Best(text) if place in best else text for place, text in enumerate(texts)]
        grid.append((metric_name(metric), marked))
        if has_published(section, metric):
            grid.append(("published", [format_published(row, metric) for row in rows]))
            grid.append(("Δ", [format_difference(row, metric, digits) for row in rows]))
    for name, text in ROW_COLUMNS.items():
        texts = [text(without_title_caveats(row, report)) for row in rows]
        if any(texts) or name != "marks":
            grid.append((name, texts))
    header, cells = zip(*grid, strict=True)
    return list(header), [list(line) for line in zip(*cells, strict=True)]


def has_published(section: Section, metric: str) -> bool:
    """Returns True if a table prints published results of a metric."""
    return any(row.numbers[metric].published for row in section.rows)


def without_title_caveats(row: Row, report: Report) -> Row:
    """Returns the row without the caveat that the title of its table states: stand-in data.

    Tables of a paper keep it, where it rules out the comparison.
    """
    if report.of_paper:
        return row
    caveats = [one for one in row.caveats if one.kind != CaveatKind.STAND_IN]
    return replace(row, caveats=tuple(caveats))


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


def caption(section: Section, report: Report, metrics: Sequence[str] | None = None) -> str:
    """Returns units and spread of some metrics (default: all), and what selected the epochs."""
    metrics = section.metrics if metrics is None else metrics
    estimates = [n.ours for row in section.rows for n in row.numbers.values() if n.ours]
    parts = ["scores in percent"] if any(map(is_score, metrics)) else []
    if report.of_paper or any(one.n > 2 for one in estimates):
        spread = "standard deviation" if report.about.spread == "std" else "95 % interval"
        parts.append(f"± {spread} over n repeats")
    if any(one.n == 2 for one in estimates):
        parts.append("of two repeats both values")
    if any(best_rows(section, metric) for metric in metrics):
        parts.append("bold: highest after training" if section.baselines else "bold: highest")
    if section.selected_on_test:
        parts.append("best epoch selected on the test images, as in the literature")
    return "; ".join(parts)


def tests_title(family: Family) -> str:
    """Returns the title of a table of tests."""
    if family.shows_differences:
        return f"{metric_name(family.metric)}: differences between methods"
    tested = f"{len(family.rows)} rows, Welch, Holm-corrected, 5 %"
    return f"{metric_name(family.metric)}: no significant difference ({tested})"


def tests_caption(family: Family) -> str:
    """Returns the meaning of the signs in a table of tests."""
    paper = "; the paper's in brackets" if any(t.paper for t in family.tests.values()) else ""
    return f"▲ higher than the column's row, ▼ lower: Welch, Holm-corrected, 5 %{paper}"


def legend(report: Report) -> list[tuple[str, str]]:
    """Returns the signs and letters that occur in a report, with their meanings."""
    numbers = [number for row in report.rows for number in row.numbers.values()]
    verdicts = {number.comparison.verdict for number in numbers if number.comparison}
    signs = [(verdict.symbol, str(verdict)) for verdict in Verdict if verdict in verdicts]
    rows = [without_title_caveats(row, report) for row in report.rows]
    found = {caveat.kind for row in rows for caveat in row.caveats}
    return signs + [(kind.code, kind.meaning) for kind in CaveatKind if kind in found]


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
    if report.about.script and not report.groups:
        yield f"drawn by: {report.about.script}"
    for cell in report.missing[:max_commands]:
        yield f"missing: {cell.command}"
    more = len(report.missing) - len(report.missing[:max_commands])
    if more:
        yield f"missing: {more} more; {report.command} runs all and skips finished runs"
    if report.runs.unfinished:
        yield describe_unfinished(report)


def describe_unfinished(report: Report) -> str:
    """Returns how many runs are not finished, and the command that continues or lists them."""
    first, *more = report.runs.unfinished
    if not more:
        return f"not finished: {first}; {shell_command('train')} resume={first} continues it"
    return f"not finished: {len(more) + 1} runs; {shell_command('runs')} lists them"
