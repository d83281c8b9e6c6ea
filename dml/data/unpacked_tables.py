"""The images of a Parquet table one after the other in a file, where each is read by itself.

A table decodes a whole group of rows for one image: shuffled, that is a group for each image of a
batch. The file `.bytes` beside the table, in `.cache`, holds the bytes of all images; its table
`.npy` has N ends in it, and is written last. A table that has changed, by its size and its
modification time, has other files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.atomic_io import replace_file
from dml.core.locks import wait_for_lock
from dml.core.progress import show_progress
from dml.core.regular_files import open_regular
from dml.core.signals import raise_on_signals

IMAGE = "image"  # column of a table
ROWS = 100  # read at once
SPARE = 1.5  # times the bytes of the images that must be free on the disk


def unpacked_path(table: Path, status: os.stat_result) -> Path:
    """Returns where the images of a table are, or would be."""
    state = f"{status.st_size} {status.st_mtime_ns}".encode()
    name = _hash(os.fsencode(table.name))
    return table.parent / ".cache" / f"unpacked-{name}-{_hash(state)}.bytes"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def count_bytes(table: Path) -> int:
    """Returns the bytes of the column of images, decoded.

    Raises:
        OSError, ValueError: the table is missing or damaged.
    """
    from pyarrow import parquet

    metadata = parquet.read_metadata(table)
    total = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for position in range(group.num_columns):
            column = group.column(position)
            if column.path_in_schema.partition(".")[0] == IMAGE:
                total += column.total_uncompressed_size
    return total


def unpack_table(table: Path) -> bool:
    """Writes the images of a table into a file, unless that is there.

    Several processes write it once, and a table whose file was begun is unpacked anew.

    Returns:
        Whether the file is there; False: it cannot be written, or the disk has too little space.

    Raises:
        OSError, ValueError: the table is missing or damaged.
        KeyboardInterrupt, RunStopped: at a signal; no file is left.
    """
    path = unpacked_path(table, table.stat())
    if path.with_suffix(".npy").is_file():
        return True
    needed = count_bytes(table)
    try:
        path.parent.mkdir(exist_ok=True)
        if shutil.disk_usage(path.parent).free < SPARE * needed:
            return False
        with raise_on_signals(), wait_for_lock(path.with_suffix(".lock"), f"writing {path}"):
            if not path.with_suffix(".npy").is_file():
                _write(table, path)
    except OSError:
        return False
    return True


def _write(table: Path, path: Path) -> None:
    prefix = "-".join(path.name.split("-")[:2])
    for leftover in [*path.parent.glob(f"{prefix}-*"), *path.parent.glob(f".{prefix}-*.partial")]:
        if leftover.suffix != ".lock":  # of the table as it was, or of a killed process
            leftover.unlink()
    from pyarrow import parquet

    with parquet.ParquetFile(table, memory_map=True) as opened:
        ends = []
        batches = opened.iter_batches(ROWS, columns=[IMAGE], use_threads=False)
        total = -(-opened.metadata.num_rows // ROWS)
        with replace_file(path) as temporary, open(temporary, "wb") as file:
            for batch in show_progress(batches, f"unpacking {table.name}", total):
                for value in batch.column(0).to_pylist():
                    file.write(bytes_of(value) or b"")
                    ends.append(file.tell())
    with replace_file(path.with_suffix(".npy")) as temporary, open(temporary, "wb") as file:
        np.save(file, np.array(ends, np.int64))


def bytes_of(value: Any) -> bytes | None:
    """Returns the bytes of a value of the column: a struct with `bytes`, or the bytes; or None."""
    data = value.get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else None


def read_unpacked(path: Path, row: int) -> bytes | None:
    """Returns the bytes of an image, empty if it has none; None: the table is not unpacked.

    Raises:
        OSError: the file is damaged, or has no such row.
    """
    ends = None
    with suppress(FileNotFoundError):
        ends = _read_ends(path.with_suffix(".npy"))
    if ends is None:
        return None
    if row >= len(ends):
        raise OSError(0, f"it has no row {row:,}")
    start, end = int(ends[row - 1]) if row else 0, int(ends[row])
    with open_regular(path) as file:
        file.seek(start)
        data = file.read(end - start)
    if len(data) < end - start:
        raise OSError(0, f"{path} is damaged; delete it, it will be written again")
    return data


@lru_cache(maxsize=1024)
def _read_ends(path: Path) -> np.ndarray:
    """Returns the ends of the images in a file, mapped: all loading processes share them."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise OSError(0, f"{path} is damaged; delete it, it will be written again") from error
