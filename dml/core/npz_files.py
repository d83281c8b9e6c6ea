"""Arrays of `.npz` files, read without loading the file, and never more than the file holds."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from dml.core.regular_files import open_regular

# A small file may unpack to more than the memory: deflate reaches 1 in 1,032. Compressed files of
# embeddings reach 1 in 2, constant ones more, so only large arrays are asked for their ratio.
LARGEST_RATIO = 200
SMALL_BYTES = 1 << 28
HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_sizes(path: Path, names: Sequence[str]) -> None:
    """Compares the headers of arrays with the bytes that the file holds, before any is read.

    Args:
        path: the `.npz` file.
        names: of arrays; those that the file lacks are left out.

    Raises:
        ValueError: an array is announced that the file does not hold, or that is compressed more
            than 200 times.
        OSError, zipfile.BadZipFile: the file cannot be read.
    """
    with open_regular(path) as opened, zipfile.ZipFile(opened) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name in names:
            info = members.get(f"{name}.npy")
            if info is None:
                continue
            with archive.open(info) as member:
                _check_size(name, info, member, path.stat().st_size)


def _check_size(name: str, info: zipfile.ZipInfo, member: IO[bytes], size: int) -> None:
    version = np.lib.format.read_magic(member)
    if version not in HEADERS:
        return  # of structured types, which are refused later
    shape, _, dtype = HEADERS[version](member)
    if dtype.hasobject:
        return  # no size in the header; never unpickled
    announced = math.prod(shape) * dtype.itemsize
    held = info.file_size - member.tell()
    is_stored = info.compress_type == zipfile.ZIP_STORED
    if announced > held or (is_stored and info.file_size > size):
        raise ValueError(
            f"{name}: its header announces {announced:,} bytes, the file holds {held:,}; it is "
            f"damaged"
        )
    ratio = info.file_size / max(1, info.compress_size)
    if info.file_size > SMALL_BYTES and ratio > LARGEST_RATIO:
        raise ValueError(
            f"{name}: {info.compress_size:,} bytes would unpack to {info.file_size:,}; write the "
            f"file by numpy.savez, without compression"
        )


def map_array(path: Path, name: str) -> np.ndarray:
    """Returns an array of an `.npz` file, memory-mapped unless it is compressed.

    Raises:
        ValueError: it holds Python objects: a number of the file would be used as an address.
    """
    with open_regular(path) as file:
        return _map_array(file, name)


def _map_array(file: BinaryIO, name: str) -> np.ndarray:
    with zipfile.ZipFile(file) as archive, archive.open(f"{name}.npy") as member:
        info, version = archive.getinfo(f"{name}.npy"), np.lib.format.read_magic(member)
        if info.compress_type != zipfile.ZIP_STORED or version != (1, 0):
            file.seek(0)
            return np.load(file, allow_pickle=False)[name]
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.hasobject:
            raise ValueError(
                f"{name} holds Python objects, which are not read from files; store it as "
                f"numpy.array({name}, dtype='float32')"
            )
        start = info.header_offset + 30 + member.tell()
    file.seek(info.header_offset + 26)  # the lengths of two fields of the local header
    start += int(np.frombuffer(file.read(4), "<u2").sum())
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)  # nothing to map
    return np.memmap(file, dtype, "c", start, shape, "F" if fortran else "C")
