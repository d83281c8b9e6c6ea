"""Locks between processes, released by the operating system even if the holder is killed.

Exclusive locks come from filelock. Its shared lock is a SQLite database and fails on lock files
with other content, so that the shared lock here is `flock` of the operating system.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dml.core.errors import UserError

log = logging.getLogger(__name__)

_held: dict[Path, int] = {}  # locks of this process and their inodes
_shared_descriptors: set[int] = set()
UNSUPPORTED = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP)  # by the file system


class Busy(UserError):
    """Another process, `holder`, holds the lock `path`."""

    def __init__(self, path: Path) -> None:
        holder = path.read_text(encoding="utf-8", errors="replace")[:200].strip()
        self.path, self.holder = path, holder or "another process"
        super().__init__(
            f"outputs: {path.parent} is being written by {self.holder}; wait for it, or stop it"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return UserError, self.args  # in another process, where a launcher returns it


@contextmanager
def wait_for_lock(path: Path, purpose: str = "") -> Iterator[bool]:
    """Holds the exclusive lock `path`, after waiting for the process that holds it.

    On a file system without locks the block runs unlocked: callers write files that are renamed at
    the end, so that the worst case is duplicate work.

    Args:
        path: the lock file; its folder is created, and the file is not deleted.
        purpose: work of the holder, for a message while this process waits; empty: no message.

    Yields:
        True if the lock is held, False if the file system has no locks.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _exclusive(path)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if purpose:
                log.warning("waiting for another process that is %s", purpose)
            lock.acquire()
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    try:
        yield lock.is_locked
    finally:
        lock.release()


@contextmanager
def try_lock(path: Path, shared: bool = False) -> Iterator[None]:
    """Holds the lock `path`, or fails at once; while the lock is held, the file names the holder.

    Args:
        path: the lock file; its folder is created, and the file is not deleted.
        shared: acquire a shared lock, which several processes can hold together.

    Raises:
        Busy: another process holds the lock.
        UserError: the file cannot be written, or the file system has no locks.
    """
    folder = path.parent
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(
                _shared(path) if shared else _exclusive(path).acquire(blocking=False)
            )
        except (Timeout, BlockingIOError) as error:
            raise Busy(path) from error
        except OSError as error:
            raise UserError(f"outputs: cannot write to {folder}: {error.strerror}") from error
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        held.callback(_clear, path)
        _held[path.absolute()] = path.stat().st_ino
        held.callback(_held.pop, path.absolute())
        yield


def check_held(path: Path) -> None:
    """Checks the locks of this process in the folders above `path`.

    Raises:
        UserError: one was deleted, as it is with its folder.
    """
    for lock, inode in _held.items():
        if lock.parent in path.absolute().parents:
            try:
                kept = lock.stat().st_ino == inode
            except OSError:
                kept = False
            if not kept:
                raise UserError(f"outputs: {lock} was deleted while this process wrote beside it")


def is_locked(path: Path, shared: bool = False) -> bool:
    """Returns whether a process holds the lock `path`.

    The test acquires the lock for an instant; for an exclusive lock, only if its file names a
    holder.

    Args:
        path: the lock file.
        shared: whether the lock is shared; the first holder to release it removes the name.
    """
    try:
        import fcntl  # not on Windows

        if not shared and path.stat().st_size == 0:
            return False
        with open(path, "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ImportError):  # no such file, or no locks
        pass
    return False


def _clear(path: Path) -> None:
    with suppress(OSError):  # the folder may be gone
        path.write_text("", encoding="utf-8")


def _exclusive(path: Path) -> FileLock:
    # filelock's fallback, a marker file, would remain after a holder is killed.
    return FileLock(path, fallback_to_soft=False)


@contextmanager
def _shared(path: Path) -> Iterator[None]:
    import fcntl  # not on Windows

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _shared_descriptors.add(descriptor)
        yield
    finally:
        _shared_descriptors.discard(descriptor)
        os.close(descriptor)


def _close_inherited() -> None:
    """Closes the copies in a forked child, such as a loading process, which would keep the lock."""
    for descriptor in _shared_descriptors:
        os.close(descriptor)
    _shared_descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
