"""Reports as one HTML page that contains everything it shows: pictures, style, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dml.core.progress import format_epoch
from dml.results import tables
from dml.results.caveats import CaveatKind
from dml.results.comparison import Verdict
from dml.results.option_texts import format_option
from dml.results.pairwise_tests import Family
from dml.results.report import Report, Section
from dml.results.report_figures import Figures
from dml.results.rows import Row
from dml.results.run_groups import RunGroup
from dml.results.settings import setting_columns


def render_page(reports: Sequence[Report], figures: Mapping[str, Figures], made: datetime) -> str:
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
    environment.globals.update(
        row_cells=row_cells,
        test_cells=test_cells,
        provenance=provenance,
        tables=tables,
        verdicts=list(Verdict),
        caveat_kinds=list(CaveatKind),
        setting_columns=setting_columns,
    )
    own = not any(report.of_paper for report in reports)
    return environment.get_template("page.html.j2").render(
        name=(reports[0].about.title if own else reports[0].id)
        if len(reports) == 1
        else "all experiments",
        own=own,
        reports=reports,
        figures=figures,
        no_figures=Figures((), ()),
        made=made.strftime("%Y-%m-%d %H:%M"),
        style=Markup(style),
    )


def row_cells(section: Section, report: Report, row: Row) -> list[dict[str, Any]]:
    """Returns the texts of a row's table cells, a mapping per metric."""
    cells = []
    for metric in section.metrics:
        digits, best = tables.decimals(section.rows, metric), tables.best_rows(section, metric)
        published, comparison = row.numbers[metric].published, row.numbers[metric].comparison
        title = verdict = verdict_title = ""
        if published is not None:
            table = published.table.replace("T", "Table ", 1)
            title = f"{published.source} {table}, {published.origin}"
        if comparison is not None:
            verdict = comparison.verdict.name.lower()
            verdict_title = str(comparison.verdict)
            if comparison.p_value is not None:
                p_value = f"p = {comparison.p_value:.2g}"
                verdict_title += f"; Welch against the published mean: {p_value}"
        cells.append(
            {
                "metric": metric,
                "ours": tables.format_ours(row, metric, report.about.spread, digits),
                "published": tables.format_published(row, metric),
                "published_title": title,
                "difference": tables.format_difference(row, metric, digits),
                "verdict": verdict,
                "verdict_title": verdict_title,
                "has_published": tables.has_published(section, metric),
                "best": any(section.rows[place] is row for place in best),
            }
        )
    return cells


def test_cells(family: Family, place: int) -> list[dict[str, str]]:
    """Returns the signs of one row's tests against every row, with p-values."""
    cells = []
    for other in range(len(family.rows)):
        test = family.tests.get((place, other))
        if test is None:
            cells.append({"sign": "", "kind": "self", "title": "", "paper": ""})
            continue
        kind = ("above" if test.higher else "below") if test.differs else "overlap"
        names = f"{family.rows[place].name} against {family.rows[other].name}"
        p_values = f"p = {test.p_value:.2g}, corrected {test.corrected:.2g}"
        paper = f"; the paper: {test.paper}" if test.paper else ""
        title = f"{names}: {p_values}{paper}"
        cells.append(
            {"sign": test.symbol, "kind": kind, "title": title, "paper": test.paper_symbol}
        )
    return cells


def provenance(group: RunGroup) -> list[dict[str, str]]:
    """Returns the provenance of each run's numbers: name → text."""
    return [_run_provenance(str(run.folder), run.summary) for run in group.runs]


def _run_provenance(folder: str, summary: Mapping[str, Any]) -> dict[str, str]:
    seconds, search = summary.get("wall_seconds"), summary.get("search")
    versions = summary.get("versions") or {}
    texts = {
        "folder": folder,
        "seed": str(summary["seed"]),
        "best epoch": ", ".join(format_epoch(job.get("best_epoch", 0)) for job in summary["jobs"]),
        "selected by": str(summary["selected_by"]),
        "commit": str(summary.get("git_revision") or "unknown"),
        "device": str(summary.get("device", "unknown")),
        "precision": str(summary.get("precision", "unknown")),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "wall time": "" if seconds is None else _format_duration(float(seconds)),
    }
    if search:
        params = (search.get("params") or {}).items()
        values = ", ".join(f"{name}={format_option(value)}" for name, value in params)
        texts["search"] = f"{search.get('complete', '?')} trials; {values}"
    return {name: text for name, text in texts.items() if text}


def _format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
