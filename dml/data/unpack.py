"""Unpacking of untrusted archives: only regular files and folders, only below the target."""

from __future__ import annotations

import errno
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from dml.core.errors import UserError, first_line
from dml.core.progress import open_display


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a tar or zip archive into `folder`; copies any other file unchanged.

    Raises:
        UserError: the archive is damaged or encrypted, or contains a link, a device, or a path that
            is invalid or outside of the folder. Files unpacked so far are kept; the caller deletes
            the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        kinds = ((zipfile.is_zipfile, _unpack_zip), (tarfile.is_tarfile, _unpack_tar))
        unpack_format = next((unpacker for fits, unpacker in kinds if fits(archive)), None)
        if unpack_format is not None:
            with (
                open_display() as line,
                line.open(archive, "rb", description=f"unpacking {archive.name}") as stream,
            ):
                unpack_format(stream, folder, archive)
        elif archive.suffix in (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz"):
            raise UserError(f"{archive}: this is not an archive; download the file again")
        else:
            shutil.copyfile(archive, folder / archive.name)
    except UserError:
        raise
    except OSError as error:  # of a decompressor, or of a file and a folder of the same name
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        raise _damaged(archive, error) from error
    except Exception as error:  # of many classes, down to struct.error and OverflowError
        raise _damaged(archive, error) from error


def _damaged(archive: Path, error: Exception) -> UserError:
    return UserError(f"{archive} is damaged ({first_line(error)}); download the file again")


def _unpack_tar(stream: IO[bytes], folder: Path, archive: Path) -> None:
    with tarfile.open(fileobj=stream) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise _refused(archive, member.name, "is a link or a device")
            _check_name(archive, member.name)
            tar.extract(member, folder, filter="data")
        # Compressed streams end with their checksum, which tarfile does not read.
        while tar.fileobj is not None and tar.fileobj.read(1 << 20):
            pass


def _unpack_zip(stream: IO[bytes], folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(stream) as packed:
        for member in packed.infolist():
            if member.flag_bits & 1:
                raise UserError(
                    f"{archive} is encrypted; unpack it and pack it again without encryption"
                )
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(archive, member.filename, "is a link or a device")
            _check_name(archive, member.filename)
            packed.extract(member, folder)


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise _refused(archive, name, "leads out of the folder it is unpacked to")


def _refused(archive: Path, name: str, reason: str) -> UserError:
    return UserError(f"{archive}: refused, {name!r} {reason}")
