"""Atomic writing of files: readers see either the old or the new content, never a part of it.

`append_bytes` alone writes behind what is there.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.locks import check_held
from dml.core.plain_text import encode
from dml.core.regular_files import read_regular_text


@contextmanager
def replace_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path next to `path`; at the end, syncs the file and renames it to `path`.

    The file gets the mode that the umask gives to a new file, also where a library replaces the
    temporary file by one of its own (safetensors: 0600).

    After an error, such as a full disk, the temporary file is removed and the old file is kept; a
    killed process leaves a `.partial` file, which is ignored.

    Raises:
        UserError: the folder of a lock of this process was deleted meanwhile.
        OSError: the file cannot be written; it names the file, also for errors of `fsync`.
    """
    path = Path(path)
    if not path.name:
        raise UserError(f"output: '{path}' is no name of a file")
    check_held(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
    try:
        # New: a link of this name that somebody has planted is not followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        created = os.open(temporary, flags, 0o666)
        mode = stat.S_IMODE(os.fstat(created).st_mode)
        os.close(created)
        yield temporary
        with open(temporary, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != mode:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        fault_point("before_rename")
        check_held(path)  # again: the folder may have been replaced while the file was written
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):  # where it could not be created either
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            check_held(path)  # a clearer reason
            if error.filename in (None, str(temporary)):
                error.filename = str(path)
        raise


def output_folder(path: Path) -> Path:
    """Creates a folder if necessary, and returns it.

    Raises:
        OSError: the folder cannot be written to; it names the folder.
    """
    path.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"a full disk refuses this")
    except OSError as error:
        error.filename = str(path)  # not the one of the temporary file
        raise
    return path


def check_writable(path: Path, option: str, remedy: str) -> None:
    """Creates a folder if necessary, before work whose result it gets.

    Args:
        path: of the folder.
        option: that names it.
        remedy: what puts the result elsewhere.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        output_folder(path)
    except OSError as error:
        raise UserError(
            f"{option}: {path} cannot be written to ({error.strerror}); {remedy}"
        ) from error


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` to `path` in UTF-8 (`dml.core.plain_text.encode`), atomically."""
    write_bytes(path, encode(text))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Writes `content` to `path`, atomically."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content)


def append_bytes(path: str | Path, content: bytes) -> None:
    """Writes `content` behind that of a file, and syncs it; after an error the file is as before.

    A reader, or a crash, may see a part of `content`.

    Raises:
        UserError: the folder of a lock of this process was deleted meanwhile.
        OSError: there is no such file, or it cannot be written; it names the file.
    """
    check_held(Path(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        try:
            with open(descriptor, "ab", closefd=False) as file:
                file.write(content)
            os.fsync(descriptor)
        except OSError as error:  # such as a full disk
            error.filename = str(path)
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def write_json(path: str | Path, value: Any) -> None:
    """Writes `value` to `path` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> dict[str, Any] | None:
    """Returns the JSON object in the file `path`; None if there is no such file.

    Raises:
        UserError: the file cannot be read, or holds no JSON object.
    """
    try:
        value = json.loads(read_regular_text(path))
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # a folder, not UTF-8, not JSON
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"outputs: {path} is damaged ({reason}); delete it") from error
    return value


def _sync_folder(folder: Path) -> None:
    """Syncs a folder: a rename is durable only once the folder's entry is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
