"""Figures of a report, by the kinds that an experiment names in `experiment.figures`.

Kinds drawn from numbers: `learning_curves` (scores against epochs; `learning_curves:<column>` of
`history.csv`), `runtime` (scores against minutes of training), `hyperparameter_curves` (scores
against each varied option), `heat_map` (scores over two varied options) and `embedding_map` (t-SNE
of stored test embeddings). Every other kind is a picture that runs have drawn: `figures/<kind>.png`
of their folders (neighbors, stages, proxies, search_history, …).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dml.results.curves import NamedGroup, learning_curves, runtime_curves
from dml.results.embedding_maps import embedding_maps, list_save_commands
from dml.results.picture import Picture, load_picture
from dml.results.report import Report
from dml.results.run_groups import name_places
from dml.results.sweep_figures import heat_maps, hyperparameter_curves
from dml.runs.console import is_score


@dataclass(frozen=True)
class Figures:
    """Pictures of a report, and the commands that store embeddings for missing maps."""

    pictures: tuple[Picture, ...]
    commands: tuple[str, ...]


def draw_figures(report: Report) -> Figures:
    """Returns the pictures in the order of the report's kinds; none for what has not been run."""
    groups = name_groups(report)
    pictures = [one for kind in report.about.figures for one in _draw_kind(kind, report, groups)]
    has_maps = any(kind.startswith("embedding_map") for kind in report.about.figures)
    return Figures(tuple(pictures), tuple(list_save_commands(groups) if has_maps else ()))


def name_groups(report: Report) -> list[NamedGroup]:
    """Returns the groups of a report in the order of its rows, with distinct names.

    The name is the row's, with backbone and embedding size where a dataset and protocol have it
    more than once.
    """
    first_rows = {id(row.group): row for row in reversed(report.rows) if row.group}
    rows = list(reversed(first_rows.values()))
    counts = Counter((row.key.data, row.key.protocol, row.name) for row in rows)
    named = []
    for row in rows:
        unique = counts[row.key.data, row.key.protocol, row.name] == 1
        name = row.name if unique else f"{row.name}, {row.key.backbone} {row.key.dim}-d"
        if row.group is not None:
            named.append((name, row.group))
    return named


def _best_groups(report: Report, metric: str) -> set[int]:
    """Returns the ids of the groups with the best score of each method and table."""
    best: dict[tuple[int, str], tuple[float, int]] = {}
    for section in report.sections:
        for row in section.rows:
            if row.group is not None and (ours := row.numbers[metric].ours):
                key = (id(section), row.method)
                best[key] = max(best.get(key, (-1.0, 0)), (ours.mean, id(row.group)))
    return {group for _, group in best.values()}


def _draw_kind(kind: str, report: Report, groups: list[NamedGroup]) -> Iterator[Picture]:
    name, _, column = kind.partition(":")
    metrics = report.about.metrics
    metric = column or next(filter(is_score, metrics), metrics[0])
    if name == "learning_curves":
        yield from learning_curves(groups, column or None)
    elif name == "runtime":
        yield from runtime_curves(groups)
    elif name == "hyperparameter_curves":
        yield from hyperparameter_curves(report.rows, report.swept, metric)
    elif name == "heat_map":
        yield from heat_maps(report.rows, report.swept, metric)
    elif name == "embedding_map":
        yield from embedding_maps(groups)
    else:
        best = _best_groups(report, metric)  # of own runs, which may be many
        places = name_places([group for _, group in groups])
        for (of, group), place in zip(groups, places, strict=True):
            path = group.first.folder / "figures" / f"{name}.png"
            if path.exists() and (report.of_paper or id(group) in best):
                text = f"{name.replace('_', ' ')} of {of} on {place}"
                yield load_picture(path, text, text)
