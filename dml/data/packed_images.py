"""Images inside of other files: members of tar archives, and rows of Parquet tables.

They have names like files, by which they are read at random: `shard.tar#1536+20480/cat/001.jpg` are
20,480 bytes from byte 1,536 of `shard.tar`, and `photos.parquet#123/001.jpg` is row 123 of
`photos.parquet`. What follows the slash is for people.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from dml.core.errors import first_line
from dml.core.regular_files import open_regular
from dml.data.unpacked_tables import IMAGE, bytes_of, read_unpacked, unpacked_path

MEMBER = re.compile(r"(.+\.tar)#(\d+)\+(\d+)/.+", re.IGNORECASE | re.DOTALL)
ROW = re.compile(r"(.+\.parquet)#(\d+)(/.+)?", re.IGNORECASE | re.DOTALL)
KEPT_BYTES = 1 << 26  # of decoded groups of rows that are kept in memory, of all tables
TABLES = 64  # that are kept open


class Packed(NamedTuple):
    """Where an image is.

    Attributes:
        file: the archive or table.
        start: first byte in the archive, or row of the table.
        size: bytes; None: a row.
    """

    file: Path
    start: int
    size: int | None


def split_packed(image: str | Path) -> Packed | None:
    """Returns where an image is by its name; None: it is a file of its own."""
    name = os.fspath(image)
    return _split(name) if "#" in name else None


@lru_cache(maxsize=64)  # decoding asks several times for the same image
def _split(name: str) -> Packed | None:
    if match := MEMBER.fullmatch(name):
        return Packed(Path(match[1]), int(match[2]), int(match[3]))
    if match := ROW.fullmatch(name):
        return Packed(Path(match[1]), int(match[2]), None)
    return None


def join_packed(packed: Packed, name: str) -> Path:
    """Returns the name of an image (`split_packed`).

    Args:
        packed: where it is.
        name: its name there, with slashes; may be empty for a row.
    """
    extent = f"{packed.start}" if packed.size is None else f"{packed.start}+{packed.size}"
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return Path(f"{packed.file}#{extent}", *parts)


def read_packed(packed: Packed) -> bytes:
    """Returns the bytes of an image.

    Raises:
        OSError: the file is missing, has changed or is no table, or the row has no bytes.
    """
    if packed.size is None:
        return _read_row(packed.file, packed.start)
    with open_regular(packed.file) as file:
        _check_state(packed.file, os.fstat(file.fileno()))
        file.seek(packed.start)
        data = file.read(packed.size)
    if len(data) < packed.size:
        raise OSError(0, f"{packed.file} ends before byte {packed.start + packed.size:,}")
    return data


def expect_state(file: Path, size: int, modified: int) -> None:
    """Lets `read_packed` refuse a file that is another one than that of which images were listed.

    Args:
        file: the archive or table.
        size, modified: bytes and modification time (ns) when it was listed.
    """
    _listed[file] = size, modified


def _check_state(file: Path, status: os.stat_result) -> None:
    """Raises OSError if a file has changed since its images were listed."""
    state = status.st_size, status.st_mtime_ns
    if _listed.get(file, state) != state:
        raise OSError(0, f"{file} has changed since its images were listed; start again")


class _Table:
    """An open table."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        # Threads of pyarrow do not survive in a forked process.
        self.file = parquet.ParquetFile(path, memory_map=True)
        metadata = self.file.metadata
        counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        self.ends = list(accumulate(counts))

    def read(self, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        group = bisect_right(self.ends, row)
        if group == len(self.ends):
            raise OSError(0, f"it has no row {row:,}")
        first = self.ends[group - 1] if group else 0
        return self._read_group(group)[row - first].as_py()

    def _read_group(self, group: int) -> Any:
        """Returns the column of images of a group, which stays in memory for a while."""
        key = id(self), group
        if key not in _groups:
            read = self.file.read_row_group(group, columns=[IMAGE], use_threads=False)
            _groups[key] = read.column(IMAGE)
            while len(_groups) > 1 and sum(kept.nbytes for kept in _groups.values()) > KEPT_BYTES:
                _groups.popitem(last=False)
        _groups.move_to_end(key)
        return _groups[key]


def _read_row(path: Path, row: int) -> bytes:
    """Returns the bytes of a row: of a struct with `bytes`, or of a binary column.

    Raises:
        OSError: the table is missing or damaged, or the row has no bytes.
    """
    status = os.stat(path)
    _check_state(path, status)
    data = read_unpacked(unpacked_path(path, status), row)
    if data is None:
        key = path, status.st_mtime_ns, status.st_size
        with _lock:  # a table is not read by two threads at once
            try:
                data = bytes_of(_open_table(key).read(row))
            except (ValueError, KeyError) as error:  # those of pyarrow
                raise OSError(0, f"{path}: {first_line(error)}") from error
    if not data:
        raise OSError(0, f"row {row:,} has no bytes of an image")
    return data


def _open_table(key: tuple[Path, int, int]) -> _Table:
    """Returns a table, by its path, time and size, which stays open for a while."""
    if key not in _tables:
        _tables[key] = _Table(key[0])
        while len(_tables) > TABLES:
            _, closed = _tables.popitem(last=False)
            for group in [name for name in _groups if name[0] == id(closed)]:
                del _groups[group]
    _tables.move_to_end(key)
    return _tables[key]


def _forget_tables() -> None:
    global _lock
    _lock = Lock()
    _tables.clear()
    _groups.clear()


_listed: dict[Path, tuple[int, int]] = {}
_lock = Lock()
_tables: OrderedDict[tuple[Path, int, int], _Table] = OrderedDict()
_groups: OrderedDict[tuple[int, int], Any] = OrderedDict()  # table and number → images
os.register_at_fork(after_in_child=_forget_tables)  # a thread of the parent may have held the lock
