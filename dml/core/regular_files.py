"""Files that others may have made: only regular files, and links to them, are opened.

A named pipe would wait for a writer forever, and a device such as `/dev/zero` never ends.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

# Where a shell passes a pipe: `command </dev/stdin`, or `command <(other)` of bash.
TYPED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


class NotRegularFile(OSError):
    """A path names a folder, a pipe, a socket or a device where a file is expected."""

    def __init__(self, path: str | Path, mode: int) -> None:
        kind = KINDS.get(stat.S_IFMT(mode), "something else")
        super().__init__(errno.EINVAL, f"{kind}, not a regular file", str(path))

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type[OSError], tuple[object, ...]]:
        return OSError, (self.errno, self.strerror, self.filename)  # in another process


def check_possible(path: str | Path) -> None:
    """Checks that a file can have such a name, whether there is one or not.

    Raises:
        OSError: it holds a null character, or half a character of UTF-16.
    """
    try:
        possible = b"\0" not in os.fsencode(path)
    except ValueError:
        possible = False
    if not possible:
        raise OSError(errno.EINVAL, "no file can have such a name", str(path))


def check_regular(path: str | Path) -> None:
    """Checks that a path is a regular file, or a link to one.

    Raises:
        NotRegularFile: it is something else.
        OSError: there is no such file, or no file can have such a name.
    """
    check_possible(path)
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise NotRegularFile(path, mode)


def check_unlinked(path: str | Path) -> None:
    """Checks that a path is a regular file, no link to one, or that there is nothing.

    For files that are appended to: a link in a folder of somebody else would lead to any file.

    Raises:
        NotRegularFile: it is something else.
    """
    check_possible(path)
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise NotRegularFile(path, mode)


def open_regular(path: str | Path, *, typed: bool = False) -> BufferedReader:
    """Opens a regular file, or a link to one, for reading.

    Args:
        path: of the file.
        typed: the command line names the path: a pipe of the shell (`/dev/stdin`, `<(…)`) is
            opened too.

    Raises:
        NotRegularFile: it is something else.
        OSError: it cannot be opened.
    """
    if typed and is_shell_pipe(path):
        return open(path, "rb")
    check_regular(path)  # opening a device may already do something
    # Not blocking, if the file has become a pipe meanwhile; it changes nothing for regular files.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotRegularFile(path, mode)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_shell_pipe(path: str | Path) -> bool:
    """Returns whether a path is a pipe or terminal that the shell has passed to the command."""
    if not str(path).startswith(TYPED):
        return False
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISCHR(mode):
        with open(path, "rb") as file:
            return file.isatty()
    return stat.S_ISFIFO(mode)


def read_regular(path: str | Path, *, typed: bool = False) -> bytes:
    """Returns the bytes of a regular file; see `open_regular`."""
    with open_regular(path, typed=typed) as file:
        return file.read()


def read_regular_text(path: str | Path, *, typed: bool = False, encoding: str = "utf-8") -> str:
    """Returns the text of a regular file, with `\\n` at the ends of lines; see `open_regular`.

    Raises:
        UnicodeDecodeError: it is no text in this encoding.
        OSError: as `open_regular`.
    """
    text = read_regular(path, typed=typed).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")
