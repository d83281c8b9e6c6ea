"""Reports of some experiments, printed as tables and written as files: HTML, Markdown and CSV."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, PackageLoader
from rich.text import Text

from dml.config.schema import ExperimentConfig
from dml.core.atomic_io import output_folder, write_text
from dml.core.csv_cells import write_csv
from dml.core.errors import ConfigError, UserError, nearest
from dml.core.metric_names import is_score
from dml.core.names import check_name
from dml.core.outputs import (
    BEGINNING,
    check_not_input,
    check_output,
    has_mark,
    text_mark,
)
from dml.core.plain_console import PlainConsole
from dml.core.plain_text import markdown_text, show_text
from dml.core.progress import format_epoch, show_progress
from dml.core.regular_files import open_regular
from dml.results import catalog
from dml.results.compare import BLOCKING, MARKS, VERDICTS, Caveat, Comparison, is_comparable
from dml.results.frame import format_option, join_some, read_runs, short_names, write_runs
from dml.results.nearest import find_nearest
from dml.results.published import TITLES, PublishedResult
from dml.results.report import Report, Row, Section, build_report, main_metric, metric_name
from dml.results.tables import Cell, Column, Table, markdown_table, terminal_table
from dml.runs.console import DASH

if TYPE_CHECKING:
    from dml.results.figures import Picture

MAX_TABLES = 3  # experiments whose tables the terminal shows; of more it shows a line each
DECIMALS = {"train_steps": 0, "best_epoch": 1}  # of metrics where nothing is published
MAX_COMMANDS = 5  # that the terminal shows


def write_reports(
    names: Sequence[str],
    root: Path,
    out: Path,
    figures: bool = True,
    results: Sequence[Path] = (),
    overwrite: bool = False,
) -> list[Path]:
    """Prints and writes the reports of some experiments.

    Args:
        names: ids; `all`; `single`, or any other folder of runs below `root`.
        root: folder of run folders.
        out: folder of the reports.
        figures: False leaves out the pictures.
        results: CSV files with runs of other users, shown next to those in `root`.
        overwrite: replace any file; by default only earlier reports of the same name.

    Returns:
        The written files: HTML, Markdown, CSV, and the runs as CSV.

    Raises:
        ConfigError: the name of an experiment is misspelled.
        UserError: an experiment does not exist, `single` has no runs, or a file of somebody else
            is in the place of a report.
    """
    contributed = [run for path in results for run in read_runs(path)]
    known = catalog.experiment_ids()
    with_runs = {path.parents[2].name for path in root.glob("*/*/*/summary.json")}
    with_runs |= {run.config.experiment for run in contributed if run.config}
    valid = list(dict.fromkeys([*known, *sorted(with_runs)]))
    for name in names:
        if name not in (*valid, "all"):
            more = f"; those with finished runs in {root}: {', '.join(with_runs) or 'none'}"
            if hint := nearest(name, [*valid, "all"]):
                raise ConfigError([f"experiment: no '{name}'{hint}"])
            raise UserError(f"experiment: no '{name}'{more}")
    ids = list(dict.fromkeys(id for name in names for id in (valid if name == "all" else [name])))
    stem = ids[0] if len(ids) == 1 else "all" if "all" in names else "report"
    paths = _check_files(out, check_name(stem, "experiment"), results, overwrite)
    output_folder(out)
    reports = []
    for id in show_progress(ids, "reading the runs of experiment", len(ids)):
        cells = catalog.list_cells(id, outputs=str(root)) if id in known else ()
        reports.append(build_report(catalog.load_experiment(id), cells, root, contributed))
    console = PlainConsole()
    for report in reports:
        parts = list_parts(report, MAX_COMMANDS) if len(reports) <= MAX_TABLES else ()
        for part in (heading(report), *parts):
            if isinstance(part, Table):
                part = Text.assemble(terminal_table(part, console.width), "\n")
            console.print(part, soft_wrap=True)  # unbroken, to be copied
    if drawable := [report for report in reports if figures and len(report.runs)]:
        from dml.results.figures import draw_figures  # imported late: it loads matplotlib
    to_draw = show_progress(drawable, "drawing figures of report", len(drawable))
    drawn = {report.about.id: draw_figures(report) for report in to_draw}
    tables = (
        write_csv(to_frame(reports).map(_show_value)),
        write_runs(run for one in reports for run in one.runs.run),
    )
    mark = f"{text_mark(f'report {stem}')}\n{_list_tables(tables, paths[2:])}"
    texts = (
        render_page(reports, drawn, datetime.now(), mark),
        f"{mark}\n\n{to_markdown(reports)}",
        *tables,
    )
    for path, text in zip(paths, texts, strict=True):
        write_text(path, text)
        console.print(f"written  {path}", soft_wrap=True)
    return paths


def _check_files(out: Path, stem: str, results: Sequence[Path], overwrite: bool) -> list[Path]:
    """Returns the files of a report if they may be written: page, text, table and runs.

    Raises:
        UserError: a file of somebody else is in their place, or one that the command reads.
    """
    of_report = has_mark(f"report {stem}")
    pages = [out / f"{stem}.html", out / f"{stem}.md"]

    def of_pages(path: Path) -> bool:
        return _digest(path) in _read_tables(pages)

    kinds = {
        **{page.name: of_report for page in pages},
        f"{stem}.csv": of_pages,
        f"{stem}_runs.csv": of_pages,
    }
    paths = []
    for name, is_ours in kinds.items():
        check_not_input(out / name, "--out", *results)
        paths.append(check_output(out / name, "--out", (), is_ours, overwrite))
    return paths


def _list_tables(texts: Sequence[str], paths: Sequence[Path]) -> str:
    """Returns the line of a page with the digests of its tables, which cannot hold a mark.

    Those that the tables replace are listed too: a killed process may leave them beside the page.
    """
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    digests += [_digest(path) for path in paths if path.exists()]
    return f"<!-- tables: {' '.join(digests)} -->"


def _read_tables(pages: Sequence[Path]) -> set[str]:
    """Returns the digests that pages list at their beginning; those that are there."""
    found: set[str] = set()
    for page in pages:
        if not page.exists():
            continue
        with open_regular(page) as file:
            beginning = file.read(BEGINNING).decode("utf-8", "replace")
        for digests in re.findall(r"<!-- tables: ([0-9a-f ]*) -->", beginning):
            found.update(digests.split())
    return found


def _digest(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def render_page(
    reports: Sequence[Report],
    figures: Mapping[str, Sequence[Picture]],
    made: datetime,
    mark: str = "",
) -> str:
    """Returns the page.

    Args:
        reports: experiments in the order of the page.
        figures: by experiment; those left out have none.
        made: date and time to show.
        mark: of the file (`dml.core.outputs.text_mark`).
    """
    environment = Environment(
        loader=PackageLoader("dml.results", "templates"), autoescape=True, finalize=_show_value
    )
    helpers = (section_table, question, legend, title_in_words, format_epoch, format_option)
    environment.globals |= {helper.__name__: helper for helper in helpers}
    environment.globals |= {"verdicts": VERDICTS, "marks": MARKS, "blocking": BLOCKING}
    names = [title_in_words(report.about) for report in reports]
    title = "; ".join(names) if len(names) <= MAX_TABLES else f"{len(names)} experiments"
    page = environment.get_template("page.html.j2")
    date = f"{made:%Y-%m-%d %H:%M}"
    return page.render(name=title, reports=reports, figures=figures, made=date, mark=mark)


def _show_value(value: Any) -> Any:
    """Shows the control characters of a value of the page, unless it is HTML."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return show_text(value) if is_text else value


