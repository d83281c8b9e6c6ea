"""The tables of a run: what must come out the same every time, and what depends on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dml.tracking.base import Job
from dml.tracking.history import History, NullHistory

THROUGHPUT = "throughput.csv"


@dataclass(frozen=True)
class RunTables:
    """The tables of a run, or of a process that trains one of its models.

    Attributes:
        history: one row per evaluation; two runs of a command write the same bytes.
        throughput: how long training took up to that evaluation, and what it needed. Nothing
            depends on it, so rows that are lost do not stop a run.
    """

    history: History
    throughput: History

    @classmethod
    def of(cls, folder: Path) -> RunTables:
        """Those in a folder, or new ones.

        Raises:
            UserError: a file is damaged.
        """
        remedy = "delete it, it holds times only"
        return cls(History(folder / "history.csv"), History(folder / THROUGHPUT, remedy))

    @classmethod
    def none(cls) -> RunTables:
        """Keeps nothing: another process keeps them."""
        return cls(NullHistory(), NullHistory())

    def rewind(self, job: Job, rows: int, step: int) -> None:
        """Goes back to a checkpoint that knows so many rows of history, made at that step.

        Raises:
            UserError: the history has fewer rows.
        """
        self.history.rewind(job, rows)
        self.throughput.drop_after(job, step)

    def adopt(self, other: RunTables, job: Job) -> None:
        """Takes one job's rows from other records in place of its own."""
        self.history.adopt(other.history, job)
        self.throughput.adopt(other.throughput, job)

    def sort(self) -> None:
        """Puts the rows in the order of repeats and folds, those of one job as they are."""
        self.history.sort()
        self.throughput.sort()

    def remove(self) -> None:
        """Deletes the files."""
        # Without a history nobody looks for the other table; the other way round would lose it.
        self.history.path.unlink()
        self.throughput.path.unlink(missing_ok=True)
