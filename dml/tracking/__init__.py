"""Destinations of metrics during a run, behind one interface: `Tracker`."""

from dml.tracking.history import History
from dml.tracking.tracker import RunInfo, Tracker, track_run

__all__ = ["History", "RunInfo", "Tracker", "track_run"]