def title_in_words(about: ExperimentConfig) -> str:
    """Returns `Mean field theory, Table 2` for mft_table2; the title of runs of no paper."""
    item = re.sub(r"(\d+)$", r" \1", about.id.partition("_")[2]).replace("_", ", ").capitalize()
    return f"{TITLES[about.source]}, {item}" if about.source else about.title


def question(report: Report) -> str:
    """Returns a sentence about what the tables of a report ask."""
    methods = dict.fromkeys(row.method for row in report.rows)
    data = join_some([*dict.fromkeys(row.key.data for row in report.rows)])
    metric = metric_name(main_metric(report.about))
    if len(methods) < 2:
        return f"What is the {metric} of {', '.join(methods)} on {data}?"
    then = ", and does it agree with the paper?" if report.about.source else "?"
    return f"Which of {len(methods)} methods has the best {metric} on {data}{then}"


def section_table(section: Section, report: Report) -> Table:
    """Returns the table of a section, baselines last.

    Published results and marks only where there are any.
    """
    rows, blanks = (*section.rows, *section.baselines), [""] * len(section.baselines)
    names = [row.method if section.settings else row.name for row in section.rows]
    columns = [Column("method", names + [row.name for row in section.baselines])]
    # Where space is short, later metrics are left out first, then the nearest published results.
    for rank, (name, title) in enumerate(short_names(section.settings).items(), start=2):
        texts = [row.option_text(name) for row in section.rows]
        columns.append(Column(title, texts + blanks, rank, right=True))
    for place, metric in enumerate(section.metrics):
        columns += _metric_columns(section, report, metric, rank=100 + place if place else 0)
    if report.about.source is None:
        repeats = [max(one.n for one in row.ours.values()) for row in section.rows]
        keys = [(row.stored[0], row.key.evaluation) for row in section.rows]
        cells = [find_nearest(*key, n) or "" for key, n in zip(keys, repeats, strict=True)]
        if any(cells):
            columns.append(Column("published (what differs)", cells + blanks, 99))
    counts = ["/".join(map(str, sorted({e.n for e in r.ours.values()}))) or DASH for r in rows]
    counted = [Cell(text, runs=row.stored) for text, row in zip(counts, rows, strict=True)]
    columns.append(Column("n", counted, right=True))
    columns += _test_columns(section)
    caveats = [row.caveats for row in rows]
    if any(caveats):
        marks = [
            Cell(_letters(some), "" if is_comparable(some) else "blocks", "; ".join(map(str, some)))
            for some in caveats
        ]
        columns.append(Column("marks", marks))
    return Table(section.title, columns, _caption(section, report), len(section.baselines))


