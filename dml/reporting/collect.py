"""Finished runs, read from their folders; what cannot be read is named, never guessed."""

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
from dml.core.errors import UserError
from dml.runs.console import is_score
from dml.runs.folder.run_folder import RunFolder
from dml.runs.load import load_cfg
from dml.tracking import History

NEEDED = (
    "result_id",
    "data",
    "stand_in",
    "protocol",
    "evaluation",
    "selected_by",
    "backbone",
    "loss",
    "method",
    "seed",
    "embedding_size",
    "metrics",
    "jobs",
)
# Not what was trained but how often, under which name, and what is measured beside the scores:
# seeds and repeats of a configuration differ in these alone.
NOT_IN_GROUP = ("seed", "protocol.repeats", "experiment", "evaluation")


@dataclass(frozen=True)
class Run:
    """One finished run.

    Attributes:
        folder: of the run.
        summary: its `summary.json`.
        options: everything that decides the result but seed and repeats, dotted name → value.
        setting: of the experiment's cell, as the tables of printed results write it.
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

    def values(self, metric: str, evaluation: str) -> dict[int, float]:
        """A metric of each repeat (mean of its folds), scores in percent; empty if unknown.

        Args:
            metric: a retrieval score, anything a job's result holds as a number, or one of
                `best_epoch`, `train_steps` (to the best evaluation), `ms_per_batch` and
                `epoch_seconds` (training alone).
            evaluation: one of `evaluations`.
        """
        if evaluation == "concatenated":
            joined = self.summary["concatenated"]["repeats"]
            found = [(one["repeat"], one["metrics"].get(metric)) for one in joined]
        else:
            found = [(job["repeat"], self._of_job(job, metric)) for job in self.summary["jobs"]]
        if any(value is None for _, value in found):
            return {}
        of_repeat: dict[int, list[float]] = {}
        for repeat, value in found:
            of_repeat.setdefault(int(repeat), []).append(float(value))
        factor = 100.0 if is_score(metric) else 1.0
        return {repeat: factor * sum(v) / len(v) for repeat, v in of_repeat.items()}

    def _of_job(self, job: Mapping[str, Any], metric: str) -> float | None:
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

    @cached_property
    def history(self) -> History:
        """Its evaluations, in order; none if the file is not there."""
        return History(RunFolder(self.folder).history)


@dataclass(frozen=True)
class Problem:
    """A folder that was left out, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Found:
    """Runs in the order of their folders, what could not be read, and what is not finished."""

    runs: tuple[Run, ...]
    problems: tuple[Problem, ...]
    unfinished: tuple[Path, ...]


def collect(root: Path, experiment: str) -> Found:
    """All runs of an experiment.

    Args:
        root: where run folders are (`outputs=`).
        experiment: the first folder below it; `single` for runs of no experiment.
    """
    runs: list[Run] = []
    problems: list[Problem] = []
    unfinished: list[Path] = []
    for folder in sorted(path.parent for path in (root / experiment).glob("*/*/config.yaml")):
        if not RunFolder(folder).summary.exists():
            unfinished.append(folder)
            continue
        try:
            runs.append(read_run(folder))
        except UserError as error:
            problems.append(Problem(folder, str(error)))
    for path in sorted((root / experiment).glob("*/*/summary.json")):
        if not (path.parent / "config.yaml").exists():
            problems.append(Problem(path.parent, "config.yaml is missing"))
    return Found(tuple(runs), tuple(problems), tuple(unfinished))


def experiments_with_runs(root: Path) -> list[str]:
    """Names of the folders below `root` that hold summaries of runs."""
    return sorted({path.parents[2].name for path in root.glob("*/*/*/summary.json")})


def read_run(folder: Path) -> Run:
    """The run of a folder.

    Raises:
        UserError: its summary or config cannot be read, or lacks what a report needs.
    """
    path = RunFolder(folder).summary
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"summary.json cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(summary, dict):
        raise UserError("summary.json is no summary of a run")
    lacking = [key for key in NEEDED if key not in summary]
    if lacking:
        raise UserError(f"summary.json lacks {', '.join(lacking)}")
    wrong = next(_wrong_scores(summary), None)
    if wrong is not None:
        raise UserError(f"summary.json: {wrong}")
    cfg = load_cfg(folder)
    setting = (cfg.get("experiment") or {}).get("setting") or ""
    return Run(folder, summary, group_options(cfg), str(setting))


def group_options(cfg: DictConfig) -> dict[str, Any]:
    """What runs share that differ in seed or repeats alone, dotted name → value."""
    left_out = tuple(f"{name}." for name in NOT_IN_GROUP)
    return {
        name: value for name, value in identity(cfg).items() if not f"{name}.".startswith(left_out)
    }


def _wrong_scores(summary: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the numbers of a summary, whoever wrote it."""
    try:
        int(summary["embedding_size"]), int(summary["seed"])
        joined = summary.get("concatenated")
        results = [*summary["jobs"], *(joined["repeats"] if joined else ())]
        if not results:
            yield "jobs is empty"
        for result in results:
            int(result["repeat"])
            for name, value in result["metrics"].items():
                if not isinstance(value, int | float) or not math.isfinite(value):
                    yield f"{name} is {value}"
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        yield f"not of this version ({type(error).__name__}: {error})"
