"""Files that are either the old or the new one, whatever happens in between."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dml.core.errors import UserError
from dml.core.fault_injection import fault_point


@contextmanager
def replace_file(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on leaving, syncs it to disk and renames it.

    An error (a full disk, say) removes the temporary file and leaves the old one untouched; a
    killed process leaves a `.partial` file that nothing ever reads.

    Raises:
        UserError: there is a folder of that name.
        OSError: the disk refuses.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise UserError(f"outputs: {path} is a folder, but a file goes there; delete it")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files for the owner alone
        fault_point("before_rename")
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        add_filename(error, path)
        raise
    _sync_folder(path.parent)


def add_filename(error: BaseException, path: Path) -> None:
    """Lets an error say which file it is about: writing and syncing leave that out."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(path)


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` durably to `path`."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Writes `value` durably to `path` as indented JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> dict[str, Any] | None:
    """What `write_json` wrote there; None if the file is not there.

    Raises:
        UserError: there is something else.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # a folder, not UTF-8, not JSON
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"outputs: {path} is damaged ({reason}); delete it") from error
    if not isinstance(value, dict):
        raise UserError(f"outputs: {path} is damaged (no JSON object); delete it")
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """The rename itself is only safe once the folder's entry is on disk."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
