"""What a tracker is told of a run, and the one that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dml.core.errors import RunStopped
from dml.core.exit_status import ExitStatus

Job = tuple[int, int]  # repeat, fold


@dataclass(frozen=True)
class RunInfo:
    """What a tracker has to know of a run before its first row.

    Attributes:
        folder: of the run; `history.csv` in it has every row, also those of earlier processes.
        run_id: the run's own name on any machine, the same when it is continued.
        name: for people.
        group: the experiment it belongs to.
        config: resolved, in plain types.
        jobs: every (repeat, fold) that the run trains.
        tags: words to filter by.
        say: tells the user one line.
    """

    folder: Path
    run_id: str
    name: str
    group: str
    config: dict[str, Any]
    jobs: Sequence[Job]
    tags: Sequence[str] = ()
    say: Callable[[str], None] = field(default=print)


class Tracker(Protocol):
    """Takes one row of metrics at a time.

    The constructor gets the options of `configs/tracking/<name>.yaml`. It is called before data are
    touched and raises `UserError` for what the user can mend; after that nothing a tracker does may
    stop a training. One of your own is a subclass of `NullTracker` with the methods that it needs.
    """

    keeps_a_copy: bool  # elsewhere, which can be completed after the run

    def start(self, run: RunInfo) -> None:
        """A run begins, is continued, or is gone through again because it is finished."""
        ...

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Keeps one row.

        Args:
            metrics: with `repeat`, `fold` and `epoch`.
            step: training steps of that model so far. A continued run may evaluate a step again,
                so a row that has come before must not be kept twice.
        """
        ...

    def job_done(self, result: dict[str, Any]) -> None:
        """Takes the final scores of one (repeat, fold), maybe again (`JobRun.run`)."""
        ...

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Takes the scores of the whole run (the content of `summary.json`) and its pictures."""
        ...

    def finish(self, status: int = 0) -> None:
        """Closes what is open; a `status` other than 0 is that of a run that did not finish."""
        ...


class NullTracker:
    """Keeps nothing: `history.csv`, `summary.json` and `figures/` are written without a tracker."""

    keeps_a_copy = False

    def start(self, run: RunInfo) -> None:
        """Does nothing."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Does nothing."""

    def job_done(self, result: dict[str, Any]) -> None:
        """Does nothing."""

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Does nothing."""

    def finish(self, status: int = 0) -> None:
        """Does nothing."""


@contextmanager
def tracked(tracker: Tracker, run: RunInfo) -> Iterator[None]:
    """Starts the tracker, and closes it however the run ends."""
    tracker.start(run)
    try:
        yield
    except RunStopped as stop:
        tracker.finish(stop.status)
        raise
    except KeyboardInterrupt:
        tracker.finish(ExitStatus.INTERRUPTED)
        raise
    except BaseException:
        tracker.finish(ExitStatus.FAILED)
        raise
    tracker.finish()
