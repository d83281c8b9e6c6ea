"""Formats of files that are given in place of a folder, a table or an `.npz` file."""

from __future__ import annotations

import zipfile
from pathlib import Path

from dml.core.regular_files import open_regular

ARCHIVES = {
    b"PK\x03\x04": "a ZIP archive",
    b"PK\x05\x06": "an empty ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
}
TABLES = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"PAR1": "a Parquet file",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"MATLAB 5.0": "a MATLAB file",
    b"SQLite format 3": "an SQLite database",
    b"ARROW1": "an Arrow file",
    b"\x80": "a pickle",
}
TAR_START = 257  # where the header of a tar archive names its format


def find_archive(path: Path) -> str:
    """Returns `a ZIP archive` and the like; empty if the file is none or cannot be read."""
    start = _read_start(path)
    if start[TAR_START:].startswith(b"ustar"):
        return "a tar archive"
    return _match(start, ARCHIVES)


def find_table(path: Path) -> str:
    """Returns `an HDF5 file` and the like; empty if the file is none or cannot be read."""
    return _match(_read_start(path), TABLES)


def describe_no_arrays(path: Path) -> str:
    """Returns `it is an HDF5 file` and the like of a file that is no `.npz`; empty if unknown.

    Also that an `.npz` file is cut off, of which NumPy says that it is no ZIP archive.
    """
    if _may_hold_arrays(path):
        return ""
    if _is_cut(path):
        return "it is cut off or damaged; copy it again, or make it again"
    kind = find_archive(path) or find_table(path)
    return f"it is {kind}" if kind else ""


def _may_hold_arrays(path: Path) -> bool:
    """Returns whether the file is a ZIP archive with arrays, or a damaged one."""
    try:
        with open_regular(path) as file:
            if not zipfile.is_zipfile(file):
                return False
            with zipfile.ZipFile(file) as archive:
                return any(name.endswith(".npy") for name in archive.namelist())
    except zipfile.BadZipFile:
        return True  # another reader says what is wrong
    except OSError:
        return False


def _is_cut(path: Path) -> bool:
    """Returns whether a file begins as a ZIP archive, whose end is missing."""
    return _read_start(path).startswith(b"PK") and not zipfile.is_zipfile(path)


def _match(start: bytes, formats: dict[bytes, str]) -> str:
    for signature, name in formats.items():
        if start.startswith(signature):
            return name
    return ""


def _read_start(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(TAR_START + 8)
    except OSError:
        return b""
