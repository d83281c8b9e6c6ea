"""Locks between processes, released by the operating system even if the holder is killed.

While a lock is held, its file names the holder, which touches it every few seconds: a holder that
was stopped, or whose machine hangs, is told from one that works.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from dml.core.errors import UserError
from dml.core.regular_files import check_regular, read_regular
from dml.core.waits import NoAnswerError, SignsOfLife, Wait, print_note

log = logging.getLogger(__name__)
# Locks of this process, and folders that it shares with others: path → folder, inode of the path.
_held: dict[Path, tuple[Path, int]] = {}
BEAT_SECONDS = 5.0  # between two touches of the files of held locks
SILENT_SECONDS = 60.0  # since the last touch, after which the holder of a lock counts as ended
POLL_SECONDS = 1.0  # between two attempts to get a lock
LOCKLESS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # errors of file systems without locks
DEATH_SECONDS = 10.0  # from the kill of a process to its end, which frees its locks
_beats: list[threading.Thread] = []  # the thread that touches them; a forked child has its own


class Busy(UserError):
    """Another process, `holder`, holds the lock `path`."""

    def __init__(self, path: Path) -> None:
        self.path, self.holder = path, read_holder(path)
        super().__init__(
            f"outputs: {path.parent} is being written by {self.holder}; wait for it, stop it, or "
            f"continue it if it was stopped (kill -CONT)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return UserError, self.args  # in another process, where a launcher returns it


class FolderGone(UserError):
    """A folder that this process writes to was deleted, moved or replaced."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"outputs: {folder} was deleted, moved or replaced while this process wrote to it; "
            f"start the command again"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return UserError, self.args  # in another process, where a launcher returns it


