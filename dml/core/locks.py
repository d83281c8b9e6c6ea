"""Locks between processes, freed by the system when their holder dies, however it dies.

Exclusive locks are filelock's. Its shared lock is a SQLite database, which a lock file of another
content damages, so that the shared lock here is the system's own.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

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


@contextmanager
def wait_for_lock(path: Path, purpose: str = "") -> Iterator[bool]:
    """Holds the exclusive lock `path`, after waiting for the process that holds it.

    Without file locks the block runs all the same: callers write files that are renamed into
    place, so that the worst case is work done twice.

    Args:
        path: the lock file; its folder is made, and the file stays.
        purpose: what the holder does, for a message while this process waits; empty: no message.

    Yields:
        True if the lock is held, False where the file system has none.

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
    """Holds the lock `path`, or fails at once; the file names the holder meanwhile.

    Args:
        path: the lock file; its folder is made, and the file stays.
        shared: other processes may hold the lock too, if they share it as well.

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
    """Returns True if a process holds the lock `path`.

    Asks the system, which knows if the holder died. It is asked by taking the lock for an instant,
    and therefore only where the file names a holder, or where there may be several.

    Args:
        path: the lock file.
        shared: whether holders share the lock; the first one to leave removes the name.
    """
    try:
        import fcntl  # not on Windows

        if not shared and path.stat().st_size == 0:
            return False
        with open(path, "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ImportError):  # absent, or no locks here
        pass
    return False


def _clear(path: Path) -> None:
    with suppress(OSError):  # the folder may be gone
        path.write_text("", encoding="utf-8")


def _exclusive(path: Path) -> FileLock:
    # filelock's fallback, a marker file, would outlive a holder that dies on another machine.
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
    """Closes a forked child's copies, such as a loader worker's: they would keep the lock held."""
    for descriptor in _shared_descriptors:
        os.close(descriptor)
    _shared_descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
