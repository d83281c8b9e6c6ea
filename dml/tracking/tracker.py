"""The base class of trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dml.core.errors import RunStopped
from dml.core.exit_status import ExitStatus

Job = tuple[int, int]  # repeat, fold


@dataclass(frozen=True)
class RunInfo:
    """The description of a run for its tracker.

    Attributes:
        folder: run folder; its `history.csv` has every row, also those of earlier processes.
        run_id: unique name of the run, the same on every machine and when it is continued.
        name: readable name.
        group: experiment that the run belongs to.
        config: resolved config in plain types.
        jobs: every (repeat, fold) that the run trains.
        tags: words to filter by.
        notify: prints one line for the user.
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
    """A destination of metrics; this one stores nothing, for the run folder needs no tracker.

    The constructor of a subclass gets the options of `configs/tracking/<name>.yaml`. It is called
    before the data are read and raises `UserError` for what the user can fix; after that no failure
    of a tracker may stop a training.

    Attributes:
        keeps_a_copy: whether it stores results outside the run folder, so that a finished run is
            passed to it again to complete them.
    """

    keeps_a_copy = False

    def start(self, run: RunInfo) -> None:
        """Begins a run: a new one, a continued one, or a finished one that is repeated."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Stores one row.

        Args:
            metrics: with `repeat`, `fold` and `epoch`.
            step: training steps of that model so far. A continued run may evaluate a step again;
                its row must not be stored twice.
        """

    def job_done(self, result: dict[str, Any]) -> None:
        """Stores the final scores of one (repeat, fold); may be called more than once."""

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Stores the scores of the whole run (the content of `summary.json`) and its figures."""

    def finish(self, status: int = 0) -> None:
        """Closes the run with its exit status; 0 if it has finished."""


@contextmanager
def track_run(tracker: Tracker, run: RunInfo) -> Iterator[None]:
    """Starts the tracker, and finishes it however the run ends."""
    tracker.start(run)
    status: int = ExitStatus.FAILED
    try:
        yield
        status = ExitStatus.FINISHED
    except RunStopped as stop:
        status = stop.status
        raise
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
        raise
    finally:
        tracker.finish(status)
