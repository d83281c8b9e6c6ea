"""Reports of some experiments, printed as tables and written as files: HTML, Markdown and CSV."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import ChoiceLoader, Environment, PackageLoader
from rich.text import Text

from dml.config.schema import ExperimentConfig
from dml.core.atomic_io import check_writable, write_text
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
from dml.core.plain_text import encode, markdown_text, show_text
from dml.core.progress import format_epoch, show_progress
from dml.core.regular_files import open_regular
from dml.core.text_columns import plain_text_columns
from dml.results import catalog
from dml.results.compare import (
    BLOCKING,
    LEVEL,
    MARKS,
    VERDICTS,
    Caveat,
    Comparison,
    is_comparable,
)
from dml.results.departures import Departure, find_departures
from dml.results.frame import format_option, join_some, read_runs, short_names, write_runs
from dml.results.latex import PREAMBLE, latex_list, latex_table
from dml.results.nearest import find_nearest
from dml.results.published import TITLES, PublishedResult
from dml.results.report import (
    NETWORKS,
    Report,
    Row,
    Section,
    build_report,
    main_metric,
    metric_name,
)
from dml.results.tables import Cell, Column, Table, markdown_table, terminal_table
from dml.runs.console import DASH
from dml.runs.folder.stored_run import StoredRun

if TYPE_CHECKING:
    from dml.results.figures import Picture

MAX_TABLES = 3  # experiments whose tables the terminal shows; of more it shows a line each
DECIMALS = {"train_steps": 0, "best_epoch": 1}  # where nothing is published; of other metrics 2
MAX_COMMANDS = 5  # that the terminal shows
TABLE_OF_PAPER = ("Δ", "better than", "in the paper", "published (what differs)")  # not in LaTeX
DAGGER = "†"
DEPARTURES = "Departures from the paper or its authors' code:"
SPREAD = "± 95 % interval"  # in all tables, whatever a paper prints
PUBLISHED_SPREADS = {"std": "a standard deviation", "unstated": "whose meaning is not stated"}


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
    _print_reports(reports, console)
    drawn = _draw_all(reports) if figures else {}
    runs: list[StoredRun] = []
    for report in reports:
        runs += report.runs.distinct
    tables = (write_csv(to_frame(reports).map(_show_value)), write_runs(runs))
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
    folders = [PackageLoader(package, "templates") for package in ("dml.results", "dml.runs")]
    environment = Environment(loader=ChoiceLoader(folders), autoescape=True, finalize=_show_value)
    helpers = (
        section_table,
        question,
        legend,
        list_departures,
        title_in_words,
        format_epoch,
        format_option,
    )
    for helper in helpers:
        environment.globals[helper.__name__] = helper
    environment.globals |= {"verdicts": VERDICTS, "marks": MARKS, "blocking": BLOCKING}
    title = f"{len(reports)} experiments"
    if len(reports) <= MAX_TABLES:
        title = "; ".join([title_in_words(report.about) for report in reports])
    page = environment.get_template("page.html.j2")
    date = f"{made:%Y-%m-%d %H:%M}"
    return page.render(name=title, reports=reports, figures=figures, made=date, mark=mark)


def _show_value(value: Any) -> Any:
    """Shows the control characters of a value of the page, unless it is HTML."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return show_text(value) if is_text else value


def title_in_words(about: ExperimentConfig) -> str:
    """Returns `Mean field theory, Table 2` for mft_table2; the title of runs of no paper."""
    if not about.source or not about.id.startswith(f"{about.source}_"):
        return about.title
    _, _, item = about.id.partition("_")
    words = re.sub(r"(\d+)$", r" \1", item).replace("_", ", ").capitalize()
    return f"{TITLES[about.source]}, {words}"


def question(report: Report) -> str:
    """Returns a sentence about what the tables of a report ask."""
    rows = report.rows
    of = report.about.rows
    methods: dict[str, None] = {}
    names: dict[str, None] = {}
    for row in rows:
        methods[row.method] = names[row.key.data] = None
    data = join_some(list(names))
    metric = metric_name(main_metric(report.about))
    if len(methods) < 2:
        return f"What is the {metric} of {', '.join(methods)} on {data}?"
    end = ", and does it agree with the paper?" if report.about.source else "?"
    return f"Which of {len(methods)} {of} has the best {metric} on {data}{end}"


