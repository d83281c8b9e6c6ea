"""Unpacking of untrusted archives: only regular files and folders, only below the target."""

from __future__ import annotations

import shutil
import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from dml.core.errors import UserError, first_line
from dml.core.progress import open_display


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a tar or zip archive into `folder`; copies a `.mat`, `.txt` or `.csv` file unchanged.

    Raises:
        UserError: the archive is damaged or encrypted, or contains a link, a device, or a path that
            is invalid or outside of the folder. Files unpacked so far are kept; the caller deletes
            the folder.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if archive.suffix in (".mat", ".txt", ".csv"):
        shutil.copyfile(archive, folder / archive.name)
        return
    unpack_format = _unpack_zip if zipfile.is_zipfile(archive) else _unpack_tar
    try:
        with (
            open_display() as line,
            line.open(archive, "rb", description=f"unpacking {archive.name}") as stream,
        ):
            unpack_format(stream, folder)
    except Exception as error:  # of many classes, down to struct.error and OverflowError
        if getattr(error, "errno", None):  # of the disk; errors of a decompressor have none
            raise
        problem = f"is damaged ({first_line(error)})"
        if isinstance(error, UserError):
            problem = str(error)
        raise UserError(f"{archive} {problem}; download the file again") from error


def _unpack_tar(stream: IO[bytes], folder: Path) -> None:
    with tarfile.open(fileobj=stream) as tar:
        for member in tar:
            _check_member(member.name, member.isreg() or member.isdir())
            tar.extract(member, folder, filter="data")
        # Compressed streams end with their checksum, which tarfile does not read.
        while tar.fileobj is not None and tar.fileobj.read(1 << 20):
            pass


def _unpack_zip(stream: IO[bytes], folder: Path) -> None:
    with zipfile.ZipFile(stream) as packed:
        for member in packed.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
            packed.extract(member, folder)


def _check_member(name: str, is_regular: bool) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise UserError(f"is refused: {name!r} leads out of the folder it is unpacked to")
    if not is_regular:
        raise UserError(f"is refused: {name!r} is a link or a device")