@contextmanager
def wait_for_lock(path: Path, purpose: str = "") -> Iterator[None]:
    """Holds the exclusive lock `path`, after waiting for the process that holds it.

    Args:
        path: the lock file; its folder is created, and the file is not deleted.
        purpose: work of the holder, for a message while this process waits; empty: no message.

    Raises:
        OSError: the file cannot be written, or the file system has no locks.
        RunStopped: this process is asked to stop while it waits.
        NoAnswerError: the holder has not answered for too long.
        FolderGone: see `check_held`.
    """
    check_held(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _exclusive(path)
    try:
        _acquire(lock, 0)
    except Timeout:
        if purpose:
            log.warning("waiting for another process that is %s", purpose)
        _acquire_in_time(lock, path)
    with _named(lock, path):
        yield


def _acquire_in_time(lock: FileLock, path: Path) -> None:
    """Acquires a lock once its holder releases it; see `wait_for_lock` for the errors."""
    silence = HolderWait()
    while True:
        try:
            _acquire(lock, POLL_SECONDS)
            return
        except Timeout:
            silence.check([path])


class HolderWait:
    """A wait for the holders of locks; `check` is called about every second.

    Args:
        remedy: what helps, after the name of the holder; in addition to its end.
    """

    def __init__(self, remedy: str = "") -> None:
        self._signs, self._wait = SignsOfLife(), Wait(self._describe)
        self._remedy, self._silent = remedy, Path()

    def check(self, paths: Iterable[Path]) -> None:
        """Prints a note if the holder of one of the locks is silent; see `Wait.check`.

        A child process of this one that is silent for too long is killed, so that its locks are
        free.

        Raises:
            RunStopped: this process is asked to stop.
            NoAnswerError: a holder is silent for too long.
        """
        self._silent, seconds = self._signs.longest_silent(paths)
        try:
            self._wait.check(seconds)
        except NoAnswerError:
            if not kill_child(self._silent):
                raise

    def _describe(self) -> tuple[str, str]:
        holder = read_holder(self._silent)
        remedy = f"end it, or continue it if it was stopped (kill -CONT){self._remedy}"
        return f"{holder} holds {self._silent} and has not answered", remedy


def read_holder(path: Path) -> str:
    """Returns `process 123 on <machine>` for the holder of a lock, or `another process`."""
    holder = ""
    with suppress(OSError):
        holder = read_regular(path).decode("utf-8", "replace")[:200].strip()
    return holder or "another process"


def kill_child(path: Path) -> bool:
    """Kills the holder of a lock if it is a child of this process; returns whether it did."""
    holder = re.fullmatch(r"process (\d+) on (.*)", read_holder(path))
    if holder is None or holder[2] != socket.gethostname():
        return False
    for process in multiprocessing.active_children():
        if process.pid == int(holder[1]):
            process.kill()
            process.join(DEATH_SECONDS)
            if process.is_alive():  # a file system that hangs keeps it
                return False
            print_note(f"{holder[0]} did not answer and was ended")
            return True
    return False


@contextmanager
def try_lock(path: Path) -> Iterator[None]:
    """Holds the exclusive lock `path`, or fails at once.

    Args:
        path: the lock file; its folder is created, and the file is not deleted.

    Raises:
        Busy: another process holds the lock.
        UserError: the file cannot be written, or the file system has no locks.
        FolderGone: see `check_held`.
    """
    check_held(path)
    lock = _exclusive(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock, 0)
    except Timeout as error:
        raise Busy(path) from error
    except OSError as error:
        raise UserError(describe_refusal(path.parent, error)) from error
    with _named(lock, path):
        yield


def describe_refusal(folder: Path, error: OSError) -> str:
    """Returns that a folder of runs cannot be written to, and what to do where it is another's."""
    message = f"outputs: cannot write to {folder}: {error.strerror}"
    if not isinstance(error, PermissionError):
        return message
    return (
        f"{message}; set outputs=<folder that you can write to>, or let its owner share it: "
        f"docs/guides/job_scripts.md"
    )


def is_locked(path: Path) -> bool:
    """Returns whether a process holds the lock `path`.

    If its file names a holder, the test acquires the lock for an instant.
    """
    with suppress(OSError):  # no such file, not a file, or no locks
        check_regular(path)
        if path.stat().st_size:
            return _is_held(path)
    return False


def _is_held(path: Path) -> bool:
    """Returns whether a process holds the lock of a file, which may be another user's.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks.
    """
    file: BinaryIO
    try:
        file = open(path, "rb+")  # noqa: SIM115
    except PermissionError:
        file = open(path, "rb")  # noqa: SIM115
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # NFS locks only what is open for writing; but the holder touches the file.
            return time.time() - path.stat().st_mtime < SILENT_SECONDS
    return False


@contextmanager
def lock_all(folder: Path, first: str) -> Iterator[None]:
    """Holds the lock `first` of a folder and all locks below it, or fails at once.

    Raises:
        Busy: a process holds one of them.
        UserError: as `try_lock`.
    """
    with ExitStack() as stack:
        stack.enter_context(try_lock(folder / first))
        for path in sorted(folder.rglob("*.lock")):
            if path != folder / first and path.is_file():
                stack.enter_context(try_lock(path))
        yield


def find_held(folder: Path) -> Path | None:
    """Returns a lock below a folder that a process holds; None if there is none."""
    return next(filter(is_locked, folder.rglob("*.lock")), None)


@contextmanager
def share_folder(folder: Path, inode: int | None = None) -> Iterator[None]:
    """Lets `check_held` check a folder that processes share without a lock on all of it.

    Contexts of one folder may be nested, as that of a search in the process of a worker.

    Args:
        folder: is created.
        inode: of the folder, if another process has created it.

    Raises:
        FolderGone: there is another folder, or none, where that of `inode` was.
    """
    path = folder.absolute()
    if inode is None:
        folder.mkdir(parents=True, exist_ok=True)
        inode = folder.stat().st_ino
    outer = _held.get(path)
    _held[path] = path, inode
    try:
        check_held(path / "first file")
        yield
    except OSError:
        check_held(path / "any file")  # a clearer reason
        raise
    finally:
        if outer is None:
            _held.pop(path)
        else:
            _held[path] = outer


def check_held(path: Path) -> None:
    """Checks the folders above a file that this process is about to write.

    Those are checked in which it holds a lock, and those of `share_folder`.

    Raises:
        FolderGone: one is gone, or its lock: what was saved before is lost, and writing on would
            make a folder that looks like a run.
        UserError: one cannot be reached.
    """
    if not _held:
        return
    try:
        parents = path.absolute().parents
    except FileNotFoundError as error:  # the current folder is gone, and all below it
        raise FolderGone(path.parent) from error
    for held, (folder, inode) in [*_held.items()]:
        if folder not in parents:
            continue
        try:
            is_same = held.stat().st_ino == inode
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        except OSError as error:  # of a network file system
            raise UserError(
                f"outputs: {folder} cannot be reached ({error.strerror}); the same command "
                f"continues once it can"
            ) from error
        if not is_same:
            raise FolderGone(folder)


@contextmanager
def _named(lock: FileLock, path: Path) -> Iterator[None]:
    """Writes the name of this process into the file while the lock is held; then releases it."""
    absolute = path.absolute()  # also if the current folder is deleted meanwhile
    try:
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        _held[absolute] = absolute.parent, path.stat().st_ino
        _start_beats()
        yield
    finally:
        _held.pop(absolute, None)
        with suppress(OSError):  # the folder may be gone, and nothing is made in its place
            os.truncate(path, 0)
        lock.release()


os.register_at_fork(after_in_child=_held.clear)  # the parent holds them


def _start_beats() -> None:
    """Starts the thread that touches the held locks, unless it runs."""
    if _beats and _beats[0].is_alive():
        return
    _beats[:] = [threading.Thread(target=_beat, name="locks", daemon=True)]
    _beats[0].start()


def _beat() -> None:
    """Touches the files of the held locks, which are seldom none, until the process ends."""
    while True:
        time.sleep(BEAT_SECONDS)
        for path, (folder, inode) in [*_held.items()]:
            with suppress(OSError):
                if path != folder and path.stat().st_ino == inode:
                    os.utime(path)


def _acquire(lock: FileLock, timeout: float) -> None:
    """Acquires a lock within some seconds.

    Raises:
        Timeout: another process holds it.
        OSError: the file cannot be written, or the file system has no locks.
    """
    try:
        lock.acquire(timeout=timeout)
    except NotImplementedError as error:
        raise _no_locks(lock) from error
    except OSError as error:
        if error.errno in LOCKLESS:
            raise _no_locks(lock) from error
        raise


def _no_locks(lock: FileLock) -> OSError:
    reason = "its file system has no file locks (flock); choose a folder on another one"
    return OSError(errno.ENOLCK, reason, lock.lock_file)


def _exclusive(path: Path) -> FileLock:
    # filelock's fallback, a marker file, would remain after a holder is killed.
    return FileLock(path, fallback_to_soft=False)