def section_table(section: Section, report: Report) -> Table:
    """Returns the table of a section, baselines last.

    Columns of published results and of marks are left out if they would be empty.
    """
    columns = [_method_column(section, report.about.rows.removesuffix("s"))]
    columns += _setting_columns(section)
    # Where space is short, later metrics are left out first, then the nearest published results.
    for position, metric in enumerate(section.metrics):
        rank = 100 + position if position else 0
        columns += _metric_columns(section, report, metric, rank)
    if report.about.source is None:
        columns += _nearest_columns(section)
    if _tells_pretraining(section, report):
        columns.append(_pretraining_column(section))
    columns.append(_count_column(section))
    columns += _test_columns(section)
    columns += _mark_columns(section)
    return Table(section.title, columns, _caption(section, report), len(section.baselines))


def _method_column(section: Section, title: str) -> Column:
    """Returns the names of the rows, without options that have columns."""
    names = []
    for row in section.rows:
        names.append(row.method if section.settings else row.name)
    for row in section.baselines:
        names.append(row.name)
    return Column(title, names)


def _tells_pretraining(section: Section, report: Report) -> bool:
    """Returns whether a table says what networks have seen: it compares them, or it is known."""
    is_known = any(row.pretraining for row in section.all_rows)
    return is_known or report.about.rows == NETWORKS


def _pretraining_column(section: Section) -> Column:
    """Returns whether the network of each row is known to have seen images of the dataset."""
    cells = []
    for row in section.all_rows:
        known = row.pretraining
        if known is None:
            cells.append(Cell(DASH))
        else:
            cells.append(Cell(known.holds, hint=f"{known.images}: {known.source}"))
    return Column("images seen", cells)


def _setting_columns(section: Section) -> Iterator[Column]:
    """Yields a column per option in which runs of no experiment differ."""
    blanks = [""] * len(section.baselines)
    for rank, (name, title) in enumerate(short_names(section.settings).items(), start=2):
        texts = [row.option_text(name) for row in section.rows]
        yield Column(title, texts + blanks, rank, right=True)


def _metric_columns(section: Section, report: Report, metric: str, rank: int) -> Iterator[Column]:
    """Yields our estimates, and published results and differences if there are any."""
    column = partial(Column, rank=rank, right=True, group=metric_name(metric))
    scores = [row.score(metric) for row in section.rows]
    decimals = [score.published.decimals for score in scores if score.published]
    digits = max(decimals, default=DECIMALS.get(metric, 2))  # as many as published
    best = ""
    means = [f"{score.ours.mean:.{digits}f}" for score in scores if score.ours]
    if len(means) > 1 and is_score(metric):
        best = max(means, key=float)
    show = partial(_our_cell, metric=metric, digits=digits)
    cells = [show(row, best=best) for row in section.rows]
    cells += map(show, section.baselines)
    yield column(metric_name(metric), cells)
    if decimals:
        published, differences = [], []
        for row in section.all_rows:
            score = row.score(metric)
            published.append(_published(score.published))
            differences.append(_difference(score.comparison, digits))
        yield column("published", published)
        yield column("Δ", differences)


def _our_cell(row: Row, metric: str, digits: int, best: str = "") -> Cell:
    """Returns our estimate, which is marked if its mean is the best; a dash without one."""
    ours = row.score(metric).ours
    if ours is not None:
        is_best = f"{ours.mean:.{digits}f}" == best
        return Cell(ours.format(digits), "best" if is_best else "")
    if row.missing:
        return Cell(DASH, "missing", row.missing.command)
    return Cell(DASH)


def _published(result: PublishedResult | None) -> Cell:
    if result is None:
        return Cell(DASH, "published")
    return Cell(str(result), "published", f"{result.source} {result.table}, {result.origin}")


def _difference(comparison: Comparison | None, digits: int) -> Cell:
    if comparison is None:
        return Cell("")
    sign, hint = VERDICTS[comparison.verdict]
    if comparison.difference is not None:
        sign = f"{comparison.difference:+.{digits}f} {sign}"
    if comparison.p_value is not None:
        hint += f"; Welch against the published mean: p = {comparison.p_value:.2g}"
    return Cell(sign, comparison.verdict, hint)


def _nearest_columns(section: Section) -> Iterator[Column]:
    """Yields the column of the nearest published results, if any row has one."""
    cells: list[str] = []
    for row in section.rows:
        result = None
        if row.stored:  # of a row that has not run, nothing differs
            result = find_nearest(row.stored[0], row.key.evaluation, max(row.repeats))
        cells.append(result or "")
    if any(cells):
        cells += [""] * len(section.baselines)
        yield Column("published (what differs)", cells, 99)


