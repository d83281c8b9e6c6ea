"""Atomic writing of files: a reader finds the old content or the new one, never a part."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from dml.core.errors import UserError
from dml.core.fault_injection import fault_point


@contextmanager
def replace_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path next to `path`; at the end, syncs the file and renames it to `path`.

    After an error, such as a full disk, the temporary file is removed and the old file is kept; a
    killed process leaves a `.partial` file, which is ignored.

    Raises:
        UserError: `path` is a folder.
        OSError: the file cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise UserError(f"outputs: {path} is a folder where a file is expected; delete it")
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}.partial")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        fault_point("before_rename")
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        add_filename(error, path)
        raise
    _sync_folder(path.parent)


def add_filename(error: BaseException, path: Path) -> None:
    """Sets the file name of an OSError that has none, such as an error of `write` or `fsync`."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def output_folder(path: Path) -> Path:
    """Creates a folder if necessary, and returns it.

    Raises:
        UserError: the folder cannot be written to.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: not a folder; choose another one")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"a full disk refuses this")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; choose another folder") from error
    return path


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` to `path`, atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Writes `value` to `path` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> dict[str, Any] | None:
    """Returns the JSON object in the file `path`; None if there is no such file.

    Raises:
        UserError: the file cannot be read, or holds no JSON object.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # a folder, not UTF-8, not JSON
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"outputs: {path} is damaged ({reason}); delete it") from error
    if not isinstance(value, dict):
        raise UserError(f"outputs: {path} is damaged (not a JSON object); delete it")
    return value


def _sync_folder(folder: Path) -> None:
    """Syncs a folder: a rename is durable only once the folder's entry is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
