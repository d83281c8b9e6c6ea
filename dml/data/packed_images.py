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

MEMBER = re.compile(r"(.+\.tar)#(\d+)\+(\d+)/.+", re.IGNORECASE | re.DOTALL)
ROW = re.compile(r"(.+\.parquet)#(\d+)(/.+)?", re.IGNORECASE | re.DOTALL)
IMAGE = "image"  # column of a table
GROUPS = 4  # decoded groups of rows that are kept in memory


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
        OSError: the file is missing, shorter or no table, or the row has no bytes.
    """
    if packed.size is None:
        return _read_row(packed.file, packed.start)
    with open_regular(packed.file) as file:
        file.seek(packed.start)
        data = file.read(packed.size)
    if len(data) < packed.size:
        raise OSError(0, f"{packed.file} ends before byte {packed.start + packed.size:,}")
    return data


class _Table:
    """An open table, and the groups of its rows that were read last."""

    def __init__(self, path: Path) -> None:
        from pyarrow import parquet

        # Threads of pyarrow do not survive in a forked process.
        self.file = parquet.ParquetFile(path, memory_map=True)
        metadata = self.file.metadata
        counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        self.ends = list(accumulate(counts))
        self.groups: OrderedDict[int, Any] = OrderedDict()

    def read(self, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        group = bisect_right(self.ends, row)
        if group == len(self.ends):
            raise OSError(0, f"it has no row {row:,}")
        if group not in self.groups:
            read = self.file.read_row_group(group, columns=[IMAGE], use_threads=False)
            self.groups[group] = read.column(IMAGE)
            while len(self.groups) > GROUPS:
                self.groups.popitem(last=False)
        self.groups.move_to_end(group)
        first = self.ends[group - 1] if group else 0
        return self.groups[group][row - first].as_py()


def _read_row(path: Path, row: int) -> bytes:
    """Returns the bytes of a row: of a struct with `bytes`, or of a binary column.

    Raises:
        OSError: the table is missing or damaged, or the row has no bytes.
    """
    status = os.stat(path)
    key = path, status.st_mtime_ns, status.st_size
    with _lock:  # a table is not read by two threads at once
        try:
            table = _tables.get(key) or _tables.setdefault(key, _Table(path))
            value = table.read(row)
        except (ValueError, KeyError) as error:  # those of pyarrow
            raise OSError(0, f"{path}: {first_line(error)}") from error
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise OSError(0, f"row {row:,} has no bytes of an image")
    return data


def _forget_tables() -> None:
    global _lock
    _lock = Lock()
    _tables.clear()


_lock = Lock()
_tables: dict[tuple[Path, int, int], _Table] = {}
os.register_at_fork(after_in_child=_forget_tables)  # a thread of the parent may have held the lock