def _count_column(section: Section) -> Column:
    """Returns the numbers of repeats, which unfold to the runs."""
    cells = []
    for row in section.all_rows:
        text = "/".join(map(str, row.repeats))
        cells.append(Cell(text or DASH, runs=row.stored))
    return Column("n", cells, right=True)


def _mark_columns(section: Section) -> Iterator[Column]:
    """Yields the column of letters of caveats, if any row has one."""
    cells = []
    for row in section.all_rows:
        kind = "" if is_comparable(row.caveats) else "blocks"
        cells.append(Cell(_letters(row.caveats), kind, "; ".join(map(str, row.caveats))))
    if any(cells):
        yield Column("marks", cells)


def _letters(caveats: Sequence[Caveat]) -> str:
    marks = [caveat.mark for caveat in caveats]
    return " ".join(dict.fromkeys(marks))


def _caption(section: Section, report: Report, has_tests: bool = True) -> str:
    """Returns units and spread of the metrics, and what selected the epochs.

    `has_tests`: the table has the columns of the tests.
    """
    parts = [f"scores in percent, {SPREAD} over n repeats, both values of two", "bold: highest"]
    parts += _describe_published_spreads(section)
    if has_tests and len(section.tested) > 1:
        outcome = "no significant difference in"
        if section.tests.ours.eq("above").any():
            outcome = "better than:"
        test = f"Welch's test, 5 % with Holm's correction for {len(section.tested)} rows"
        parts.append(f"{outcome} {metric_name(main_metric(report.about))}, {test}")
    if _tells_pretraining(section, report):
        parts.append("images seen: whether the pretraining is known to hold images of the dataset")
        parts.append("without training: no method of a paper is compared")
    elif any(map(_is_selected_on_test, section.rows)):
        parts.append("best epoch selected on the test images (biased upwards)")
    return "; ".join(parts)


def _describe_published_spreads(section: Section) -> Iterator[str]:
    """Yields what follows ± in published results, where it is not what follows it in ours."""
    kinds: dict[str, None] = {}
    for row in section.all_rows:
        for score in row.scores.values():
            if score.published is not None:
                kinds[score.published.spread_kind] = None
    words = [PUBLISHED_SPREADS[kind] for kind in kinds if kind in PUBLISHED_SPREADS]
    if words:
        yield f"published: ± as printed, {join_some(words)}"


def _is_selected_on_test(row: Row) -> bool:
    return any(run.config and run.config.selected_on == "test" for run in row.stored)


def _test_columns(section: Section) -> Iterator[Column]:
    """Yields the columns of the rows that each row is better than, here and in the paper."""
    tests = section.tests
    names = dict(enumerate([row.name for row in section.tested]))
    for title, column, rank in (("better than", "ours", 1), ("in the paper", "paper", 98)):
        cells = dict.fromkeys(section.all_rows, Cell(""))
        for position, won in tests[tests[column] == "above"].groupby("row"):
            others = won.other.map(names)
            hints = []
            for name, p, corrected in zip(others, won.p_value, won.corrected, strict=True):
                hints.append(f"{name}: p = {p:.2g}, corrected {corrected:.2g}")
            cells[section.tested[position]] = Cell(", ".join(others), "text", "; ".join(hints))
        if any(cells.values()):
            yield Column(title, list(cells.values()), rank)


def legend(report: Report) -> list[tuple[str, str]]:
    """Returns the signs and letters that occur in a report, with their meanings."""
    verdicts: set[str] = set()
    marks: set[str] = set()
    for row in report.rows:
        for caveat in row.caveats:
            marks.add(caveat.mark)
        for score in row.scores.values():
            if score.comparison is not None:
                verdicts.add(score.comparison.verdict)
    lines = []
    for verdict, sign_and_meaning in VERDICTS.items():
        if verdict in verdicts:
            lines.append(sign_and_meaning)
    for mark, meaning in MARKS.items():
        if mark in marks:
            lines.append((mark, meaning))
    return lines


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
    for section in report.sections:
        yield section_table(section, report)
    for sign, meaning in legend(report):
        yield f"{sign}  {meaning}"
    yield from report.problems
    if report.about.script and report.frame.empty:
        yield f"drawn by: {report.about.script}"
    shown = report.missing[:max_commands]
    for cell in shown:
        yield f"missing: {cell.command}"
    more = len(report.missing) - len(shown)
    if more:
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


