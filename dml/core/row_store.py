"""The rows that an interrupted call has made, in a hidden folder beside its output.

The name of the folder is known beforehand, and the folder around may be writable to others: it must
be this user's own, and nothing in it is opened through a link.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dml.core.errors import UserError
from dml.core.locks import Busy, try_lock

LOCK = "run.lock"
NAME = re.compile(r"[0-9a-f]{64}")  # of a file of rows: a digest of what makes them


@contextmanager
def _open_store_folder(folder: Path) -> Iterator[None]:
    """Makes a folder that only this user can enter, and holds its lock.

    Raises:
        Busy: another process holds the lock.
        UserError: there is a link, a file, or another user's folder of this name.
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise UserError(f"output: {folder} is no folder of this command; remove it") from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise UserError(f"output: {folder} is another user's; choose another name")
        others_write = status.st_mode & 0o022
        if others_write:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~0o022)
    finally:
        os.close(descriptor)
    with try_lock(folder / LOCK):
        yield


def open_store(path: Path) -> BinaryIO:
    """Opens a file for reading and appending; a new one is made without following links.

    Raises:
        UserError: there is a link, or something else than a file, of this name.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if os.path.islink(path) or not path.is_file():
            raise UserError(f"output: {path} is no file of this command; remove it") from error
        raise
    status = os.fstat(descriptor)
    # A second name of the file would be a hard link to a file of somebody.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise UserError(f"output: {path} is no file of this command; remove it")
    return os.fdopen(descriptor, "a+b")


@contextmanager
def hold_store_folder(folder: Path) -> Iterator[None]:
    """Makes a folder that only this user can enter, and holds its lock.

    After an error it is removed if it has no rows.

    Raises:
        See `_open_store_folder`.
    """
    try:
        with _open_store_folder(folder):
            yield
    except Busy:
        raise
    except BaseException:
        has_rows = folder.is_dir() and any(NAME.fullmatch(path.name) for path in folder.iterdir())
        if not has_rows:
            remove_store_folder(folder)
        raise


def remove_store_folder(folder: Path) -> None:
    """Removes the files of rows; the folder stays if it holds others."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if NAME.fullmatch(path.name) or path.name == LOCK:
            path.unlink()
    with suppress(OSError):
        folder.rmdir()
