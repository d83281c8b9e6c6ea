"""The base class of trackers, and what they store of a result."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dml.core.errors import RunStopped, describe_failure, refuse_exits
from dml.core.exit_status import ExitStatus
from dml.core.option_values import SECTIONS

Job = tuple[int, int]  # repeat, fold


@dataclass(frozen=True)
class RunInfo:
    """Description of a run for trackers.

    Attributes:
        folder: run folder; its `history.csv` has all rows, including those of earlier processes.
        run_id: unique name of the run, the same on every machine and after a resume.
        name: readable name.
        group: experiment of the run.
        config: resolved config in plain types.
        jobs: all (repeat, fold) of the run.
        tags: tags to filter runs by.
        notify: prints a line for the user.
    """

    folder: Path
    run_id: str
    name: str
    group: str
    config: dict[str, Any]
    jobs: Sequence[Job]
    tags: Sequence[str] = ()
    notify: Callable[[str], None] = field(default=print)


class Tracker:
    """Base class of trackers, and the tracker that stores nothing.

    The constructor of a subclass receives the options of `configs/tracking/<name>.yaml`. It is
    called before the data are read and raises `UserError` for problems that the user can fix; after
    that no failure of a tracker may stop a training run.

    Attributes:
        keeps_a_copy: whether it copies results, so that a finished run is passed to it again to
            complete the copy.
        server: name of the server that it waits for; its calls are made in a thread then
            (`PatientTracker`). Empty: there is none.
    """

    keeps_a_copy = False
    server = ""

    def start(self, run: RunInfo) -> None:
        """Begins a run that is new, resumed, or finished and passed again."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Stores one row.

        Args:
            metrics: metrics of an evaluation, with `repeat`, `fold` and `epoch`.
            step: training steps of the model so far. A resumed run may evaluate a step again; its
                row must not be stored twice.
        """

    def job_done(self, result: dict[str, Any]) -> None:
        """Stores the final scores of one (repeat, fold); may be called more than once."""

    def trial_done(self, trial: dict[str, Any]) -> None:
        """Stores a finished trial of a search; may be called more than once.

        Args:
            trial: `number`, `state`, `value` (the validation score, or None), `params`, and
                `options`, dotted name → value of all options that differ from the run's.
        """

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Stores the scores of the whole run (the content of `summary.json`) and its figures."""

    def finish(self, status: int = 0) -> None:
        """Closes the run; `status` is its exit status, 0 if it has finished."""


class GuardedTracker(Tracker):
    """A tracker whose failures end in a note, so that no copy of a result costs the result.

    After a failure nothing more is passed to it in this run.

    Args:
        tracker: receives all calls.
        notify: prints the note.
    """

    def __init__(self, tracker: Tracker, notify: Callable[[str], None]) -> None:
        self.tracker, self.keeps_a_copy = tracker, tracker.keeps_a_copy
        self._notify, self._failed = notify, False

    def start(self, run: RunInfo) -> None:
        """Begins a run."""
        self._failed = False
        self._attempt(lambda: self.tracker.start(run))

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Passes one row."""
        self._attempt(lambda: self.tracker.log(metrics, step))

    def job_done(self, result: dict[str, Any]) -> None:
        """Passes the scores of a model."""
        self._attempt(lambda: self.tracker.job_done(result))

    def trial_done(self, trial: dict[str, Any]) -> None:
        """Passes a finished trial."""
        self._attempt(lambda: self.tracker.trial_done(trial))

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Passes the scores of the run."""
        self._attempt(lambda: self.tracker.conclude(summary, pictures))

    def finish(self, status: int = 0) -> None:
        """Closes the run."""
        self._attempt(lambda: self.tracker.finish(status))

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            with refuse_exits():
                work()
        except Exception as error:  # of any tracker, also of the user's
            self._failed = True
            name = type(self.tracker).__name__
            self._notify(
                f"note: tracking: {name} failed ({describe_failure(error)}); the run continues "
                f"without it"
            )


@contextmanager
def track_run(tracker: Tracker, run: RunInfo) -> Iterator[None]:
    """Starts the tracker, and finishes it at the end of the run, also after an error."""
    tracker.start(run)
    status: int = ExitStatus.FAILED
    try:
        yield
        status = ExitStatus.FINISHED
    except RunStopped as stop:
        status = stop.status
        raise
    finally:
        tracker.finish(status)


def replace_options(config: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a nested config with other values of dotted options."""
    changed = copy.deepcopy(config)
    for name, value in options.items():
        *parents, last = name.split(".")
        node = changed
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return changed


def flatten_scores(result: dict[str, Any], section: str) -> dict[str, float]:
    """Returns name → number: scores (`test/map_at_r`), intervals (`test_ci95/…`), time, memory, ….

    Args:
        result: result of a job or summary of a run.
        section: prefix of the test scores.
    """
    sections = {name: result.get(name) for name in (*SECTIONS, "untrained")}
    sections[section] = result.get("metrics")
    sections["concatenated"] = (result.get("concatenated") or {}).get("metrics")
    scores: dict[str, float] = {}
    for prefix, metrics in sections.items():
        scores |= _prefix_scores(metrics or {}, prefix)
    for name, value in result.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and name not in ("repeat", "fold", "seed"):
            scores[name] = value
    return scores


def _prefix_scores(metrics: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """Returns scores as `<prefix>/<metric>`, and intervals as `<prefix>_ci95/<metric>`."""
    scores = {}
    for name, value in metrics.items():
        if not isinstance(value, dict):
            scores[f"{prefix}/{name}"] = value
            continue
        scores[f"{prefix}/{name}"] = value["mean"]
        if value["ci95"] is not None:
            scores[f"{prefix}_ci95/{name}"] = value["ci95"]
    return scores