def _metric_columns(section: Section, report: Report, metric: str, rank: int) -> Iterator[Column]:
    """Yields our estimates, and published results and differences if there are any."""
    rows = (*section.rows, *section.baselines)
    # As many digits as published; two where nothing is.
    printed = [row.published[metric].decimals for row in section.rows if metric in row.published]
    digits = max(printed, default=DECIMALS.get(metric, 2))
    means = {id(r): f"{r.ours[metric].mean:.{digits}f}" for r in section.rows if metric in r.ours}
    best = max(means.values(), key=float) if len(means) > 1 and is_score(metric) else ""

    def our_cell(row: Row) -> Cell:
        if ours := row.ours.get(metric):
            kind = "best" if best and means.get(id(row)) == best else ""
            return Cell(ours.format(digits, report.about.spread), kind)
        if row.cell and row.runs.empty:
            return Cell(DASH, "missing", row.cell.command)
        return Cell(DASH)

    column = partial(Column, rank=rank, right=True, group=metric_name(metric))
    yield column(metric_name(metric), [our_cell(row) for row in rows])
    if printed:
        yield column("published", [_published(row.published.get(metric)) for row in rows])
        yield column("Δ", [_difference(row.comparisons.get(metric), digits) for row in rows])


def _published(result: PublishedResult | None) -> Cell:
    hint = f"{result.source} {result.table}, {result.origin}" if result else ""
    return Cell(str(result or DASH), "published", hint)


def _difference(comparison: Comparison | None, digits: int) -> Cell:
    if comparison is None:
        return Cell("")
    sign, hint = VERDICTS[comparison.verdict]
    if comparison.difference is not None:
        sign = f"{comparison.difference:+.{digits}f} {sign}"
    if comparison.p_value is not None:
        hint += f"; Welch against the published mean: p = {comparison.p_value:.2g}"
    return Cell(sign, comparison.verdict, hint)


