"""The tables of a run: reproducible results, and times that depend on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dml.tracking.history import History, NullHistory
from dml.tracking.tracker import Job

THROUGHPUT = "throughput.csv"


@dataclass(frozen=True)
class RunTables:
    """The tables of a run, or of a process that trains one of its models.

    Attributes:
        history: one row per evaluation; the same command writes the same bytes.
        throughput: time and memory of training up to that evaluation. Nothing depends on it, so
            lost rows do not stop a run.
    """

    history: History
    throughput: History

    @classmethod
    def open(cls, folder: Path) -> RunTables:
        """Returns the tables in a folder, new ones where there are none.

        Raises:
            UserError: a file is damaged.
        """
        remedy = "delete it; it contains times only"
        return cls(History(folder / "history.csv"), History(folder / THROUGHPUT, remedy))

    @classmethod
    def null(cls) -> RunTables:
        """Returns tables that store nothing, since another process does."""
        return cls(NullHistory(), NullHistory())

    def rewind(self, job: Job, rows: int, step: int) -> None:
        """Goes back to the checkpoint of a step, which knows so many rows of a job's history.

        Raises:
            UserError: the history has fewer rows.
        """
        self.history.rewind(job, rows)
        self.throughput.drop_after(job, step)

    def adopt(self, other: RunTables, job: Job) -> None:
        """Replaces one job's rows by those of other tables."""
        self.history.adopt(other.history, job)
        self.throughput.adopt(other.throughput, job)

    def sort(self) -> None:
        """Sorts the rows by repeat and fold, stably."""
        self.history.sort()
        self.throughput.sort()

    def remove(self) -> None:
        """Deletes the files."""
        # In this order, since without a history the other table is ignored.
        self.history.path.unlink()
        self.throughput.path.unlink(missing_ok=True)
