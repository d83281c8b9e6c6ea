"""Reports of some experiments, printed as tables and written as files: HTML, Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console
from rich.text import Text

from dml.config.schema import ExperimentConfig
from dml.core.atomic_io import output_folder, write_text
from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command
from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label
from dml.core.progress import format_epoch, show_progress
from dml.results import catalog
from dml.results.compare import BLOCKING, MARKS, OUTCOMES, VERDICTS, Caveat, is_comparable
from dml.results.frame import format_option, read_runs, short_names, write_runs
from dml.results.nearest import find_nearest
from dml.results.published import TITLES
from dml.results.report import Family, Report, Row, Section, build_report, outputs_override
from dml.results.tables import (
    Cell,
    Column,
    Table,
    csv_text,
    markdown_table,
    table_width,
    terminal_table,
)
from dml.runs.console import DASH
from dml.runs.folder.stored_run import StoredRun

if TYPE_CHECKING:
    from dml.results.figures import Picture

MAX_TABLES = 3  # experiments whose tables the terminal shows; of more it shows a line each
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


def write_reports(
    names: Sequence[str],
    root: Path,
    out: Path,
    figures: bool = True,
    results: Sequence[Path] = (),
) -> list[Path]:
    """Prints and writes the reports of some experiments.

    Args:
        names: ids; `all`; `single`, or any other folder of runs below `root`.
        root: folder of run folders.
        out: folder of the reports.
        figures: False leaves out the pictures.
        results: CSV files of runs that somebody sent, shown beside those in `root`.

    Returns:
        The written files: HTML, Markdown, CSV, and the runs as CSV.

    Raises:
        UserError: an experiment does not exist, or `single` has no runs.
    """
    known = catalog.experiment_ids()
    sent = {path: read_runs(path) for path in results}
    contributed = [run for runs in sent.values() for run in runs]
    ids = _resolve_names(names, known, root, contributed)
    for path, runs in sent.items():
        if (of := {run.folder.parts[0] for run in runs}).isdisjoint(ids):
            raise UserError(f"{path} holds runs of {', '.join(of)}, not of {', '.join(ids)}")
    output_folder(out)
    reports = []
    for id in show_progress(ids, "reading the runs of experiment", len(ids)):
        cells = catalog.list_cells(id, outputs_override(root)) if id in known else ()
        reports.append(build_report(catalog.load_experiment(id), cells, root, contributed))
    console = Console(highlight=False, emoji=False, markup=False)
    for report in reports:
        lines: list[Text | str] = [heading(report)]
        if len(reports) <= MAX_TABLES:
            lines = [*terminal_report(report, console.width)]
            lines += list_notes(report, MAX_COMMANDS)
        for line in lines:
            console.print(line, soft_wrap=True)  # unbroken, to be copied
    if with_runs := [report for report in reports if figures and len(report.runs)]:
        from dml.results.figures import draw_figures  # imported late: it loads matplotlib
    to_draw = show_progress(with_runs, "drawing figures of report", len(with_runs))
    drawn = {report.about.id: draw_figures(report) for report in to_draw}
    stem = ids[0] if len(ids) == 1 else "all" if "all" in names else "report"
    files = {
        out / f"{stem}.html": render_page(reports, drawn, datetime.now()),
        out / f"{stem}.md": to_markdown(reports),
        out / f"{stem}.csv": to_csv(reports),
        out / f"{stem}_runs.csv": write_runs(run for one in reports for run in one.runs.run),
    }
    for path, text in files.items():
        write_text(path, text)
        console.print(f"written  {path}", soft_wrap=True)
    return [*files]


def _resolve_names(
    names: Sequence[str], known: Sequence[str], root: Path, contributed: Sequence[StoredRun]
) -> list[str]:
    """Returns the ids without repetitions, with `all` expanded."""
    with_runs = {path.parents[2].name for path in root.glob("*/*/*/summary.json")}
    with_runs |= {run.folder.parts[0] for run in contributed}
    valid = list(dict.fromkeys([*known, *sorted(with_runs)]))
    for name in names:
        if name == "single" and name not in valid:
            folder, command = root / name, shell_command("train")
            raise UserError(f"single: no finished runs in {folder}; {command} makes one")
        if name not in (*valid, "all"):
            hint = nearest(name, [*valid, "all", "single"])
            raise UserError(f"experiment: no '{name}'{hint}; known are {', '.join(valid)}")
    ids = [id for name in names for id in (valid if name == "all" else [name])]
    return list(dict.fromkeys(ids))


def render_page(
    reports: Sequence[Report], figures: Mapping[str, Sequence[Picture]], made: datetime
) -> str:
    """Returns the page.

    Args:
        reports: experiments in the order of the page.
        figures: by experiment; those left out have none.
        made: date and time to show.
    """
    environment = Environment(
        loader=PackageLoader("dml.results", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )

    def groups(table: Table) -> list[tuple[str, list[Column]]]:
        found = groupby(table.columns, lambda column: column.group or column.title)
        return [(name, list(columns)) for name, columns in found]

    own = not any(report.about.source for report in reports)
    names = [title_in_words(report.about) for report in reports]
    title = "; ".join(names) if len(names) <= MAX_TABLES else f"{len(names)} experiments"
    return environment.get_template("page.html.j2").render(
        name=title,
        own=own,
        reports=reports,
        figures=figures,
        made=made.strftime("%Y-%m-%d %H:%M"),
        section_table=section_table,
        family_table=family_table,
        legend=legend,
        groups=groups,
        title_in_words=title_in_words,
        format_epoch=format_epoch,
        format_option=format_option,
        verdicts=VERDICTS,
        marks=MARKS,
        blocking=BLOCKING,
    )


def title_in_words(about: ExperimentConfig) -> str:
    """Returns `Mean field theory, Table 2` for mft_table2; the title of runs of no paper."""
    item = re.sub(r"(\d+)$", r" \1", about.id.partition("_")[2]).replace("_", ", ").capitalize()
    return f"{TITLES[about.source]}, {item}" if about.source else about.title


def metric_name(metric: str) -> str:
    """Returns a metric's name with its unit."""
    return METRIC_NAMES.get(metric, metric_label(metric))


