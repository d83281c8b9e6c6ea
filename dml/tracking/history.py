"""`history.csv`, the record of a run, from which trackers copy."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dml.core.atomic_io import add_filename, write_text
from dml.core.errors import UserError, first_line
from dml.tracking.tracker import Tracker

FIRST = ("repeat", "fold", "epoch", "step")


class History:
    """A CSV table with one row per evaluation, which is on disk before the next step.

    Columns are `repeat, fold, epoch, step`, then the logged values in order of first appearance. A
    killed process leaves complete rows; `rewind` drops rows that are newer than the checkpoint.

    Args:
        path: the file; None: keep the rows in memory, since another process writes them.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path, self._stored = Path(path or ""), path is not None
        self.rows: list[dict[str, str]] = []
        self.columns: list[str] = list(FIRST)
        self._complete = False  # whether the file exists and ends with a complete row
        if self._stored and self.path.exists():
            try:
                self._parse(self.path.read_text(encoding="utf-8"))
            except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
                raise self._damaged(first_line(error)) from error

    def _parse(self, text: str) -> None:
        self._complete = text.endswith("\n")
        # A full disk or a crash may have truncated the last line.
        reader = csv.DictReader(text[: text.rfind("\n") + 1].splitlines(), restval="")
        self.rows, self.columns = list(reader), list(reader.fieldnames or FIRST)
        for row in self.rows:
            for name in ("repeat", "fold", "step"):
                int(row[name])
            for value in filter(None, (row["epoch"], *row.values())):
                float(value)

    def _damaged(self, why: str) -> UserError:
        return UserError(
            f"outputs: {self.path} is damaged ({why}); restore it, or start again with "
            f"overwrite=true"
        )

    def append(self, row: dict[str, Any]) -> None:
        """Adds a row; a new column is empty in earlier rows."""
        # All digits, so that a number is read back unchanged.
        written = {k: repr(v) if isinstance(v, float) else str(v) for k, v in row.items()}
        new = [key for key in written if key not in self.columns]
        self.rows.append(written)
        self.columns += new
        if new or not (self._stored and self._complete):
            self._write()
            return
        try:
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                self._writer(file).writerow(written)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            add_filename(error, self.path)
            raise

    def rewind(self, job: tuple[int, int], count: int) -> None:
        """Drops all rows of a job (repeat, fold) after the first `count`; keeps all other jobs.

        Raises:
            UserError: there are fewer than `count` rows, so that the history would have a gap.
        """
        of_job = [row for row in self.rows if _job_of(row) == job]
        if len(of_job) < count:
            raise self._damaged(f"{len(of_job)} of {count} rows before the checkpoint")
        if len(of_job) > count or not self._complete:
            kept = of_job[:count]
            self.rows = [
                row
                for row in self.rows
                if _job_of(row) != job or any(row is known for known in kept)
            ]
            if not self.rows:
                self.columns = list(FIRST)
            self._write()

    def adopt(self, other: History, job: tuple[int, int]) -> None:
        """Replaces the rows of a job (repeat, fold) by those in another history."""
        self.rewind(job, 0)
        for row in other.rows:
            if _job_of(row) == job:
                self.append({key: value for key, value in row.items() if value != ""})

    def sort(self) -> None:
        """Sorts the rows by repeat and fold, stably."""
        ordered = sorted(self.rows, key=_job_of)
        if ordered != self.rows:
            self.rows = ordered
            self._write()

    def job_rows(self, repeat: int, fold: int) -> list[dict[str, float]]:
        """Returns the rows of one job as numbers, without empty cells."""
        return [
            {key: float(value) for key, value in row.items() if value != ""}
            for row in self.rows
            if _job_of(row) == (repeat, fold)
        ]

    def _write(self) -> None:
        if not self._stored:
            return
        self._complete = bool(self.rows)
        if not self.rows:
            self.path.unlink(missing_ok=True)
            return
        text = io.StringIO()
        writer = self._writer(text)
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(self.path, text.getvalue())

    def _writer(self, file: Any) -> csv.DictWriter[str]:
        return csv.DictWriter(file, self.columns, restval="", lineterminator="\n")


def _job_of(row: dict[str, str]) -> tuple[int, int]:
    return int(row["repeat"]), int(row["fold"])


class JobTracker:
    """Writes the rows of one job to the history, to the user's tracker and to the screen."""

    def __init__(
        self,
        history: History,
        tracker: Tracker,
        repeat: int,
        fold: int,
        show: Callable[[dict[str, Any]], None],
    ) -> None:
        self.history, self.tracker, self.show = history, tracker, show
        self.job = {"repeat": repeat, "fold": fold}

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Logs one row of metrics."""
        self.history.append({**self.job, "epoch": metrics["epoch"], "step": step, **metrics})
        self.tracker.log({**self.job, **metrics}, step)
        self.show(metrics)