def _letters(caveats: Sequence[Caveat]) -> str:
    return " ".join(dict.fromkeys(caveat.mark for caveat in caveats))


def _caption(section: Section, report: Report) -> str:
    """Returns units and spread of the metrics, and what selected the epochs."""
    spread = "standard deviation" if report.about.spread == "std" else "95 % interval"
    parts = [f"scores in percent, ± {spread} over n repeats, both values of two", "bold: highest"]
    if len(section.tested) > 1:
        found = "better than" if section.tests.ours.eq("above").any() else "no row is better"
        name, count = metric_name(main_metric(report.about)), len(section.tested)
        parts.append(f"{found}: {name}, Welch's test, 5 % with Holm's correction for {count} rows")
    stored = [run.config for row in section.rows for run in row.stored]
    if any(config and config.selected_on == "test" for config in stored):
        parts.append("best epoch selected on the test images, as in the literature")
    return "; ".join(parts)


def _test_columns(section: Section) -> Iterator[Column]:
    """Yields the rows that each row is better than, here and in the paper."""
    rows, tests = (*section.rows, *section.baselines), section.tests
    names = dict(enumerate(row.name for row in section.tested))
    for title, column in (("better than", "ours"), ("in the paper", "paper")):
        cells = {id(row): Cell("") for row in rows}
        for place, won in tests[tests[column] == "above"].groupby("row"):
            p_values = zip(won.other.map(names), won.p_value, won.corrected, strict=True)
            hint = "; ".join(f"{n}: p = {p:.2g}, corrected {q:.2g}" for n, p, q in p_values)
            cells[id(section.tested[place])] = Cell(", ".join(won.other.map(names)), "text", hint)
        if any(cells.values()):
            yield Column(title, [*cells.values()], 1 if column == "ours" else 98)


def legend(report: Report) -> list[tuple[str, str]]:
    """Returns the signs and letters that occur in a report, with their meanings."""
    verdicts = {one.verdict for row in report.rows for one in row.comparisons.values()}
    found = {caveat.mark for row in report.rows for caveat in row.caveats}
    signs = [VERDICTS[name] for name in VERDICTS if name in verdicts]
    return signs + [(mark, meaning) for mark, meaning in MARKS.items() if mark in found]


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
    yield from (section_table(section, report) for section in report.sections)
    yield from (f"{sign}  {meaning}" for sign, meaning in legend(report))
    yield from report.problems
    if report.about.script and report.frame.empty:
        yield f"drawn by: {report.about.script}"
    for cell in report.missing[:max_commands]:
        yield f"missing: {cell.command}"
    if more := len(report.missing) - len(report.missing[:max_commands]):
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


def to_frame(reports: Sequence[Report]) -> pd.DataFrame:
    """Returns a line per row and metric of reports, in the ids of `results.csv`."""
    lines = []
    for report, section in [(one, section) for one in reports for section in one.sections]:
        for row, metric in product((*section.rows, *section.baselines), section.metrics):
            line: dict[str, Any] = {"experiment": report.about.id, **asdict(row.key)}
            line |= {"label": row.label, "metric": metric}
            if ours := row.ours.get(metric):
                line |= {"mean": ours.mean, "ci95": ours.half_width}
                line |= {"std": ours.std, "repeats": ours.n}
            for prefix, of in (("printed_", row.published), ("", row.comparisons)):
                if metric in of:
                    line |= {f"{prefix}{k}": value for k, value in asdict(of[metric]).items()}
            line |= {"marks": _letters(row.caveats), "details": "; ".join(map(str, row.caveats))}
            line["folders"] = " ".join(str(run.folder) for run in row.stored)
            line["command"] = row.cell.command if row.cell and row.runs.empty else ""
            lines.append(line)
    return pd.DataFrame(lines, dtype=object)
