"""Optuna's storage of the trials of a search: a journal in the run folder, or a database.

A journal that is damaged is cut at the first line that Optuna cannot read, as after a crash of the
machine or a copy that ended early: the trials before it are known, and those after it are trained
again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.trial import FrozenTrial

from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError, first_line
from dml.core.locks import find_held, read_holder, wait_for_lock
from dml.core.regular_files import NotRegularFile, check_unlinked, read_regular
from dml.core.secrets import mask_text
from dml.runs.console import print_line
from dml.runs.folder.run_folder import RunFolder


class StorageError(UserError):
    """The storage of a search can no longer be read or written."""


@contextmanager
def translate_storage_errors(folder: RunFolder, url: str | None) -> Iterator[None]:
    """Turns errors of Optuna's storage into one line with the remedy.

    Args:
        folder: of the run.
        url: the option `search.storage`.

    Raises:
        StorageError: the storage is gone, locked, damaged or unreachable.
    """
    try:
        yield
    # Of a journal, lines of another form raise what their use raises.
    except (OSError, OptunaError, LookupError, TypeError, ValueError, AssertionError) as error:
        reason = mask_text(first_line(error.__cause__ or error))
        if url is not None:
            raise StorageError(
                f"search.storage: it cannot be used: {reason}; the same command continues once it "
                f"can be read and written, with the trials that it still holds"
            ) from error
        raise StorageError(
            f"search: {folder.journal} was deleted or damaged ({reason}); the same command keeps "
            f"the trials that it can still read, and continues"
        ) from error


def open_storage(folder: RunFolder, url: str | None) -> BaseStorage:
    """Opens the storage of a search.

    Raises:
        StorageError: it cannot be opened.
    """
    if url is None:
        return _open_run_journal(folder)
    try:
        return optuna.storages.get_storage(url)
    except Exception as error:  # SQLAlchemy's and its drivers' errors have no common class
        reason = mask_text(first_line(error.__cause__ or error))  # the cause names a missing driver
        raise StorageError(
            f"search.storage: {mask_text(url)} cannot be opened: {reason}; repair or move it, or "
            f"choose another, which starts the search anew"
        ) from error


def _open_run_journal(folder: RunFolder) -> JournalStorage:
    held = find_held(folder.trials) if folder.trials.exists() else None
    searching = None if held is None else read_holder(held)
    return open_journal(folder.journal, searching)


def open_journal(path: Path, searching: str | None = None) -> JournalStorage:
    """Opens the journal at `path`, without the lines from the first one that is damaged.

    Args:
        path: of the journal.
        searching: a process that uses it, whose place in the journal a cut would move.

    Raises:
        StorageError: it is damaged, and another process uses it.
    """
    lock = _Lock(path.with_suffix(".lock"))
    try:
        check_unlinked(path)
    except NotRegularFile as error:
        raise StorageError(
            f"search: {path} is {error.strerror}; move it away, and the same command starts "
            f"the search anew"
        ) from error
    path.touch()
    lock.acquire()
    try:
        _cut(path, searching)
    finally:
        lock.release()
    return JournalStorage(_Journal(path, lock))


def write_back(path: Path, study: str, trials: list[FrozenTrial]) -> None:
    """Writes the trials that a process knows into a new journal, if the file is gone."""
    if path.exists() or not trials:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    storage = open_journal(path)
    optuna.create_study(storage=storage, study_name=study, direction="maximize").add_trials(trials)
    known = count_of(len(trials), "known trial")
    were = verb_for(len(trials), "was", "were")
    print_line(f"note: search: {path} was deleted; {known} {were} written back")


def _cut(path: Path, searching: str | None) -> None:
    """Removes the lines of a journal from the first damaged one on; keeps a copy of whole ones."""
    content = read_regular(path)
    lines = content.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):  # cut short by a full disk, or still written
        lines.pop()
    number = _count_readable(lines)
    if number < len(lines):
        if searching is not None:
            raise StorageError(
                f"search: line {number + 1} of {path} is damaged, and {searching} uses it; stop "
                f"that, and start the command again, which cuts the journal there"
            )
        copy = _free_name(path)
        shutil.copyfile(path, copy)
        print_line(
            f"note: search: {path} is damaged from line {number + 1} of {len(lines)} on and was "
            f"cut there; {copy.name} is a copy of it, and the trials before are kept"
        )
    os.truncate(path, sum(map(len, lines[:number])))


def _free_name(path: Path) -> Path:
    number = 1
    while (copy := path.with_name(f"{path.stem}.damaged{number}{path.suffix}")).exists():
        number += 1
    return copy


def _count_readable(lines: list[bytes]) -> int:
    """Returns the number of lines before the first one that Optuna cannot read."""
    replay = _Replay()
    storage = JournalStorage(replay)
    for number, line in enumerate(lines):
        try:
            replay.logs.append(json.loads(line))
            storage.get_all_studies()  # reads the new line
        except Exception:  # of many classes, for lines of any content
            return number
    return len(lines)


class _Replay(BaseJournalBackend):
    """The lines of a journal so far, in memory."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Returns the operations from a number on."""
        return self.logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends operations."""
        self.logs += logs


class _Journal(JournalFileBackend):
    """A journal in a file; without the checks, a new file in its place would be read as the end.

    Raises, in all methods:
        FileNotFoundError: the file is gone.
        ValueError: it was replaced, or cut.
    """

    def __init__(self, path: Path, lock: Any) -> None:
        super().__init__(str(path), lock_obj=lock)
        self._path = path
        self._inode = path.stat().st_ino
        self._size = 0

    def _check(self) -> None:
        status = self._path.stat()
        if status.st_ino != self._inode or status.st_size < self._size:
            raise ValueError("another file is in its place")
        self._size = status.st_size

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        """Yields the operations from a number on."""
        self._check()
        yield from super().read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends operations."""
        self._check()
        super().append_logs(logs)


class _Lock:
    """The system's lock, which is free at once when its holder is killed.

    Optuna's lock blocks the others for half a minute then, and for as long as a holder is stopped.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._held = path, ExitStack()

    def acquire(self) -> bool:
        """Waits for the lock; see `wait_for_lock`."""
        self._held.enter_context(wait_for_lock(self._path))
        return True

    def release(self) -> None:
        """Releases the lock."""
        self._held.close()
