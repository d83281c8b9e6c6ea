"""Reports of some experiments, printed as tables and written as files: HTML, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console

from dml.core.atomic_io import write_text
from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command
from dml.core.progress import format_epoch, show_progress
from dml.results import catalog, report_tables
from dml.results.compare import BLOCKING, MARKS, VERDICTS
from dml.results.contributed import read_runs, write_runs
from dml.results.curves import Picture
from dml.results.figures import draw_figures
from dml.results.frame import format_option
from dml.results.report import Report, build_report, outputs_override
from dml.results.tables import Column, Table, terminal_table

MAX_TABLES = 3  # experiments whose tables the terminal shows; of more it shows one line each


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
    ids = _resolve_names(names, known, root)
    contributed = []
    for path in results:
        found = read_runs(path)
        of = {run.folder.parts[0] for run in found}
        if of.isdisjoint(ids):
            raise UserError(f"{path} holds runs of {', '.join(of)}, not of {', '.join(ids)}")
        contributed += found
    reports = []
    for id in show_progress(ids, "reading the runs of experiment", len(ids)):
        cells = catalog.list_cells(id, outputs_override(root)) if id in known else ()
        reports.append(build_report(catalog.load_experiment(id), cells, root, contributed))
    console = Console(highlight=False, emoji=False, markup=False)
    if len(reports) > MAX_TABLES:
        console.print(terminal_table(_overview(reports), console.width), soft_wrap=True)
    for report in reports if len(reports) <= MAX_TABLES else ():
        parts = report_tables.terminal_report(report, console.width)
        for line in (*parts, *report_tables.list_notes(report, report_tables.MAX_COMMANDS)):
            console.print(line, soft_wrap=True)  # unbroken, to be copied
    to_draw = show_progress(reports if figures else (), "drawing figures of report", len(reports))
    drawn = {report.id: draw_figures(report) for report in to_draw}
    stem = ids[0] if len(ids) == 1 else "all" if "all" in names else "report"
    files = {
        out / f"{stem}.html": render_page(reports, drawn, datetime.now()),
        out / f"{stem}.md": report_tables.to_markdown(reports),
        out / f"{stem}.csv": report_tables.to_csv(reports),
        out / f"{stem}_runs.csv": write_runs(run for one in reports for run in one.runs),
    }
    for path, text in files.items():
        write_text(path, text)
        console.print(f"written  {path}", soft_wrap=True)
    return [*files]


def _resolve_names(names: Sequence[str], known: Sequence[str], root: Path) -> list[str]:
    """Returns the ids without repetitions, with `all` expanded."""
    with_runs = sorted({path.parents[2].name for path in root.glob("*/*/*/summary.json")})
    valid = list(dict.fromkeys([*known, *with_runs]))
    ids: list[str] = []
    for name in names:
        if name == "all":
            ids += valid
        elif name in valid:
            ids.append(name)
        elif name == "single":
            raise UserError(
                f"single: no finished runs in {root / name}; {shell_command('train')} makes one"
            )
        else:
            hint = nearest(name, [*valid, "all", "single"])
            raise UserError(f"experiment: no '{name}'{hint}; known are {', '.join(valid)}")
    return list(dict.fromkeys(ids))


def _overview(reports: Sequence[Report]) -> Table:
    """Returns the table of reports of which each is one line."""
    columns = [Column("experiment", [report.id for report in reports])]
    for name, attribute in (("cells", "cells"), ("missing", "missing"), ("left out", "damaged")):
        counts = [len(getattr(report, attribute)) for report in reports]
        columns.append(Column(name, [str(n or report_tables.DASH) for n in counts], right=True))
    columns.append(Column("status", [report.status for report in reports]))
    return Table("", columns)


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
    style, _, _ = environment.loader.get_source(environment, "style.css")  # type: ignore[union-attr]
    own = not any(report.of_paper for report in reports)
    return environment.get_template("page.html.j2").render(
        name=(reports[0].about.title if own else reports[0].id)
        if len(reports) == 1
        else "all experiments",
        own=own,
        reports=reports,
        figures=figures,
        made=made.strftime("%Y-%m-%d %H:%M"),
        style=Markup(style),
        tables=report_tables,
        groups=lambda table: [
            (name, list(columns))
            for name, columns in groupby(table.columns, lambda one: one.group or one.title)
        ],
        format_epoch=format_epoch,
        format_option=format_option,
        verdicts=VERDICTS,
        marks=MARKS,
        blocking=BLOCKING,
    )
