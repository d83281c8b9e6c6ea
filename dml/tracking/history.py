"""`history.csv`, the record of a run that trackers copy."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dml.core.atomic_io import add_filename, write_text
from dml.core.errors import UserError
from dml.tracking.tracker import Tracker


class History:
    """A CSV table with one row per evaluation, on disk before the next step begins.

    Columns are `repeat, fold, epoch, step`, then the logged values in order of first appearance. A
    killed process leaves complete rows; `rewind` drops those that a checkpoint does not know yet.

    Args:
        path: the file.
    """

    FIRST = ("repeat", "fold", "epoch", "step")

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.rows: list[dict[str, str]] = []
        self.columns: list[str] = list(self.FIRST)
        self._complete = False  # whether the file exists and ends with a complete row
        if self.path.exists():
            text = self._read()
            self._complete = text.endswith("\n")
            # A full disk or a crash may have truncated the last line.
            self._parse(text[: text.rfind("\n") + 1])

    def _parse(self, text: str) -> None:
        reader = csv.DictReader(text.splitlines())
        try:
            self.rows = list(reader)
        except csv.Error as error:
            raise self._damaged(str(error)) from error
        self.columns = list(reader.fieldnames or self.FIRST)
        for row in self.rows:
            counts = [row.get(key) for key in ("repeat", "fold", "step")]
            if not (all(map(_is_count, counts)) and row.get("epoch")):
                raise self._damaged(f"a row without {', '.join(self.FIRST)}")
            if not all(_is_number(value) for value in row.values() if value != ""):
                raise self._damaged("a value that is not a number")

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise self._damaged(error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            raise self._damaged("not a text file") from error

    def _damaged(self, why: str) -> UserError:
        return UserError(
            f"outputs: {self.path} is damaged ({why}); restore it, or start again with "
            f"overwrite=true"
        )

    def append(self, row: dict[str, Any]) -> None:
        """Adds a row; a new column is empty in the rows above."""
        written = {key: _format(value) for key, value in row.items()}
        new = [key for key in written if key not in self.columns]
        self.rows.append(written)
        self.columns += new
        if new or not self._complete:
            write_text(self.path, self._lines(self.rows, header=True))
            self._complete = True
            return
        try:
            with open(self.path, "a", newline="", encoding="utf-8") as file:
                file.write(self._lines([written], header=False))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            add_filename(error, self.path)
            raise

    def rewind(self, job: tuple[int, int], count: int) -> None:
        """Keeps the first `count` rows of this (repeat, fold), and all rows of others.

        Raises:
            UserError: there are fewer than `count`, so that the history would have a gap.
        """
        repeat, fold = (str(number) for number in job)
        kept: list[dict[str, str]] = []
        seen = 0
        for row in self.rows:
            if (row["repeat"], row["fold"]) == (repeat, fold):
                seen += 1
                if seen > count:
                    continue
            kept.append(row)
        if seen < count:
            raise self._damaged(f"{seen} of the {count} rows that the checkpoint knows")
        self._keep(kept)

    def _keep(self, kept: list[dict[str, str]]) -> None:
        if len(kept) == len(self.rows) and self._complete:
            return
        self.rows, self._complete = kept, bool(kept)
        if kept:
            write_text(self.path, self._lines(kept, header=True))
        else:
            self.path.unlink(missing_ok=True)
            self.columns = list(self.FIRST)

    def adopt(self, other: History, job: tuple[int, int]) -> None:
        """Replaces the rows of this (repeat, fold) by those of another history."""
        self.rewind(job, 0)
        for row in other.rows:
            if (row["repeat"], row["fold"]) == tuple(str(number) for number in job):
                self.append({key: value for key, value in row.items() if value != ""})

    def sort(self) -> None:
        """Sorts the rows by repeat and fold, stably."""
        ordered = sorted(self.rows, key=lambda row: (int(row["repeat"]), int(row["fold"])))
        if ordered != self.rows:
            self.rows = ordered
            write_text(self.path, self._lines(self.rows, header=True))

    def job_rows(self, repeat: int, fold: int) -> list[dict[str, float]]:
        """Returns the rows of one job as numbers, without empty cells."""
        wanted = (str(repeat), str(fold))
        return [
            {key: float(value) for key, value in row.items() if value != ""}
            for row in self.rows
            if (row["repeat"], row["fold"]) == wanted
        ]

    def _lines(self, rows: Sequence[dict[str, str]], header: bool) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()


class NullHistory(History):
    """A history that stores nothing, since another process does."""

    def __init__(self) -> None:
        self.rows, self.columns, self._complete = [], list(self.FIRST), True

    def append(self, row: dict[str, Any]) -> None:
        """Does nothing."""

    def rewind(self, job: tuple[int, int], count: int) -> None:
        """Does nothing."""


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
        """Stores one row."""
        row = {**self.job, "epoch": metrics["epoch"], "step": step, **metrics}
        self.history.append(row)
        self.tracker.log({**self.job, **metrics}, step)
        self.show(metrics)


def _is_count(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit() and len(text) < 16


def _is_number(text: str | list[str] | None) -> bool:
    """Returns False also for None and lists, from rows shorter or longer than the header."""
    try:
        float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _format(value: Any) -> str:
    """Returns a number with all digits, so that it reads back unchanged: 1/3, not 0.333."""
    return repr(value) if isinstance(value, float) else str(value)
