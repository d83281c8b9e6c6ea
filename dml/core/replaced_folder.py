"""Folders that are made beside their place and put there whole, by renaming."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from dml.core.errors import UserError
from dml.core.fault_injection import fault_point

MARK = ".unfinished"  # a file in folders that are being made or removed
OLD = ".old"  # ending of a folder that gives way to a new one, where two cannot be exchanged
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


@contextmanager
def replace_folder(target: Path, names: Collection[str]) -> Iterator[Path]:
    """Yields a new folder beside `target`; at the end, syncs its files and renames it to `target`.

    A folder that is there is exchanged in one step where the file system can do so, and then
    removed. After an error nothing has changed; a killed process leaves a hidden folder beside,
    which the next call removes.

    Args:
        target: the folder. What it holds must be replaceable: the caller has checked that.
        names: of all files that it may hold.

    Raises:
        UserError: files of others came into the folder meanwhile, or it cannot be renamed.
        OSError: a file cannot be written, or the folder cannot be made; it names the file or
            `target`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target, names)
    new = target.with_name(f".{target.name}.{uuid4().hex[:8]}.partial")
    try:
        new.mkdir()  # fails if there is anything of this name: no link is followed
    except OSError as error:
        error.filename = str(target)  # not the one of the hidden folder
        raise
    descriptor = os.open(new, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: others leave the folder alone, too
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # shows others that this process is alive
        (new / MARK).touch()
        yield new
        for path in new.iterdir():
            _sync(path)
        (new / MARK).unlink()
        _sync(new)
        fault_point("folder_written")
        _put(new, target, names)
        _sync(target.parent)
    finally:
        _remove(new, names)
        os.close(descriptor)


def recover_folder(target: Path) -> None:
    """Puts a folder back which a killed process had renamed to make way for a new one."""
    if not target.name:  # . and /, which nobody has renamed
        return
    old = _old(target)
    if not os.path.lexists(target) and _is_marked(old):
        with suppress(OSError):
            old.rename(target)
            (target / MARK).unlink()


def _old(target: Path) -> Path:
    return target.parent / f".{target.name}{OLD}"


def _is_marked(folder: Path) -> bool:
    """Returns whether a folder is one that this module has made or renamed."""
    try:
        return not folder.is_symlink() and (folder / MARK).is_file()
    except OSError:  # a name that is too long, or a folder that cannot be read
        return False


def _put(new: Path, target: Path, names: Collection[str]) -> None:
    """Renames a folder to `target`; one that is there gets the name of the new one."""
    if not os.path.lexists(target):
        os.rename(new, target)
        return
    if _exchange(new, target):
        fault_point("folder_exchanged")
        if _is_removable(new, names):
            (new / MARK).touch()
            return
        _exchange(new, target)
        raise UserError(f"{target}: files of others came into the folder meanwhile")
    old = _old(target)
    try:
        (target / MARK).touch()
        os.rename(target, old)
        fault_point("folder_away")
        os.rename(new, target)
    except OSError as error:
        recover_folder(target)
        (target / MARK).unlink(missing_ok=True)
        raise UserError(f"{target} cannot be replaced: {error.strerror}") from error
    os.rename(old, new)  # to be removed


def _exchange(first: Path, second: Path) -> bool:
    """Exchanges the names of two folders in one step; returns False where this is not possible."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = os.fsencode(first), os.fsencode(second)
    if rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # by file system or kernel
        return False
    raise UserError(f"{second} cannot be replaced: {os.strerror(number)}")


def _is_removable(folder: Path, names: Collection[str]) -> bool:
    known = {*names, MARK}
    return all(path.name in known and not path.is_dir() for path in folder.iterdir())


def _remove(folder: Path, names: Collection[str]) -> None:
    """Removes a folder with its known files; a folder with others stays."""
    with suppress(OSError):
        if folder.is_symlink():
            return
        for name in (*names, MARK):
            (folder / name).unlink(missing_ok=True)
        for path in folder.glob(".*.partial"):  # of `replace_file`
            path.unlink()
        folder.rmdir()


def _remove_leftovers(target: Path, names: Collection[str]) -> None:
    """Removes what killed processes have left beside a folder, and puts back what was renamed."""
    recover_folder(target)
    if _is_marked(_old(target)):
        _remove(_old(target), names)
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.partial")
    for path in target.parent.iterdir():
        if not pattern.fullmatch(path.name) or not _is_marked(path):
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path, names)
            finally:
                os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
