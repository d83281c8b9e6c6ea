"""One process at a time, where the operating system and the file system can promise that."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)


@contextmanager
def exclusive(path: Path, purpose: str) -> Iterator[bool]:
    """Holds the lock `path` (an empty file); waits for another process that holds it.

    The lock of a process that died is free. Without file locks the block runs all the same: what
    is written inside is renamed into place whole, so that the worst case is work done twice.

    Args:
        path: the lock file; its folder is made.
        purpose: what the other process is doing, for the message about waiting.

    Yields:
        Whether the lock is held: False where there are no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        yield _acquire(file.fileno(), purpose)  # closing the file gives the lock back


def _acquire(descriptor: int, purpose: str) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.warning("waiting for another process that is %s", purpose)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # a network file system without locks
        log.debug("no file locks here", exc_info=True)
        return False
    return True
