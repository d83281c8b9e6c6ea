"""Files that a command writes where its user says: what may be replaced there.

An existing file is replaced only if it is of the same kind and origin, which its content says: a
command and what it was made of, such as `search photos.npz`. Pictures have the origin in a text
chunk, pages and tables in a line of their own.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from dml.core.errors import UserError
from dml.core.regular_files import check_possible, open_regular

SOFTWARE = "dml"  # in the chunk `Software` of our pictures
PNG_START = b"\x89PNG\r\n\x1a\n"
BEGINNING = 4096  # bytes of a page in which its mark stands
CHUNKS = 64  # of a picture that are searched for its mark; matplotlib writes it first
CHUNK_BYTES = 4096  # longest one that is read

IsOurs = Callable[[Path], bool]


def folder_problem(path: str | Path) -> str:
    """Returns why a path cannot be a folder that exists or is made; empty if it can be one."""
    try:
        check_possible(path)
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if is_folder else f"{path} is not a folder"


def check_output(
    path: str | Path,
    option: str,
    suffixes: tuple[str, ...],
    is_ours: IsOurs,
    overwrite: bool = False,
    *,
    hint: str = "--overwrite",
) -> Path:
    """Returns the path of an output if it may be written.

    Args:
        path: of the file.
        option: that names it, for messages.
        suffixes: of its kind; none: any.
        is_ours: whether an existing file is of the same kind and origin; it may raise an exception
            for files of others.
        overwrite: any existing file is replaced.
        hint: the option that sets `overwrite`; empty: there is none.

    Raises:
        UserError: another suffix; a folder, pipe or device; a file of others.
        OSError: no file can have such a name.
    """
    path = Path(path)
    check_possible(path)
    if suffixes and path.suffix.lower() not in suffixes:
        names = " or ".join(suffixes)
        raise UserError(f"{option}: {str(path)!r} must be a file that ends in {names}")
    if _is_new(path, option) or overwrite or _asks(is_ours, path):
        return path
    advice = f", or add {hint}" if hint else ", or move the file away"
    raise UserError(
        f"{option}: {path} exists, and this command did not write it from the same source; "
        f"choose another name{advice}"
    )


def _is_new(path: Path, option: str) -> bool:
    """Returns whether there is no file of this name, nor anything else.

    Raises:
        UserError: there is something else, or a link to a missing file.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.islink(path):
            raise UserError(f"{option}: {path} is a link to a missing file; remove it") from None
        return True
    except NotADirectoryError:  # which writing reports
        return True
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "pipe or device"
        raise UserError(f"{option}: {path} is a {kind}; give the name of a file")
    return False


def _asks(is_ours: IsOurs, path: Path) -> bool:
    try:
        return is_ours(path)
    except Exception:  # of many classes, for bytes of any kind
        return False


def check_not_input(path: Path, option: str, *inputs: str | Path) -> None:
    """Checks that an output is none of the files that the command reads.

    Raises:
        UserError: it is.
    """
    for source in inputs:
        if os.path.exists(source) and os.path.exists(path) and os.path.samefile(source, path):
            raise UserError(f"{option}: {path} is read by this command; choose another name")


def picture_metadata(origin: str) -> dict[str, str]:
    """Returns the text chunks of a PNG of ours, for `Figure.savefig(metadata=…)`."""
    latin = origin.encode("ascii", "backslashreplace").decode()
    return {"Software": SOFTWARE, "Source": latin}


def is_picture_of(origin: str) -> IsOurs:
    """Returns whether a file is a PNG of an origin (`picture_metadata`)."""
    expected = picture_metadata(origin)
    return lambda path: expected.items() <= _read_chunks(path).items()


def _read_chunks(path: Path) -> dict[str, str]:
    """Returns the first text chunks of a PNG; none of another file."""
    texts: dict[str, str] = {}
    with open_regular(path) as file:
        if file.read(len(PNG_START)) != PNG_START:
            return texts
        for _ in range(CHUNKS):
            head = file.read(8)
            if len(head) < 8:
                break
            length, kind = struct.unpack(">I4s", head)
            if kind != b"tEXt" or length > CHUNK_BYTES:
                file.seek(length + 4, os.SEEK_CUR)
                continue
            key, _, value = file.read(length).partition(b"\0")
            texts[key.decode("latin-1")] = value.decode("latin-1")
            file.seek(4, os.SEEK_CUR)  # the checksum
    return texts


def text_mark(origin: str) -> str:
    """Returns the line that marks a page (HTML or Markdown) of an origin."""
    without_end = re.sub("-(?=-)", "- ", origin)  # two hyphens could end the comment
    return f"<!-- written by dml: {without_end} -->"


def begins_with(*lines: str) -> IsOurs:
    """Returns whether a file begins with one of some lines.

    They are the mark of a page, or the columns of a table.
    """
    longest = max(len(line.encode()) for line in lines)

    def is_ours(path: Path) -> bool:
        with open_regular(path) as file:
            beginning = file.read(max(BEGINNING, longest + 2))
        first, _, _ = beginning.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n")
        return first in lines

    return is_ours


def has_mark(origin: str) -> IsOurs:
    """Returns whether the mark of an origin (`text_mark`) stands at the beginning of a page."""

    def is_ours(path: Path) -> bool:
        with open_regular(path) as file:
            return text_mark(origin).encode() in file.read(BEGINNING)

    return is_ours
