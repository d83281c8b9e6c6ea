"""Baselines: the networks of a table before their training, and off-the-shelf networks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dml.core.statistics import Estimate
from dml.results.finished_runs import FinishedRun
from dml.results.option_texts import differing_options, format_option
from dml.results.published_results import ResultKey
from dml.results.rows import Number, Row
from dml.results.run_groups import RunGroup
from dml.runs.console import is_score

OFF_THE_SHELF = "untrained"  # the method whose runs train nothing
NETWORK = ("backbone.", "embedder.")  # options on which the scores before training depend


def untrained_rows(groups: Sequence[RunGroup], key: ResultKey, metrics: Sequence[str]) -> list[Row]:
    """Returns a row per initialization of the network: its scores before training, over seeds.

    Args:
        groups: runs of one table.
        key: what they share.
        metrics: of the table.
    """
    networks: dict[str, list[FinishedRun]] = {}
    for group in groups:
        if not _trains_nothing(group):
            options = json.dumps(_network_options(group), sort_keys=True, default=str)
            networks.setdefault(options, []).extend(group.runs)
    networks_options = [json.loads(one) for one in networks]
    rows = []
    for own, runs in zip(networks_options, networks.values(), strict=True):
        label = ", ".join(
            f"{name} {format_option(own.get(name))}" for name in differing_options(networks_options)
        )
        numbers = {metric: Number(_estimate(runs, metric)) for metric in metrics}
        if any(number.ours for number in numbers.values()):
            rows.append(Row(key, label, None, None, (), numbers, title="untrained"))
    return rows


def is_off_the_shelf(row: Row) -> bool:
    """Returns True for runs of `method=untrained` that belong to no cell of an experiment."""
    return row.group is not None and row.cell is None and _trains_nothing(row.group)


def table_place(key: ResultKey) -> tuple[str, ...]:
    """Returns what a network off the shelf shares with the table that lists it as a baseline."""
    return key.data, key.backbone, key.protocol, key.evaluation


def name_baseline(row: Row) -> Row:
    """Returns the row of a network off the shelf under its name in the tables of other networks."""
    return replace(row, title="off the shelf", label=f"{row.key.dim}-d")


def _trains_nothing(group: RunGroup) -> bool:
    return group.first.summary["method"] == OFF_THE_SHELF


def _network_options(group: RunGroup) -> Mapping[str, Any]:
    return {name: value for name, value in group.options.items() if name.startswith(NETWORK)}


def _estimate(runs: Sequence[FinishedRun], metric: str) -> Estimate | None:
    """Returns a score before training over the different seeds and repeats; None if unknown."""
    found: dict[tuple[int, int], list[float]] = {}
    for run in runs:
        folds: dict[int, list[float]] = {}
        for job in run.summary["jobs"]:
            value = (job.get("untrained") or {}).get(metric)
            if value is not None and is_score(metric):
                folds.setdefault(int(job["repeat"]), []).append(100.0 * float(value))
        for repeat, values in folds.items():
            found.setdefault((int(run.summary["seed"]), repeat), values)
    means = [sum(values) / len(values) for _, values in sorted(found.items())]
    return Estimate(tuple(means)) if means else None
