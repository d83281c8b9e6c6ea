"""Which pictures a report shows: the kinds that an experiment may name in `experiment.figures`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dml.reporting.curves import learning_curves, runtime
from dml.reporting.embedding_maps import embedding_maps, without_embeddings
from dml.reporting.picture import Picture, stored
from dml.reporting.report import Report
from dml.reporting.run_groups import Group
from dml.reporting.sweep_figures import heat_maps, hyperparameter_curves
from dml.runs.console import is_score

# Kinds drawn from numbers; every other name is a picture that runs have drawn themselves
# (`figures/<kind>.png`: neighbors, stages, proxies, search_history, …).
DRAWN = (
    "learning_curves",  # score against epochs; learning_curves:<column> of history.csv
    "runtime",  # score against minutes of training
    "hyperparameter_curves",  # score against each varied option
    "heat_map",  # score over two varied options
    "embedding_map",  # t-SNE of stored test embeddings
)


def pictures(report: Report) -> Iterator[Picture]:
    """The pictures of a report, in the order of its kinds; none for what has not been run."""
    named = names(report)
    metric = next(filter(is_score, report.source.metrics), report.source.metrics[0])
    found: Iterator[Picture]
    for kind in report.figures:
        name, _, column = kind.partition(":")
        if name == "learning_curves":
            found = learning_curves(named, column or None)
        elif name == "runtime":
            found = runtime(named)
        elif name == "hyperparameter_curves":
            found = hyperparameter_curves(report.rows, report.swept, column or metric)
        elif name == "heat_map":
            found = heat_maps(report.rows, report.swept, column or metric)
        elif name == "embedding_map":
            found = embedding_maps(named)
        else:
            found = _drawn_by_runs(named, name)
        yield from found


def hints(report: Report) -> list[str]:
    """Commands that store what a wanted picture lacks."""
    wanted = any(kind.startswith("embedding_map") for kind in report.figures)
    return without_embeddings(names(report)) if wanted else []


def names(report: Report) -> list[tuple[str, Group]]:
    """The groups of a report in the order of its rows, named so that no two share a picture's name.

    The row's name, with backbone and embedding size where one dataset has it more than once.
    """
    rows = {id(row.group): (row, row.group) for row in reversed(report.rows) if row.group}
    found = [(row, group, group.facts("")) for row, group in reversed(rows.values())]
    plain = Counter((facts.data, row.name) for row, _, facts in found)
    return [
        (
            row.name
            if plain[facts.data, row.name] == 1
            else f"{row.name}, {facts.backbone} {facts.dim}-d",
            group,
        )
        for row, group, facts in found
    ]


def _drawn_by_runs(named: list[tuple[str, Group]], kind: str) -> Iterator[Picture]:
    for name, group in named:
        path = group.first.folder / "figures" / f"{kind}.png"
        if path.exists():
            what, data = kind.replace("_", " "), group.facts("").data
            yield stored(path, f"{what} of {name} on {data}", f"{what} of {name} on {data}")
