"""Destinations of metrics during a run, behind one interface: `Tracker`."""

from dml.tracking.history import History, JobTracker, NullHistory
from dml.tracking.tracker import NullTracker, RunInfo, Tracker, track_run

__all__ = [
    "History",
    "JobTracker",
    "NullHistory",
    "NullTracker",
    "RunInfo",
    "Tracker",
    "track_run",
]
