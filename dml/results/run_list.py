"""The run folders below a folder, finished or not: state, scores, options, age and size of each.

Reads small files only and imports neither PyTorch nor Hydra's composition, so that hundreds of
folders are listed in a second or two.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

from dml.config.identity import deciding_options
from dml.config.stored_config import read_stored_config
from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.core.locks import is_locked
from dml.results.folder_contents import measure_folder, read_last_error, read_progress
from dml.runs.folder.run_folder import RUN_LOCK, SEARCH_LOCK, RunFolder

GROUPS = ("data", "protocol", "loss", "method", "backbone")  # named in every list


class State(StrEnum):
    """State of a run folder."""

    FINISHED = "finished"
    RUNNING = "running"  # a process holds its lock
    SEARCHING = "searching"
    STOPPED = "stopped"  # the same command continues
    FAILED = "failed"  # its log ends with an error
    EMPTY = "empty"  # stopped before its first evaluation
    DAMAGED = "damaged"  # a file cannot be read


@dataclass(frozen=True)
class ListedRun:
    """One run folder.

    Attributes:
        folder: its path.
        state: see `State`.
        age: seconds since the run wrote a file.
        size: bytes of all files.
        options: options that decide the result: dotted name → value; empty if unreadable.
        labels: `name` and `note` as given, experiment, and the names of `GROUPS`.
        selected_by: metric and classes that select the epoch: `map_at_r on test`.
        score: that metric at the best evaluation so far, mean over the models, 0–1.
        scores: metrics on the test images: name → mean, 0–1; empty before the end.
        untrained: the same before training.
        epoch, epochs: best epoch of a finished run (last of an unfinished one), and their number.
        problem: one line for `failed` and `damaged`.
    """

    folder: Path
    state: State
    age: float
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    selected_by: str = ""
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    untrained: Mapping[str, float] = field(default_factory=dict)
    epoch: float | None = None
    epochs: int | None = None
    problem: str = ""

    @property
    def id(self) -> str:
        """The digest at the end of the folder's name."""
        return self.folder.name.rpartition("-")[2]

    @property
    def seed(self) -> Any:
        """Seed of the run; None if it is unknown."""
        return self.options.get("seed")

    @property
    def metric(self) -> str:
        """The metric that selects the epoch."""
        return self.selected_by.partition(" ")[0]


def list_runs(root: Path) -> list[ListedRun]:
    """Returns the runs in `root/<experiment>/<name>/<run>`, the newest first.

    `root` may also be one of those folders itself.

    Raises:
        UserError: there is no such folder.
    """
    if not root.is_dir():
        raise UserError(
            f"runs: there is no folder {root}; {shell_command('train')} writes to outputs/"
        )
    found = [root] if is_run(root) else []
    for depth in range(1, 4):
        found = found or [path for path in root.glob("/".join("*" * depth)) if is_run(path)]
    return sorted(map(read_run, found), key=lambda run: run.age)


def is_run(path: Path) -> bool:
    """Returns True for the folder of a run, however little there is in it."""
    return any((path / name).exists() for name in ("config.yaml", "summary.json", RUN_LOCK))


def read_run(path: Path) -> ListedRun:
    """Returns the state of one run folder, whatever is in it."""
    folder = RunFolder(path)
    size, written = measure_folder(path)
    about: dict[str, Any] = {"folder": path, "age": max(0.0, time.time() - written), "size": size}
    known: dict[str, Any] = {}
    try:
        known = _read_config(folder)
        summary = folder.read_summary()
        if summary is not None:
            return ListedRun(state=State.FINISHED, **about, **{**known, **_read_scores(summary)})
        state, problem = _find_state(folder)
        progress = read_progress(folder.history, known.get("selected_by", ""))
        if state == State.STOPPED and not progress:
            state = State.EMPTY
        return ListedRun(state=state, problem=problem, **about, **{**known, **progress})
    except UserError as error:
        problem = first_line(error).removeprefix("outputs: ").replace(f"{path}/", "")
        return ListedRun(state=State.DAMAGED, problem=problem, **about, **known)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        file = "summary.json" if known else "config.yaml"
        problem = f"{file} is not of a run ({type(error).__name__}: {first_line(error)})"
        return ListedRun(state=State.DAMAGED, problem=problem, **about, **known)


def _read_config(folder: RunFolder) -> dict[str, Any]:
    """Returns the fields that `config.yaml` decides; empty before it is written."""
    try:
        cfg = read_stored_config(folder.config)
    except FileNotFoundError:
        if folder.summary.exists():
            raise UserError("config.yaml is missing") from None
        return {}
    except ValueError as error:
        raise UserError(f"config.yaml is damaged: {first_line(error)}") from error
    labels = {group: cfg[group]["name"] for group in GROUPS}
    labels["experiment"] = cfg["experiment"]["id"]
    labels |= {key: str(cfg[key]) for key in ("name", "note") if cfg.get(key) is not None}
    protocol = cfg["protocol"]
    return {
        "options": {name: value for name, value in deciding_options(cfg).items() if value != {}},
        "labels": labels,
        "selected_by": f"{protocol['select_metric']} on {protocol['selected_on']}",
        "epochs": protocol["epochs"],
    }


def _read_scores(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that `summary.json` decides, and the labels that it replaces."""
    selected = str(summary["selected_by"])
    validation = _means(summary.get("validation", {}))
    return {
        "selected_by": selected,
        "score": validation.get(selected.partition(" ")[0]),
        "scores": _means(summary["metrics"]),
        "untrained": _means(summary.get("untrained", {})),
        "epoch": fmean(summary["best_epoch"]),
    }


def _means(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    return {name: float(value["mean"]) for name, value in metrics.items()}


def _find_state(folder: RunFolder) -> tuple[State, str]:
    """Returns the state of an unfinished run, and the error in which it ended."""
    if is_locked(folder.path / RUN_LOCK):
        return State.RUNNING, ""
    if is_locked(folder.path / SEARCH_LOCK, shared=True):
        return State.SEARCHING, ""
    error = read_last_error(folder.path / "train.log")
    return (State.FAILED, error) if error else (State.STOPPED, "")


def find_run(word: str, runs: Iterable[ListedRun]) -> ListedRun:
    """Returns the run that a word means: an id or its beginning, a `name=`, or a folder.

    Raises:
        UserError: no run, or several.
    """
    runs = list(runs)
    place = Path(word)
    if place.is_dir() and is_run(place):
        return read_run(place)
    found = [run for run in runs if word in (run.id, run.labels.get("name"))]
    found = found or [run for run in runs if len(word) >= 3 and run.id.startswith(word)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(
            f"runs: '{word}' is neither the id, name or folder of a run; "
            f"{shell_command('runs')} lists them"
        )
    several = ", ".join(run.id for run in found)
    raise UserError(f"runs: '{word}' means several runs: {several}; type one of these ids")
