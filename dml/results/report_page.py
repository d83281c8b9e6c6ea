"""The HTML page of reports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from dml.config.schema import ExperimentConfig
from dml.core.plain_text import show_text
from dml.core.progress import format_epoch
from dml.results.compare import BLOCKING, MARKS, VERDICTS
from dml.results.frame import format_option, join_some
from dml.results.published import TITLES
from dml.results.report import Report, main_metric, metric_name
from dml.results.report_texts import list_departures
from dml.results.section_tables import legend, section_table

if TYPE_CHECKING:
    from dml.results.figures import Picture

MAX_TITLES = 3  # experiments that the title names; of more it has the number


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
    environment = Environment(loader=ChoiceLoader(folders), autoescape=True, finalize=show_value)
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
    if len(reports) <= MAX_TITLES:
        title = "; ".join([title_in_words(report.about) for report in reports])
    page = environment.get_template("page.html.j2")
    date = f"{made:%Y-%m-%d %H:%M}"
    return page.render(name=title, reports=reports, figures=figures, made=date, mark=mark)


def show_value(value: Any) -> Any:
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
