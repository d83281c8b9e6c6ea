"""Arrays of `.npz` files, read without loading the file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np


def map_array(path: Path, name: str) -> np.ndarray:
    """Returns an array of an `.npz` file, memory-mapped unless it is compressed.

    Raises:
        ValueError: it holds Python objects: a number of the file would be used as an address.
    """
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
        info, version = archive.getinfo(f"{name}.npy"), np.lib.format.read_magic(member)
        if info.compress_type != zipfile.ZIP_STORED or version != (1, 0):
            return np.load(path, allow_pickle=False)[name]
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, which are not read from files")
        start = info.header_offset + 30 + member.tell()
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)  # the lengths of two fields of the local header
        start += int(np.fromfile(file, "<u2", 2).sum())
    return np.memmap(path, dtype, "c", start, shape, "F" if fortran else "C")