def section_table(section: Section, report: Report, metrics: Sequence[str] | None = None) -> Table:
    """Returns the table of a section, baselines last.

    Published results and marks only where there are any.

    Args:
        section: rows of the table.
        report: report of the section.
        metrics: some of the section's; None for all.
    """
    metrics = section.metrics if metrics is None else metrics
    rows, blanks = (*section.rows, *section.baselines), [""] * len(section.baselines)
    names = [row.method if section.settings else row.name for row in section.rows]
    columns = [Column("method", names + [row.name for row in section.baselines])]
    for rank, (name, title) in enumerate(short_names(section.settings).items(), start=1):
        texts = [row.option_text(name) for row in section.rows]
        columns.append(Column(title, texts + blanks, rank, right=True))
    for metric in metrics:
        columns += _metric_columns(section, report, metric)
    if report.about.source is None and metrics[:1] == section.metrics[:1]:
        found = [
            find_nearest(row.stored[0], row.key.evaluation, max(e.n for e in row.ours.values()))
            for row in section.rows
        ]
        if any(found):
            cells = [Cell(one.short, "published", str(one)) if one else Cell("") for one in found]
            columns.append(Column("published (what differs)", cells + blanks, 9))
    counts = ["/".join(map(str, sorted({e.n for e in r.ours.values()}))) or DASH for r in rows]
    counted = [Cell(text, runs=row.stored) for text, row in zip(counts, rows, strict=True)]
    columns.append(Column("n", counted, right=True))
    caveats = [shown_caveats(row, report) for row in rows]
    if any(caveats):
        marks = [
            Cell(_letters(some), "" if is_comparable(some) else "blocks", "; ".join(map(str, some)))
            for some in caveats
        ]
        columns.append(Column("marks", marks))
    caption = _caption(section, report, columns)
    return Table(section.title, columns, caption, len(section.baselines))


def _metric_columns(section: Section, report: Report, metric: str) -> Iterator[Column]:
    rows = (*section.rows, *section.baselines)
    # As many digits as published; two where nothing is.
    printed = [row.published[metric].decimals for row in section.rows if metric in row.published]
    digits = max(printed, default=DECIMALS.get(metric, 2))
    means = [f"{r.ours[metric].mean:.{digits}f}" for r in section.rows if metric in r.ours]
    best = max(means, key=float) if len(means) > 1 and is_score(metric) else None
    name, ours, published, differences = metric_name(metric), [], [], []
    for place, row in enumerate(rows):
        text, kind, hint = DASH, "", ""
        if row.runs is None and row.cell is not None:
            kind, hint = "missing", row.cell.command
        if found := row.ours.get(metric):
            text = found.format(digits, report.about.spread)
            if place < len(section.rows) and f"{found.mean:.{digits}f}" == best:
                kind = "best"
        ours.append(Cell(text, kind, hint))
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
    if printed:
        yield Column("published", published, right=True, group=name)
        yield Column("Δ", differences, right=True, group=name)


def _letters(caveats: Sequence[Caveat]) -> str:
    return " ".join(dict.fromkeys(caveat.mark for caveat in caveats))


def shown_caveats(row: Row, report: Report) -> list[Caveat]:
    """Returns the caveats without the one that the title of the table states: stand-in data.

    Tables of a paper keep it, where it rules out the comparison.
    """
    return [caveat for caveat in row.caveats if report.about.source or caveat.mark != "S"]


