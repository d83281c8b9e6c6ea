"""Reports of some experiments, printed as tables and written as files: HTML, Markdown and CSV."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from dml.core.atomic_io import check_writable, write_text
from dml.core.csv_cells import write_csv
from dml.core.errors import ConfigError, UserError, nearest
from dml.core.names import check_name
from dml.core.outputs import BEGINNING, check_not_input, check_output, has_mark, text_mark
from dml.core.plain_console import PlainConsole
from dml.core.plain_text import encode, print_plain
from dml.core.progress import show_progress
from dml.core.regular_files import open_regular
from dml.core.text_columns import plain_text_columns
from dml.results import catalog
from dml.results.frame import read_runs, write_runs
from dml.results.report import Report, build_report
from dml.results.report_page import render_page, show_value
from dml.results.report_texts import heading, list_parts, to_frame, to_latex, to_markdown
from dml.results.tables import Table, terminal_table
from dml.runs.folder.stored_run import StoredRun

if TYPE_CHECKING:
    from dml.results.figures import Picture

MAX_TABLES = 3  # experiments whose tables the terminal shows; of more it shows a line each
MAX_COMMANDS = 5  # that the terminal shows


@plain_text_columns()
def write_reports(
    names: Sequence[str],
    root: Path,
    out: Path,
    figures: bool = True,
    results: Sequence[Path] = (),
    overwrite: bool = False,
    latex: bool = False,
) -> list[Path]:
    """Prints and writes the reports of some experiments.

    Args:
        names: ids; `all`; `single`, or any other folder of runs below `root`.
        root: folder of run folders.
        out: folder of the reports.
        figures: False leaves out the pictures.
        results: CSV files with runs of other users, shown next to those in `root`.
        overwrite: replace any file; by default only earlier reports of the same name.
        latex: also write the tables for a paper.

    Returns:
        The written files: HTML, Markdown, CSV, the runs as CSV, and LaTeX if it is asked for.

    Raises:
        ConfigError: the name of an experiment is misspelled.
        UserError: an experiment does not exist, `single` has no runs, or a file of somebody else
            has the path of a report.
    """
    contributed: list[StoredRun] = []
    for path in results:
        contributed += read_runs(path)
    known = catalog.experiment_ids()
    ids = _chosen_ids(names, known, root, contributed)
    stem = "all" if "all" in names else "report"
    if len(ids) == 1:
        stem = ids[0]
    paths = _check_files(out, check_name(stem, "experiment"), results, overwrite, latex)
    check_writable(out, "out", "--out=<folder> puts the report elsewhere")
    reports = []
    for id in show_progress(ids, "reading the runs of experiment", len(ids)):
        cells = catalog.list_cells(id, outputs=str(root)) if id in known else ()
        reports.append(build_report(catalog.load_experiment(id), cells, root, contributed))
    console = PlainConsole()
    _note_missing_runs(reports, root)
    _print_reports(reports, console)
    drawn = _draw_all(reports) if figures else {}
    runs: list[StoredRun] = []
    for report in reports:
        runs += report.runs.distinct
    tables = (write_csv(to_frame(reports).map(show_value)), write_runs(runs))
    mark = f"{text_mark(f'report {stem}')}\n{_list_tables(tables, paths[2:4])}"
    page = render_page(reports, drawn, datetime.now(), mark)
    markdown = f"{mark}\n\n{to_markdown(reports)}"
    texts = [page, markdown, *tables]
    if latex:
        texts.append(f"% {text_mark(f'report {stem}')}\n{to_latex(reports)}")
    for path, text in zip(paths, texts, strict=True):
        write_text(path, text)
        console.print(f"written  {path}", soft_wrap=True)
    return paths


def _chosen_ids(
    names: Sequence[str], known: Sequence[str], root: Path, contributed: Iterable[StoredRun]
) -> list[str]:
    """Returns the ids of the experiments and folders that are named.

    Raises:
        ConfigError: a name is misspelled.
        UserError: a name is neither of an experiment nor of a folder with runs.
    """
    with_runs: set[str] = set()
    for path in root.glob("*/*/*/summary.json"):
        with_runs.add(path.parents[2].name)
    for run in contributed:
        if run.config:
            with_runs.add(run.config.experiment)
    valid = dict.fromkeys(known) | dict.fromkeys(sorted(with_runs))
    ids: dict[str, None] = {}
    for name in names:
        if name == "all":
            ids |= valid
        elif name in valid:
            ids[name] = None
        else:
            finished = ", ".join(sorted(with_runs)) or "none"
            raise _unknown_id(name, valid, f"those with finished runs in {root}: {finished}")
    return list(ids)


def _unknown_id(name: str, valid: Iterable[str], finished: str) -> UserError:
    """Returns the error for a name that is no id; a ConfigError where it is misspelled.

    Args:
        valid: the known ids.
        finished: words that list those with runs.
    """
    accepted = [*valid, "all"]
    if nearest(name, accepted) or "," in name:
        return ConfigError([catalog.find_problem(name, accepted)])
    if "=" in name:
        return ConfigError([f"report: takes no options such as {name}; only ids of experiments"])
    return UserError(f"experiment: no '{name}'; {finished}")


def _note_missing_runs(reports: Sequence[Report], root: Path) -> None:
    """Prints a note if no report has runs, as where the name of the folder is wrong."""
    if all(report.runs.table.empty for report in reports):
        print_plain(f"note: {root} has no runs for this report", file=sys.stderr)


def _print_reports(reports: Sequence[Report], console: PlainConsole) -> None:
    """Prints the tables of a few reports; of many a line each."""
    for report in reports:
        console.print(heading(report), soft_wrap=True)
        if len(reports) > MAX_TABLES:
            continue
        for part in list_parts(report, MAX_COMMANDS):
            if isinstance(part, Table):
                table = terminal_table(part, console.width)
                console.print(Text.assemble(table, "\n"), soft_wrap=True)
            else:
                console.print(part, soft_wrap=True)  # unbroken, to be copied


def _draw_all(reports: Sequence[Report]) -> dict[str, list[Picture]]:
    """Returns id → pictures of the reports with runs."""
    drawable = [report for report in reports if not report.runs.table.empty]
    if not drawable:
        return {}
    from dml.results.figures import draw_figures  # imported late: it loads matplotlib

    drawn = {}
    for report in show_progress(drawable, "drawing figures of report", len(drawable)):
        drawn[report.about.id] = draw_figures(report)
    return drawn


def _check_files(
    out: Path, stem: str, results: Sequence[Path], overwrite: bool, latex: bool
) -> list[Path]:
    """Returns the files of a report if they may be written: page, text, table, runs and LaTeX.

    Raises:
        UserError: a path has a file of somebody else, or one that the command reads.
    """
    of_report = has_mark(f"report {stem}")
    pages = [out / f"{stem}.html", out / f"{stem}.md"]

    def of_pages(path: Path) -> bool:
        return _digest(path) in _read_tables(pages)

    kinds = {page.name: of_report for page in pages}
    kinds |= {f"{stem}.csv": of_pages, f"{stem}_runs.csv": of_pages}
    if latex:
        kinds[f"{stem}.tex"] = of_report
    paths = []
    for name, is_ours in kinds.items():
        check_not_input(out / name, "--out", *results)
        paths.append(check_output(out / name, "--out", (), is_ours, overwrite))
    return paths


def _list_tables(texts: Sequence[str], paths: Sequence[Path]) -> str:
    """Returns the line of a page with the digests of its tables, which cannot hold a mark.

    Tables that will be replaced are listed too: a process killed in between leaves them with this
    page.
    """
    digests = [hashlib.sha256(encode(text)).hexdigest() for text in texts]
    digests += [_digest(path) for path in paths if path.exists()]
    return f"<!-- tables: {' '.join(digests)} -->"


def _read_tables(pages: Sequence[Path]) -> set[str]:
    """Returns the digests that existing pages list at their beginning."""
    listed: set[str] = set()
    for page in pages:
        if not page.exists():
            continue
        with open_regular(page) as file:
            beginning = file.read(BEGINNING).decode("utf-8", "replace")
        for digests in re.findall(r"<!-- tables: ([0-9a-f ]*) -->", beginning):
            listed.update(digests.split())
    return listed


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
