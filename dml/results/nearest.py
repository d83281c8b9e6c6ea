"""The published number that is nearest to a run, and in what the two differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dml.core.counts import count_of
from dml.core.installation import CONFIGS
from dml.core.metric_names import metric_label
from dml.results.frame import GROUPS, IMAGES, comparable, describe_differences, join_some
from dml.results.published import VALIDATED, PublishedResult, read_result, rows_of
from dml.results.tables import Cell
from dml.runs.folder.stored_run import StoredConfig, StoredRun, Summary

UNTRAINED = "untrained"  # id of results without training
TIMM = "dml.models.backbones.TimmBackbone"
METRICS = ("map_at_r", "recall_at_1", "precision_at_1")


@dataclass(frozen=True)
class Candidate:
    """A published result of a run's data and method.

    Attributes:
        metric: its metric.
        preference: position of the metric, of which the one that selects the epoch is first.
        result: the number.
        differences: in what the two differ: name → the published value and the run's, in words.
    """

    metric: str
    preference: int
    result: PublishedResult
    differences: dict[str, str]

    @property
    def rank(self) -> tuple:
        """Order of candidates, the nearest first."""
        return len(self.differences), self.preference, self.result.preference, self.result.line


def find_nearest(run: StoredRun, evaluation: str = "", repeats: int = 0) -> Cell | None:
    """Returns the published number of a run's data and method that differs in the fewest points.

    Args:
        run: a run.
        evaluation: `single`, `separated` or `concatenated`; by default as the summary has it.
        repeats: of all runs of its configuration; by default those of the run.

    Returns:
        A cell with the number and the names of what differs, whose hint has the values; None for an
        unfinished run, stand-in data, test classes seen in training, or if no paper prints a number
        of this method on these data.
    """
    summary, config = run.summary, run.config
    if summary is None or config is None:
        return None
    has_images_of_user = run.content["data"].get("identified_by") != "name"
    if summary.stand_in or has_images_of_user or run.has_seen_classes:
        return None
    candidates = _candidates(summary, config, evaluation or summary.evaluation)
    if not candidates:
        return None
    nearest = min(candidates, key=attrgetter("rank"))
    repeats = repeats or len({job.repeat for job in summary.jobs})
    further = _further_differences(run, nearest.result, repeats)
    return _show(nearest.metric, nearest.result, nearest.differences | further)


def _candidates(summary: Summary, config: StoredConfig, evaluation: str) -> list[Candidate]:
    """Returns the published results of a run's data and method."""
    ours = {
        "protocol": summary.protocol,
        "evaluation": evaluation,
        "backbone": config.backbone,
        "dim": str(summary.embedding_size),
        "setting": "",
    }
    candidates = []
    metrics = dict.fromkeys((config.select_metric, *METRICS))
    for preference, metric in enumerate(metrics):
        for row in rows_of("dataset", config.data, metric):
            # a number of another network without training says nothing about this one
            is_of_network = row["method"] != UNTRAINED or row["backbone"] == config.backbone
            if row["method"] == summary.result_id and is_of_network:
                differences = _differences(row, ours, config.selected_on)
                candidates.append(Candidate(metric, preference, read_result(row), differences))
    return candidates


def _show(metric: str, result: PublishedResult, differences: Mapping[str, str]) -> Cell:
    """Returns the cell of a result: what differs in its text, the values in its hint."""
    label = metric_label(metric)
    text = f"{label} {result.text}"
    values = "in the same setting"
    if differences:
        text += f" ({', '.join(differences)})"
        values = f"with {'; '.join(differences.values())}"
    return Cell(text, "published", f"{label} {result} ({result.origin_in_words}), {values}")


def _differences(
    row: Mapping[str, str], ours: Mapping[str, str], selected_on: str
) -> dict[str, str]:
    """Returns the columns in which a published result differs; an empty column never does."""
    differences = {}
    for name, value in ours.items():
        if row[name] not in ("", value):
            differences[name] = f"{row[name]} instead of {value or 'the usual'}"
    theirs = "validation" if row["protocol"] in VALIDATED else "test"
    if theirs != selected_on:
        differences["selection"] = f"selection on {theirs} classes instead of {selected_on} classes"
    return differences


def _further_differences(run: StoredRun, result: PublishedResult, repeats: int) -> dict[str, str]:
    """Returns the differences in repeats and options, which do not count in the choice."""
    differences = {}
    if result.runs not in (None, repeats):
        differences["repeats"] = f"{count_of(result.runs, 'repeat')} instead of {repeats}"
    options = _changed_options(run)
    if options:
        differences["options"] = join_some(options)
    return differences


def _changed_options(run: StoredRun) -> list[str]:
    """Returns the options in which a run differs from the config files that it chose."""
    from dml.config.compositions import identity_of  # late: most runs have no published number

    names: dict[str, Any] = {}
    if run.config:
        names["experiment"] = run.config.experiment
    for group in (*GROUPS, "search"):
        names[group] = (run.content.get(group) or {}).get("name")
    words = []
    for group, name in names.items():
        path = CONFIGS / group / f"{name}.yaml"
        if path.exists():
            words.append(f"{path.parent.name}={name}")
        elif group == "backbone":
            words += _timm_words(run)
    ours, planned = comparable(run.options), comparable(identity_of(*words))
    ours.pop(IMAGES, None)
    return list(describe_differences(planned, ours).values())


def _timm_words(run: StoredRun) -> list[str]:
    """Returns the options that choose a run's network of timm; none of another network."""
    backbone = run.content.get("backbone") or {}
    if backbone.get("_target_") != TIMM:
        return []
    return ["backbone=timm", f"backbone.model={backbone['model']}"]