def _caption(section: Section, report: Report, columns: Sequence[Column]) -> str:
    """Returns units and spread of the metrics of some columns, and what selected the epochs."""
    repeats = {one.n for row in section.rows for one in row.ours.values()}
    names = {metric_name(metric) for metric in section.metrics if is_score(metric)}
    parts = ["scores in percent"] if any(column.group in names for column in columns) else []
    if report.about.source or max(repeats, default=0) > 2:
        spread = "standard deviation" if report.about.spread == "std" else "95 % interval"
        parts.append(f"± {spread} over n repeats")
    if 2 in repeats:
        parts.append("of two repeats both values")
    if any(getattr(cell, "kind", "") == "best" for column in columns for cell in column.cells):
        parts.append("bold: highest after training" if section.baselines else "bold: highest")
    if section.selected_on_test:
        parts.append("best epoch selected on the test images, as in the literature")
    return "; ".join(parts)


def family_table(family: Family) -> Table:
    """Returns the table of the tests of every row against every other; no columns if all agree."""
    name, rows, tests = metric_name(family.metric), family.rows, family.tests
    printed = tests.paper.any()
    if not printed and (tests.ours == "no difference").all():
        tested = f"{len(rows)} rows, Welch, Holm-corrected, 5 %"
        return Table(f"{name}: no significant difference ({tested})", ())
    cells = [[Cell("") for _ in rows] for _ in rows]  # a list per column
    for test in tests.itertuples():
        sign, kind = OUTCOMES[test.ours]
        hint = f"{rows[test.row].name} against {rows[test.other].name}: p = {test.p_value:.2g}, "
        hint += f"corrected {test.corrected:.2g}"
        if test.paper:
            sign += f" ({OUTCOMES[test.paper][0]})"
            hint += f"; the paper: {test.paper}"
        cells[test.other][test.row] = Cell(sign, kind, hint)
    columns = [Column(name, [f"{n} {row.name}" for n, row in enumerate(rows, start=1)])]
    columns += [Column(str(n), own) for n, own in enumerate(cells, start=1)]
    paper = "; the paper's in brackets" if printed else ""
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
    return f"{report.about.id} — {title}{report.status}"


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
        yield report.unfinished


def terminal_report(report: Report, width: int) -> list[Text]:
    """Returns the tables of a report, each with as many metrics as fit into a width."""
    parts = [Text(heading(report), style="bold")]
    for section in report.sections:
        tables, rest = [], list(section.metrics)
        while rest:
            fitting = [section_table(section, report, rest[:n]) for n in range(1, len(rest) + 1)]
            count = sum(table_width(table.columns) <= width for table in fitting) or 1
            tables.append(fitting[count - 1])
            rest = rest[count:]
        for table in (*tables, *map(family_table, section.families)):
            parts += [terminal_table(table, width), Text()]
    return parts + [Text(f"{sign}  {meaning}") for sign, meaning in legend(report)]


def to_markdown(reports: Sequence[Report]) -> str:
    """Returns reports as Markdown."""
    lines: list[str] = []
    for report in reports:
        lines += [f"## {heading(report)}", ""]
        for section in report.sections:
            lines += markdown_table(section_table(section, report), "### ")
            for family in section.families:
                lines += markdown_table(family_table(family))
        lines += [f"- `{sign}` {meaning}" for sign, meaning in legend(report)]
        lines += ["", *(f"- {line}" for line in list_notes(report)), ""]
    return "\n".join(lines).rstrip() + "\n"


def to_csv(reports: Sequence[Report]) -> str:
    """Returns reports as CSV: one line per row and metric, in the ids of `results.csv`."""
    lines = []
    for report, section in [(one, section) for one in reports for section in one.sections]:
        for row, metric in product((*section.rows, *section.baselines), section.metrics):
            line: dict[str, Any] = {"experiment": report.about.id, **asdict(row.key)}
            if ours := row.ours.get(metric):
                line |= {"mean": ours.mean, "repeats": ours.n}
                line |= {"ci95": ours.half_width, "std": ours.std}
            if one := row.published.get(metric):
                line |= {f"printed_{name}": value for name, value in asdict(one).items()}
                line |= {"printed": one.text, "source": one.source, "table": one.table}
            if comparison := row.comparisons.get(metric):
                line |= asdict(comparison)
            command = row.cell.command if row.cell and row.runs is None else ""
            line |= {"label": row.label, "metric": metric, "command": command}
            line |= {"marks": _letters(row.caveats), "details": "; ".join(map(str, row.caveats))}
            line["folders"] = " ".join(str(run.folder) for run in row.stored)
            lines.append(line)
    return csv_text(pd.DataFrame(lines, columns=CSV_COLUMNS, dtype=object))
