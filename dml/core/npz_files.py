"""Arrays of `.npz` files, read without loading the file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dml.core.regular_files import open_regular


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
            raise ValueError(f"{name} holds Python objects, which are not read from files")
        start = info.header_offset + 30 + member.tell()
    file.seek(info.header_offset + 26)  # the lengths of two fields of the local header
    start += int(np.frombuffer(file.read(4), "<u2").sum())
    return np.memmap(file, dtype, "c", start, shape, "F" if fortran else "C")
