"""Where metrics go while a run is under way: one interface, no branches elsewhere."""

from dml.tracking.base import NullTracker, RunInfo, Tracker, tracked
from dml.tracking.history import History, JobTracker, NullHistory
from dml.tracking.run_tables import RunTables

__all__ = [
    "History",
    "JobTracker",
    "NullHistory",
    "NullTracker",
    "RunInfo",
    "RunTables",
    "Tracker",
    "tracked",
]
