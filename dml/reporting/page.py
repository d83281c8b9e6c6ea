"""A report as one HTML page that needs nothing else: pictures, style and provenance inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dml.reporting import tables
from dml.reporting.caveats import MEANING
from dml.reporting.comparison import Verdict
from dml.reporting.pairwise_tests import Family
from dml.reporting.picture import Picture
from dml.reporting.report import Report, Section
from dml.reporting.report_figures import hints, pictures
from dml.reporting.rows import Row
from dml.reporting.run_groups import Group


@dataclass(frozen=True)
class Figures:
    """Pictures of a report, and commands that store what wanted ones lack."""

    pictures: tuple[Picture, ...]
    hints: tuple[str, ...]


def figures(report: Report) -> Figures:
    """All pictures that an experiment wants and its runs allow."""
    return Figures(tuple(pictures(report)), tuple(hints(report)))


def page(reports: Sequence[Report], shown: Mapping[str, Figures], made: datetime) -> str:
    """The page.

    Args:
        reports: experiments in the order of the page.
        shown: figures by experiment; those left out have none.
        made: when.
    """
    environment = Environment(
        loader=PackageLoader("dml.reporting", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    style, _, _ = environment.loader.get_source(environment, "style.css")  # type: ignore[union-attr]
    environment.globals.update(
        cells=cells,
        test_cells=test_cells,
        provenance=provenance,
        tables=tables,
        verdicts=list(Verdict),
        meaning=MEANING,
    )
    name = reports[0].id if len(reports) == 1 else "all experiments"
    return environment.get_template("page.html.j2").render(
        name=name,
        reports=reports,
        figures=shown,
        no_figures=Figures((), ()),
        made=made.strftime("%Y-%m-%d %H:%M"),
        style=Markup(style),
    )


def cells(section: Section, report: Report, row: Row) -> list[dict[str, Any]]:
    """What a row's table cells show, per metric."""
    found = []
    for metric in section.metrics:
        number = row.numbers[metric]
        digits = tables.decimals(section.rows, metric)
        comparison = number.comparison
        title = ""
        if number.printed is not None:
            one = number.printed
            title = f"{one.source} {one.table.replace('T', 'Table ', 1)}, {one.origin}"
        found.append(
            {
                "metric": metric,
                "ours": tables.ours(row, metric, report.source.spread, digits),
                "printed": tables.printed(row, metric),
                "printed_title": title,
                "difference": tables.difference(row, metric, digits),
                "verdict": "" if comparison is None else comparison.verdict.name.lower(),
                "verdict_title": _in_words(row, metric),
                "has_printed": any(other.numbers[metric].printed for other in section.rows),
            }
        )
    return found


def _in_words(row: Row, metric: str) -> str:
    comparison = row.numbers[metric].comparison
    if comparison is None:
        return ""
    p_value = comparison.p_value
    tested = "" if p_value is None else f"; Welch against the printed mean: p = {p_value:.2g}"
    return f"{comparison.verdict}{tested}"


def test_cells(family: Family, place: int) -> list[dict[str, str]]:
    """Signs of one row's tests against every row, with p-values and the paper's mark."""
    found = []
    for other in range(len(family.rows)):
        test = family.tests.get((place, other))
        if test is None:
            found.append({"sign": "", "kind": "self", "title": "", "paper": ""})
            continue
        kind = ("above" if test.higher else "below") if test.differs else "overlap"
        what = f"p = {test.p_value:.2g}, corrected {test.corrected:.2g}"
        names = f"{family.rows[place].name} against {family.rows[other].name}"
        signs = {"better": "▲", "worse": "▼", "no difference": "·"}
        paper = f"; the paper: {test.paper}" if test.paper else ""
        found.append(
            {
                "sign": test.symbol,
                "kind": kind,
                "title": f"{names}: {what}{paper}",
                "paper": signs[test.paper] if test.paper else "",
            }
        )
    return found


def provenance(group: Group) -> list[dict[str, str]]:
    """Where the numbers of a group come from, per run."""
    found = []
    for run in group.runs:
        summary = run.summary
        versions = summary.get("versions") or {}
        seconds = summary.get("wall_seconds")
        facts = {
            "folder": str(run.folder),
            "seed": str(summary["seed"]),
            "best epoch": ", ".join(f"{job.get('best_epoch', 0):g}" for job in summary["jobs"]),
            "chosen by": str(summary["selected_by"]),
            "commit": str(summary.get("git_revision") or "unknown"),
            "device": str(summary.get("device", "unknown")),
            "precision": str(summary.get("precision", "unknown")),
            "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
            "wall time": "" if seconds is None else _duration(float(seconds)),
        }
        if summary.get("search"):
            search = summary["search"]
            params = ", ".join(
                f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}"
                for k, v in (search.get("params") or {}).items()
            )
            facts["search"] = f"{search.get('complete', '?')} trials; {params}"
        found.append({name: value for name, value in facts.items() if value})
    return found


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
