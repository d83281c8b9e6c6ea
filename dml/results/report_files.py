"""Reports of some experiments, printed as tables and written as files: HTML, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from dml.core.atomic_io import output_folder, write_text
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
from dml.results.tables import Column, Table

MAX_TABLES = 3  # experiments whose tables the terminal shows; of more it shows a line each


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
    output_folder(out)
    contributed = []
    for path in results:
        contributed += (found := read_runs(path))
        if (of := {run.folder.parts[0] for run in found}).isdisjoint(ids):
            raise UserError(f"{path} holds runs of {', '.join(of)}, not of {', '.join(ids)}")
    reports = []
    for id in show_progress(ids, "reading the runs of experiment", len(ids)):
        cells = catalog.list_cells(id, outputs_override(root)) if id in known else ()
        reports.append(build_report(catalog.load_experiment(id), cells, root, contributed))
    console = Console(highlight=False, emoji=False, markup=False)
    for report in reports:
        lines: list[Text | str] = [report_tables.heading(report)]
        if len(reports) <= MAX_TABLES:
            lines = [*report_tables.terminal_report(report, console.width)]
            lines += report_tables.list_notes(report, report_tables.MAX_COMMANDS)
        for line in lines:
            console.print(line, soft_wrap=True)  # unbroken, to be copied
    to_draw = show_progress(reports if figures else (), "drawing figures of report", len(reports))
    drawn = {report.about.id: draw_figures(report) for report in to_draw}
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
    style, _, _ = environment.loader.get_source(environment, "style.css")  # type: ignore[union-attr]

    def groups(table: Table) -> list[tuple[str, list[Column]]]:
        found = groupby(table.columns, lambda column: column.group or column.title)
        return [(name, list(columns)) for name, columns in found]

    about, own = reports[0].about, not any(report.about.source for report in reports)
    title = (about.title if own else about.id) if len(reports) == 1 else "all experiments"
    return environment.get_template("page.html.j2").render(
        name=title,
        own=own,
        reports=reports,
        figures=figures,
        made=made.strftime("%Y-%m-%d %H:%M"),
        style=Markup(style),
        tables=report_tables,
        groups=groups,
        format_epoch=format_epoch,
        format_option=format_option,
        verdicts=VERDICTS,
        marks=MARKS,
        blocking=BLOCKING,
    )
