"""The table of a section of a report: its columns, and what explains them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dml.core.metric_names import is_score
from dml.results.compare import MARKS, VERDICTS, Caveat, Comparison, is_comparable
from dml.results.frame import join_some, short_names
from dml.results.nearest import find_nearest
from dml.results.published import PublishedResult
from dml.results.report import NETWORKS, Report, Row, Section, main_metric, metric_name
from dml.results.tables import Cell, Column, Table
from dml.runs.console import DASH

DECIMALS = {"train_steps": 0, "best_epoch": 1}  # where nothing is published; of other metrics 2
SPREAD = "± 95 % interval"  # in all tables, whatever a paper prints
PUBLISHED_SPREADS = {"std": "a standard deviation", "unstated": "whose meaning is not stated"}


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
    return Table(section.title, columns, describe_table(section, report), len(section.baselines))


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
        cells.append(Cell(letters_of(row.caveats), kind, "; ".join(map(str, row.caveats))))
    if any(cells):
        yield Column("marks", cells)


def letters_of(caveats: Sequence[Caveat]) -> str:
    """Returns the letters of caveats, each once."""
    marks = [caveat.mark for caveat in caveats]
    return " ".join(dict.fromkeys(marks))


def describe_table(section: Section, report: Report, has_tests: bool = True) -> str:
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
