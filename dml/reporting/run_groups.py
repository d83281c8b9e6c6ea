"""Groups of runs: one configuration over seeds and repeats, and labels that tell rows apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dml.config.identity import method_name
from dml.core.statistics import Estimate
from dml.reporting.finished_runs import FinishedRun
from dml.reporting.option_texts import differing_options, format_option
from dml.reporting.published_results import ResultKey, parse_setting

MAX_LABEL_OPTIONS = 4  # options named in the label of a row; the others are counted


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in seed and repeats only.

    Attributes:
        runs: at least one, in the order of their seeds.
    """

    runs: tuple[FinishedRun, ...]

    @property
    def first(self) -> FinishedRun:
        """The run of the lowest seed, whose pictures represent the group."""
        return self.runs[0]

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that decide the result, except seed and repeats."""
        return self.first.options

    @property
    def stand_in(self) -> bool:
        """True for stand-in data."""
        return bool(self.first.summary["stand_in"])

    @property
    def data(self) -> str:
        """Name of the dataset."""
        return self.first.summary["data"]

    @property
    def method(self) -> str:
        """Loss and method: `ms`, `ms + metrix`, or `untrained`."""
        return method_name(self.first.summary["loss"], self.first.summary["method"])

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return self.first.summary["protocol"]

    @property
    def label(self) -> str:
        """Names given to the runs with `name=`; empty without any."""
        names = (" ".join(str(run.summary.get("name") or "").split()) for run in self.runs)
        return ", ".join(filter(None, dict.fromkeys(names)))

    def key(self, evaluation: str) -> ResultKey:
        """Returns what the numbers of an evaluation were measured on."""
        summary = self.first.summary
        return ResultKey(
            data=self.data,
            backbone=summary["backbone"],
            dim=int(summary["embedding_size"]),
            protocol=summary["protocol"],
            evaluation=evaluation,
            method=summary["result_id"],
            setting=self.first.setting,
        )

    def estimate(self, metric: str, evaluation: str) -> Estimate | None:
        """Returns a metric over all seeds and repeats that have it; None if none has."""
        places = sorted(self._repeats.items(), key=lambda pair: pair[0])
        found = [(run.values(metric, evaluation), repeat) for (_, repeat), run in places]
        values = tuple(of_run[repeat] for of_run, repeat in found if repeat in of_run)
        return Estimate(values) if values else None

    @cached_property
    def _repeats(self) -> dict[tuple[int, int], FinishedRun]:
        """(seed, repeat) → its run; of two runs with the same seed, the longer one."""
        ordered = sorted(self.runs, key=lambda run: len(run.summary["jobs"]))
        return {
            (run.summary["seed"], int(job["repeat"])): run
            for run in ordered
            for job in run.summary["jobs"]
        }


def group_runs(runs: Iterable[FinishedRun]) -> list[RunGroup]:
    """Groups runs by configuration, in the order of first appearance."""
    groups: dict[str, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.options, sort_keys=True, default=str), []).append(run)
    return [
        RunGroup(tuple(sorted(same, key=lambda run: (run.summary["seed"], str(run.folder)))))
        for same in groups.values()
    ]


def name_places(groups: Sequence[RunGroup]) -> list[str]:
    """Returns the data of each group, with the protocol where the data have several of them."""
    places = {(group.data, group.protocol) for group in groups}
    several = {data for data, number in Counter(data for data, _ in places).items() if number > 1}
    return [
        f"{group.data}, {group.protocol}" if group.data in several else group.data
        for group in groups
    ]


def label_rows(
    rows: Sequence[tuple[ResultKey, Mapping[str, Any]]], first: Sequence[str] = ()
) -> list[str]:
    """Returns for each row a label that distinguishes it from rows of the same key.

    The setting of the published table comes first, then the options in which rows of the same key
    differ. The label is empty where neither exists.

    Args:
        rows: key and options of each.
        first: options to name before others.
    """
    labels = []
    for key, options in rows:
        same = [others for other_key, others in rows if other_key == key]
        parts = [f"{name} {value}" for name, value in parse_setting(key.setting).items()]
        names = sorted(differing_options(same), key=lambda name: name not in first)
        shown = names[:MAX_LABEL_OPTIONS]
        parts += [f"{name}={format_option(options.get(name))}" for name in shown]
        if len(names) > MAX_LABEL_OPTIONS:
            parts.append(f"and {len(names) - MAX_LABEL_OPTIONS} more options")
        labels.append(", ".join(parts))
    return labels
