"""Runs of one configuration over seeds and repeats, and what tells configurations apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dml.core.statistics import Estimate
from dml.reporting.finished_runs import Run
from dml.reporting.published_results import ResultKey, settings

MOST_LABELS = 4  # options named in a row's label; more are counted


@dataclass(frozen=True)
class Group:
    """Runs that differ in seed and repeats alone.

    Attributes:
        runs: at least one, in the order of their seeds.
    """

    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """The run of the lowest seed, whose pictures stand for the group."""
        return self.runs[0]

    @property
    def options(self) -> Mapping[str, Any]:
        """What decides the result, but for seed and repeats."""
        return self.first.options

    @property
    def stand_in(self) -> bool:
        """Whether the data are stand-in data."""
        return bool(self.first.summary["stand_in"])

    @property
    def evaluations(self) -> tuple[str, ...]:
        """`single`, or `separated` and `concatenated`."""
        return self.first.evaluations

    def facts(self, evaluation: str) -> ResultKey:
        """What its numbers were measured on."""
        summary = self.first.summary
        return ResultKey(
            data=summary["data"],
            backbone=summary["backbone"],
            dim=int(summary["embedding_size"]),
            protocol=summary["protocol"],
            evaluation=evaluation,
            method=summary["result_id"],
            setting=self.first.setting,
        )

    @cached_property
    def _repeats(self) -> dict[tuple[int, int], Run]:
        """(seed, repeat) → the run that did it; of two with the same seed the longer one."""
        ordered = sorted(self.runs, key=lambda run: len(run.summary["jobs"]))
        return {
            (run.summary["seed"], int(job["repeat"])): run
            for run in ordered
            for job in run.summary["jobs"]
        }

    def estimate(self, metric: str, evaluation: str) -> Estimate | None:
        """A metric over all seeds and repeats that know it; None if none does."""
        places = sorted(self._repeats.items(), key=lambda pair: pair[0])
        found = [(run.values(metric, evaluation), repeat) for (_, repeat), run in places]
        values = tuple(of_run[repeat] for of_run, repeat in found if repeat in of_run)
        return Estimate(values) if values else None


def grouped(runs: Iterable[Run]) -> list[Group]:
    """Runs by configuration, in the order of first appearance."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(json.dumps(run.options, sort_keys=True, default=str), []).append(run)
    return [
        Group(tuple(sorted(same, key=lambda run: (run.summary["seed"], str(run.folder)))))
        for same in found.values()
    ]


def differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the options that are not the same in all, sorted."""
    names = sorted(set().union(*options)) if options else []
    return [
        name
        for name in names
        if any(one.get(name, "") != options[0].get(name, "") for one in options)
    ]


def labels(
    subjects: Sequence[tuple[ResultKey, Mapping[str, Any]]], swept: Sequence[str] = ()
) -> list[str]:
    """For each subject what tells it from those of the same facts; empty if nothing has to.

    The setting of the printed table comes first, then options in which namesakes differ.

    Args:
        subjects: facts and options of each.
        swept: options to name before others.
    """
    found = []
    for facts, options in subjects:
        same = [other for their, other in subjects if their == facts]
        parts = [f"{key} {value}" for key, value in settings(facts.setting).items()]
        names = sorted(differing(same), key=lambda name: name not in swept)
        parts += [f"{name}={shown(options.get(name))}" for name in names[:MOST_LABELS]]
        if len(names) > MOST_LABELS:
            parts.append(f"and {len(names) - MOST_LABELS} options more")
        found.append(", ".join(parts))
    return found


def shown(value: Any) -> str:
    """An option's value as it is typed on the command line."""
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
