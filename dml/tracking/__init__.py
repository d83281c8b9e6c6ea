"""Where metrics go while a run is under way: one interface, no branches elsewhere."""

from dml.tracking.base import NullTracker, RunInfo, Tracker, tracked
from dml.tracking.history import History, JobTracker, NullHistory
from dml.tracking.records import Records

__all__ = [
    "History",
    "JobTracker",
    "NullHistory",
    "NullTracker",
    "Records",
    "RunInfo",
    "Tracker",
    "tracked",
]
