"""Several trackers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from dml.core.errors import UserError, first_line
from dml.tracking.tracker import NullTracker, RunInfo, Tracker


class SeveralTrackers(NullTracker):
    """Trackers that all get the same rows, scores and pictures, in their order.

    Args:
        trackers: at least one tracker, or configuration of one (with `_target_`), by name.

    Raises:
        UserError: a tracker cannot be made.
    """

    def __init__(self, trackers: dict[str, Any]) -> None:
        if not trackers:
            raise UserError("tracking.trackers: no tracker is listed; tracking=none stores nothing")
        self.trackers = [_make(name, node) for name, node in trackers.items()]
        self.keeps_a_copy = any(one.keeps_a_copy for one in self.trackers)

    def start(self, run: RunInfo) -> None:
        """Begins a run."""
        self._each(lambda one: one.start(run))

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Stores one row."""
        self._each(lambda one: one.log(dict(metrics), step))

    def job_done(self, result: dict[str, Any]) -> None:
        """Stores the final scores of one model."""
        self._each(lambda one: one.job_done(result))

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Stores the scores and figures of the whole run."""
        self._each(lambda one: one.conclude(summary, pictures))

    def finish(self, status: int = 0) -> None:
        """Closes the run."""
        self._each(lambda one: one.finish(status))

    def _each(self, work: Callable[[Tracker], None]) -> None:
        for one in self.trackers:
            work(one)


def _make(name: str, node: Any) -> Tracker:
    """Returns the tracker that a configuration describes."""
    if not isinstance(node, dict):
        return node
    if "_target_" not in node:
        raise UserError(f"tracking.trackers.{name}: needs _target_, the class of a tracker")
    try:
        return instantiate({key: node[key] for key in node if key != "name"}, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__ or error
        if isinstance(cause, UserError):
            raise cause from None
        raise UserError(f"tracking.trackers.{name}: {first_line(cause)}") from error
