"""The published number that is nearest to a run, and in what the two differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from dml.config.identity import identity
from dml.core.installation import CONFIGS
from dml.core.metric_names import metric_label
from dml.results.catalog import compose_config
from dml.results.frame import GROUPS, comparable, differing_options, format_option
from dml.results.published import PublishedResult, ResultKey, nearest_results, read_table
from dml.runs.folder.stored_run import StoredRun

METRICS = ("map_at_r", "recall_at_1", "precision_at_1")
MAX_OPTIONS = 3  # options named in a line; the others are counted


@dataclass(frozen=True)
class Nearest:
    """A published number for a run.

    Attributes:
        metric, result: the number.
        differences: what differs → `the paper's value instead of the run's`.
    """

    metric: str
    result: PublishedResult
    differences: dict[str, str]

    @property
    def short(self) -> str:
        """The number, and in brackets the names of what differs."""
        names = f" ({', '.join(self.differences)})" if self.differences else ""
        return f"{metric_label(self.metric)} {self.result.text}{names}"

    def __str__(self) -> str:
        others = "; ".join(self.differences.values())
        number = f"{metric_label(self.metric)} {self.result} ({self.result.place})"
        return f"{number}, with {others}" if others else f"{number}, in the same setting"


def find_nearest(run: StoredRun, evaluation: str = "", repeats: int = 0) -> Nearest | None:
    """Returns the published number of a run's data and method that differs in the fewest points.

    Args:
        run: a finished run.
        evaluation: of several models, `separated` or `concatenated`; empty for the run's own.
        repeats: of all runs of its configuration; 0 for those of the run.

    Returns:
        The number; None for a stand-in, or if no paper prints one of this method on these data.
    """
    summary, config = run.summary, run.config
    if summary is None or config is None or summary.stand_in or not _is_benchmark(run):
        return None
    place = (config.data, config.backbone, summary.embedding_size, summary.protocol)
    key = ResultKey(*place, evaluation or summary.evaluation, summary.result_id)
    metrics = dict.fromkeys((config.select_metric, *METRICS))
    found = [(metric, *one) for metric in metrics for one in nearest_results(key, metric)]
    if not found:
        return None
    metric, result, differences = min(found, key=lambda one: len(one[2]))
    repeats = repeats or len({job.repeat for job in summary.jobs})
    if result.runs not in (None, repeats):
        differences["repeats"] = f"{result.runs} repeats instead of {repeats}"
    if options := [*_other_options(run)]:
        more = f" and {len(options) - MAX_OPTIONS} more options" * (len(options) > MAX_OPTIONS)
        differences["options"] = ", ".join(options[:MAX_OPTIONS]) + more
    return Nearest(metric, result, differences)


def describe_nearest(run: StoredRun) -> str:
    """Returns a line for below the scores of a run; empty for data that no paper uses."""
    if run.summary is None or run.config is None:
        return ""
    if run.summary.stand_in:
        return f"published   none: {run.config.data} is a stand-in for a benchmark"
    none = f"none of {run.summary.result_id} on {run.config.data}"
    return f"published   {find_nearest(run) or none}" if _is_benchmark(run) else ""


def _is_benchmark(run: StoredRun) -> bool:
    data = run.content["data"]
    names = {row["dataset"] for row in read_table("results.csv")}
    return data["name"] in names and data.get("identified_by") == "name"


def _other_options(run: StoredRun) -> Iterator[str]:
    """Yields the options in which a run differs from the files that it chose."""
    names: dict[str, Any] = {"experiment": run.config.experiment if run.config else ""}
    names |= {group: (run.content.get(group) or {}).get("name") for group in (*GROUPS, "search")}
    chosen = [(CONFIGS / group / f"{name}.yaml", name) for group, name in names.items()]
    words = (f"{path.parent.name}={name}" for path, name in chosen if path.exists())
    ours, planned = comparable(run.options), _planned(*words)
    for name in differing_options([ours, planned]):
        theirs, own = (format_option(of.get(name)) for of in (planned, ours))
        yield f"{name}={theirs} instead of {own}"


@cache
def _planned(*words: str) -> dict[str, Any]:
    return comparable(identity(compose_config(words)))
