"""Finished runs, read from their folders, and the reasons why folders cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dml.config.identity import identity
from dml.core.errors import UserError, first_line
from dml.core.statistics import mean_per_repeat
from dml.runs.console import is_score
from dml.runs.folder.run_folder import RunFolder
from dml.runs.load import load_cfg
from dml.tracking import History

LARGEST_SCORE = 1 + 1e-6  # rounding included; AMI may be negative
REQUIRED_KEYS = (
    *("result_id", "data", "stand_in", "protocol", "evaluation", "selected_by", "backbone"),
    *("loss", "method", "seed", "embedding_size", "metrics", "jobs"),
)
# Options in which runs of one configuration may differ: how often it was trained, under which name,
# and what was measured beside the scores.
IGNORED_OPTIONS = ("seed", "protocol.repeats", "experiment", "evaluation")


@dataclass(frozen=True)
class FinishedRun:
    """One finished run.

    Attributes:
        folder: run folder.
        summary: content of `summary.json`.
        options: see `comparable_options`.
        setting: setting of the experiment's cell, as in the tables of published results.
    """

    folder: Path
    summary: Mapping[str, Any]
    options: Mapping[str, Any]
    setting: str

    @property
    def evaluations(self) -> tuple[str, ...]:
        """`single`, or `separated` and `concatenated`."""
        own = str(self.summary["evaluation"])
        return (own, "concatenated") if self.summary.get("concatenated") else (own,)

    @cached_property
    def history(self) -> History:
        """Evaluations during training, in order; empty if the file does not exist."""
        return History(RunFolder(self.folder).history)

    def values(self, metric: str, evaluation: str) -> dict[int, float]:
        """Returns a metric of each repeat (mean over its folds); empty if it is unknown.

        Args:
            metric: a retrieval score (returned in percent), any number in a job's result, or one of
                `best_epoch`, `train_steps` (to the best evaluation), `ms_per_batch` and
                `epoch_seconds` (training only).
            evaluation: one of `evaluations`.
        """
        if evaluation == "concatenated":
            repeats = self.summary["concatenated"]["repeats"]
            found = [(one["repeat"], one["metrics"].get(metric)) for one in repeats]
        else:
            found = [(job["repeat"], self._job_value(job, metric)) for job in self.summary["jobs"]]
        if any(value is None for _, value in found):
            return {}
        factor = 100.0 if is_score(metric) else 1.0
        return mean_per_repeat((int(repeat), factor * float(value)) for repeat, value in found)

    def _job_value(self, job: Mapping[str, Any], metric: str) -> float | None:
        if metric in job.get("metrics", {}):
            return job["metrics"][metric]
        if metric == "train_steps":
            return job.get("best_step")
        if metric == "ms_per_batch" and job.get("steps"):
            return 1000 * job["seconds"] / job["steps"]
        if metric == "epoch_seconds" and job.get("steps"):
            last = self.history.job_rows(job["repeat"], job["fold"])[-1:]
            if last and last[0]["epoch"] > 0:
                return job["seconds"] / job["steps"] * last[0]["step"] / last[0]["epoch"]
        value = job.get(metric)
        return value if isinstance(value, int | float) else None


@dataclass(frozen=True)
class UnreadableRun:
    """A folder that a report leaves out, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class RunCollection:
    """Runs of an experiment, in the order of their folders."""

    finished: tuple[FinishedRun, ...]
    unreadable: tuple[UnreadableRun, ...]
    unfinished: tuple[Path, ...]

    def join(self, other: RunCollection) -> RunCollection:
        """Returns the runs of both; a finished run of equal folder name counts once."""
        known = {run.folder.name for run in self.finished}
        more = [run for run in other.finished if run.folder.name not in known]
        return RunCollection(
            (*self.finished, *more),
            (*self.unreadable, *other.unreadable),
            (*self.unfinished, *other.unfinished),
        )


def collect_runs(root: Path, experiment: str) -> RunCollection:
    """Reads all runs of an experiment.

    Args:
        root: folder of run folders (`outputs=`).
        experiment: the first folder below it; `single` for runs of no experiment.
    """
    finished: list[FinishedRun] = []
    unreadable: list[UnreadableRun] = []
    unfinished: list[Path] = []
    for folder in sorted((root / experiment).glob("*/*")):
        has_config = (folder / "config.yaml").exists()
        if not RunFolder(folder).summary.exists():
            unfinished += [folder] if has_config else []
        elif not has_config:
            unreadable.append(UnreadableRun(folder, "config.yaml is missing"))
        else:
            try:
                finished.append(read_run(folder))
            except UserError as error:
                unreadable.append(UnreadableRun(folder, str(error)))
    return RunCollection(tuple(finished), tuple(unreadable), tuple(unfinished))


def experiments_with_runs(root: Path) -> list[str]:
    """Returns the names of the folders below `root` that hold summaries of runs."""
    return sorted({path.parents[2].name for path in root.glob("*/*/*/summary.json")})


def read_run(folder: Path) -> FinishedRun:
    """Reads the run of a folder.

    Raises:
        UserError: its summary or config cannot be read, or lacks what a report needs.
    """
    try:
        summary = json.loads(RunFolder(folder).summary.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"summary.json cannot be read: {first_line(error)}") from error
    for problem in find_problems(summary):
        raise UserError(f"summary.json: {problem}")
    cfg = load_cfg(folder)
    setting = (cfg.get("experiment") or {}).get("setting") or ""
    return FinishedRun(folder, summary, comparable_options(cfg), str(setting))


def comparable_options(cfg: DictConfig) -> dict[str, Any]:
    """Returns the options that decide a result except seed and repeats: dotted name → value."""
    ignored = tuple(f"{name}." for name in IGNORED_OPTIONS)
    return {
        name: value for name, value in identity(cfg).items() if not f"{name}.".startswith(ignored)
    }


def find_problems(summary: Any) -> Iterator[str]:
    """Yields what is wrong with the content of a summary, which any program may have written."""
    if not isinstance(summary, dict):
        yield "not the summary of a run"
        return
    if missing := [key for key in REQUIRED_KEYS if key not in summary]:
        yield f"lacks {', '.join(missing)}"
        return
    try:
        int(summary["embedding_size"]), int(summary["seed"])
        concatenated = summary.get("concatenated")
        results = [*summary["jobs"], *(concatenated["repeats"] if concatenated else ())]
        if not results:
            yield "jobs is empty"
        for result in results:
            int(result["repeat"])
            for name, value in result["metrics"].items():
                number = isinstance(value, int | float) and math.isfinite(value)
                if not number or (is_score(name) and abs(value) > LARGEST_SCORE):
                    yield f"{name} is {value}"
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        yield f"not of this version ({type(error).__name__}: {error})"
