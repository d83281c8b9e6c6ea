"""Reports of some experiments, printed as tables and written as files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from dml.core.atomic_io import write_text
from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command
from dml.core.progress import show_progress
from dml.results import catalog, tables
from dml.results.export import to_csv, to_markdown
from dml.results.finished_runs import experiments_with_runs
from dml.results.page import render_page
from dml.results.report import Report, build_report, outputs_override
from dml.results.report_figures import draw_figures
from dml.results.shared_runs import unpack_runs, write_runs
from dml.results.terminal import terminal_tables

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
    shown = show_progress(ids, "reading the runs of experiment", len(ids))
    with TemporaryDirectory() as folder:
        shared = Path(folder)
        for path in results:
            found = {folder.parents[1].name for folder in unpack_runs(path, shared)}
            if found.isdisjoint(ids):
                raise UserError(f"{path} holds runs of {', '.join(found)}, not of {', '.join(ids)}")
        reports = [_build_report(id, id in known, root, shared) for id in shown]
        sent = write_runs([run for report in reports for run in report.runs.finished])
    console = Console(highlight=False, emoji=False, markup=False)
    if len(reports) > MAX_TABLES:
        console.print(_overview(reports))
    else:
        for report in reports:
            console.print(terminal_tables(report, console.width))
            for line in tables.list_notes(report, tables.MAX_COMMANDS):
                console.print(line, soft_wrap=True)  # unbroken, to be copied
    to_draw = show_progress(reports if figures else (), "drawing figures of report", len(reports))
    drawn = {report.id: draw_figures(report) for report in to_draw}
    stem = ids[0] if len(ids) == 1 else "all" if "all" in names else "report"
    files = {
        out / f"{stem}.html": render_page(reports, drawn, datetime.now()),
        out / f"{stem}.md": to_markdown(reports),
        out / f"{stem}.csv": to_csv(reports),
        out / f"{stem}_runs.csv": sent,
    }
    for path, text in files.items():
        write_text(path, text)
        console.print(f"written  {path}", soft_wrap=True)
    return [*files]


def _build_report(id: str, known: bool, root: Path, shared: Path) -> Report:
    cells = catalog.list_cells(id, outputs_override(root)) if known else ()
    return build_report(catalog.load_experiment(id), cells, root, shared)


def _resolve_names(names: Sequence[str], known: Sequence[str], root: Path) -> list[str]:
    """Returns the ids without repetitions, with `all` expanded."""
    with_runs = experiments_with_runs(root)
    valid = [*known, *(name for name in with_runs if name not in known)]
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
    table = Table()
    table.add_column("experiment", no_wrap=True)
    for name in ("cells", "missing", "left out"):
        table.add_column(name, justify="right")
    table.add_column("status")
    for report in reports:
        counts = map(len, (report.cells, report.missing, report.runs.unreadable))
        table.add_row(report.id, *(str(count or tables.DASH) for count in counts), report.status)
    return table
