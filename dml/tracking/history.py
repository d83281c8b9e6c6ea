"""`history.csv`, the record of a run, from which trackers copy."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from dml.core.atomic_io import append_bytes, write_text
from dml.core.errors import UserError, first_line
from dml.core.regular_files import read_regular_text

FIRST = ("repeat", "fold", "epoch", "step")


class History:
    """A CSV table with one row per evaluation, which is on disk before the next step.

    Columns are `repeat, fold, epoch, step`, then the logged values in order of first appearance.
    A row is written behind the others; a new column, and a file that was changed by others, have
    the file replaced. A last row that a crash has cut is left out. `rewind` drops rows that are
    newer than the checkpoint.

    Args:
        path: the file; None: keep the rows in memory, since another process writes them.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path, self._stored = Path(path or ""), path is not None
        self.rows: list[dict[str, str]] = []
        self.columns: list[str] = list(FIRST)
        self._written: tuple[int, ...] = ()  # state of the file after it was written
        if self._stored and self.path.exists():
            try:
                lines = _whole_lines(read_regular_text(self.path))
                reader = csv.DictReader(lines, restval="")
                self.rows, self.columns = list(reader), list(reader.fieldnames or FIRST)
                for row in self.rows:
                    _check_row(row)
            except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
                raise self._damaged(first_line(error)) from error

    def _damaged(self, reason: str) -> UserError:
        return UserError(
            f"outputs: {self.path} is damaged ({reason}); restore it, or start again with "
            f"overwrite=true"
        )

    def append(self, row: dict[str, Any]) -> None:
        """Adds a row; a new column is empty in earlier rows."""
        cells = {}
        known = len(self.columns)
        for column, value in row.items():
            # All digits of a number, so that it is read back unchanged.
            cells[column] = repr(value) if isinstance(value, float) else str(value)
            if column not in self.columns:
                self.columns.append(column)
        self.rows.append(cells)
        has_header = self._written and len(self.columns) == known
        if has_header and _state_of(self.path) == self._written:
            self._append(cells)
        else:
            self._write()

    def rewind(self, job: tuple[int, int], count: int) -> None:
        """Drops all rows of a job (repeat, fold) after the first `count`; keeps all other jobs.

        Raises:
            UserError: there are fewer than `count` rows, so that the history would have a gap.
        """
        kept = []
        rows_of_job = 0
        for row in self.rows:
            if _job_of(row) == job:
                rows_of_job += 1
                if rows_of_job > count:
                    continue
            kept.append(row)
        if rows_of_job < count:
            raise self._damaged(f"{rows_of_job} of {count} rows before the checkpoint")
        if rows_of_job > count:
            self.rows = kept
            if not kept:
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
        self.rows.sort(key=_job_of)
        self._write()

    def job_rows(self, repeat: int, fold: int) -> list[dict[str, float]]:
        """Returns the rows of one job as numbers, without empty cells."""
        return [_numbers_of(row) for row in self.rows if _job_of(row) == (repeat, fold)]

    def numbers(self) -> list[dict[str, float]]:
        """Returns all rows as numbers, without empty cells."""
        return list(map(_numbers_of, self.rows))

    def _write(self) -> None:
        if self._stored and self.rows:
            text = io.StringIO()
            writer = self._writer(text)
            writer.writeheader()
            writer.writerows(self.rows)
            write_text(self.path, text.getvalue())
            self._written = _state_of(self.path)
        elif self._stored:
            self.path.unlink(missing_ok=True)
            self._written = ()

    def _append(self, cells: dict[str, str]) -> None:
        """Writes a row behind the others: a file of thousands of rows is not written again."""
        text = io.StringIO()
        self._writer(text).writerow(cells)
        try:
            append_bytes(self.path, text.getvalue().encode())
        finally:
            self._written = _state_of(self.path)

    def _writer(self, text: io.StringIO) -> csv.DictWriter[str]:
        return csv.DictWriter(text, self.columns, restval="", lineterminator="\n")


def _whole_lines(text: str) -> list[str]:
    """Returns the lines of a file, without a last one that a crash has cut."""
    lines = text.splitlines()
    if len(lines) > 1 and not text.endswith("\n"):
        cells = lines[-1].split(",")
        is_cut = len(cells) < len(lines[0].split(","))
        if is_cut:
            del lines[-1]
    return lines


def _state_of(path: Path) -> tuple[int, ...]:
    """Returns what changes when another program writes or replaces a file; empty: there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _check_row(row: dict[str, str]) -> None:
    """Raises an error if a cell is missing or not a number."""
    _job_of(row)
    int(row["step"])
    float(row["epoch"])
    _numbers_of(row)


def _job_of(row: dict[str, str]) -> tuple[int, int]:
    return int(row["repeat"]), int(row["fold"])


def _numbers_of(row: dict[str, str]) -> dict[str, float]:
    return {key: float(cell) for key, cell in row.items() if cell}