def to_latex(reports: Sequence[Report]) -> str:
    """Returns the tables of reports for a paper, and the departures that apply to their rows.

    They have no differences from published results: those are beside ours.
    """
    parts = [f"% The preamble needs {PREAMBLE}."]
    for report in reports:
        for number, section in enumerate(report.sections, start=1):
            table = _paper_table(section, report)
            parts.append(latex_table(table, f"tab:{report.about.id}-{number}"))
        departures = list_departures(report)
        if departures:
            parts.append(latex_list(DEPARTURES, map(str, departures)))
    return "\n".join([*parts, ""])


def _paper_table(section: Section, report: Report) -> Table:
    """Returns the table of a section in the columns of a paper, with marks of significance."""
    table = section_table(section, report)
    metric = main_metric(report.about)
    lower = _rows_below(section, metric)
    columns = []
    for column in table.columns:
        if column.title in TABLE_OF_PAPER:
            continue
        if column.title == metric_name(metric):
            column = replace(column, cells=list(_add_daggers(column.cells, section, lower)))
        columns.append(column)
    caption = [_caption(section, report, has_tests=False)]
    for mark in MARKS:
        if any(mark in _letters(row.caveats).split() for row in section.all_rows):
            caption.append(f"{mark}: {MARKS[mark]}")
    if lower:
        caption.append(
            f"{DAGGER}: {metric_name(metric)} significantly below the highest of the tested rows "
            f"(Welch's test, p ≤ {LEVEL} after Holm's correction for all pairs of rows)"
        )
    return replace(table, columns=columns, caption="; ".join(caption))


def _rows_below(section: Section, metric: str) -> list[Row]:
    """Returns the rows that are significantly below the one with the highest mean."""
    means = []
    for row in section.tested:
        ours = row.score(metric).ours
        assert ours is not None
        means.append(ours.mean)
    if not means:
        return []
    tests = section.tests
    is_lower = (tests.other == means.index(max(means))) & (tests.ours == "below")
    return [section.tested[position] for position in tests.row[is_lower]]


def _add_daggers(cells: Sequence[str], section: Section, lower: Sequence[Row]) -> Iterator[str]:
    for row, cell in zip(section.all_rows, cells, strict=True):
        yield f"{cell}{DAGGER}" if row in lower else cell


def list_departures(report: Report) -> list[Departure]:
    """Returns what differs from the papers or their authors' code, for the rows of a report."""
    return find_departures([row.options for row in report.rows], report.about)


def to_frame(reports: Sequence[Report]) -> pd.DataFrame:
    """Returns a line per row and metric of reports, in the ids of `results.csv`.

    `p_values` and `corrected_p_values` (Holm, over all pairs of rows of a table) are JSON objects:
    other row → p-value of Welch's test; `p_value` is that against the published result.
    """
    lines = []
    for report in reports:
        for section in report.sections:
            for row in section.all_rows:
                for metric in section.metrics:
                    line = {"experiment": report.about.id, **_describe_score(row, metric)}
                    if metric == main_metric(report.about):
                        line |= _describe_tests(row, section)
                    lines.append(line)
    return pd.DataFrame(lines, dtype=object)


def _describe_tests(row: Row, section: Section) -> dict[str, str]:
    """Returns the p-values of a row against the others of its table; none if it is not tested."""
    if row not in section.tested:
        return {}
    tests = section.tests[section.tests.row == section.tested.index(row)]
    others = [section.tested[position].name for position in tests.other]
    columns = {}
    for column, values in (("p_values", tests.p_value), ("corrected_p_values", tests.corrected)):
        columns[column] = json.dumps(dict(zip(others, values, strict=True)), ensure_ascii=False)
    return columns


def _describe_score(row: Row, metric: str) -> dict[str, Any]:
    """Returns the columns of a row and a metric in `to_frame`."""
    line: dict[str, Any] = {**asdict(row.key), "label": row.label, "metric": metric}
    score = row.score(metric)
    ours = score.ours
    if ours:
        line |= {"mean": ours.mean, "ci95": ours.half_width, "std": ours.std, "repeats": ours.n}
    if score.published:
        for name, value in asdict(score.published).items():
            line[f"printed_{name}"] = value
    if score.comparison:
        line |= asdict(score.comparison)
    line["marks"] = _letters(row.caveats)
    line["details"] = "; ".join(map(str, row.caveats))
    folders = [str(run.folder) for run in row.stored]
    line["folders"] = " ".join(folders)
    line["command"] = row.missing.command if row.missing else ""
    return line
