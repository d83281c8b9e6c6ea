"""Unpacking of untrusted archives: only plain files and folders, only below the target."""

from __future__ import annotations

import errno
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from dml.core.errors import UserError, first_line
from dml.core.progress import show_transfer

# Errors of writing a file because of its name, or because a file has the name of a folder.
NAME_ERRORS = (errno.EISDIR, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG)


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a tar or zip archive into `folder`; any other file is copied there as it is.

    Raises:
        UserError: the archive is damaged or encrypted, or contains a link, a device, a path that
            leads out of the folder or an impossible one. What was unpacked before stays; the
            caller deletes the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder)
        elif tarfile.is_tarfile(archive):
            _unpack_tar(archive, folder)
        elif archive.suffix in (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz"):
            raise UserError(f"{archive}: this is not an archive; get the file again")
        else:
            shutil.copyfile(archive, folder / archive.name)
    except UserError:
        raise
    except OSError as error:
        if error.errno in NAME_ERRORS:
            reason = f"it contains an impossible file name ({error.strerror})"
            raise UserError(f"{archive}: refused, {reason}") from error
        if error.errno not in (
            None,
            errno.EINVAL,
        ):  # of decompressors, or a position before the start
            raise  # a full disk
        raise _damaged(archive, error) from error
    except Exception as error:  # of many classes, down to struct.error and OverflowError
        raise _damaged(archive, error) from error


def _damaged(archive: Path, error: Exception) -> UserError:
    return UserError(f"{archive} is damaged ({first_line(error)}); get the file again")


def _unpack_tar(archive: Path, folder: Path) -> None:
    with _open_with_progress(archive) as stream, tarfile.open(fileobj=stream) as tar:
        for member in tar:
            target = _below(folder, member.name, archive)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise UserError(f"{archive}: refused, {member.name!r} is a link or a device")
            _write(content, target)
        # Compressed streams end with their checksum, which tarfile does not read.
        while tar.fileobj is not None and tar.fileobj.read(1 << 20):
            pass


def _unpack_zip(archive: Path, folder: Path) -> None:
    with _open_with_progress(archive) as stream, zipfile.ZipFile(stream) as packed:
        for member in packed.infolist():
            target = _below(folder, member.filename, archive)
            mode = member.external_attr >> 16
            if member.flag_bits & 1:
                raise UserError(
                    f"{archive} is encrypted; unpack it and pack it again without encryption"
                )
            if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise UserError(f"{archive}: refused, {member.filename!r} is a link or a device")
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            with packed.open(member) as content:
                _write(content, target)


def _below(folder: Path, name: str, archive: Path) -> Path:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise UserError(f"{archive}: refused, {name!r} leads out of the folder it is unpacked to")
    return folder.joinpath(*path.parts)


def _write(content: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


@contextmanager
def _open_with_progress(archive: Path) -> Iterator[IO[bytes]]:
    """Opens the archive as a stream whose position moves a progress bar."""
    total = archive.stat().st_size
    with show_transfer(f"unpacking {archive.name}") as report, open(archive, "rb") as file:
        read = file.read

        class ReportingFile:
            """The file, with a report after every read."""

            def read(self, size: int = -1) -> bytes:
                data = read(size)
                report(file.tell(), total)
                return data

            def __getattr__(self, name: str) -> object:
                return getattr(file, name)

        yield ReportingFile()  # type: ignore[misc]
