"""Reports as one HTML page that contains everything it shows: pictures, style, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dml.core.progress import format_epoch
from dml.results import report_tables
from dml.results.compare import BLOCKING, MARKS, VERDICTS
from dml.results.frame import format_option
from dml.results.picture import Picture
from dml.results.report import Report


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
