"""Names that become the name of a file or folder."""

from __future__ import annotations

import re
from pathlib import Path

from dml.core.errors import UserError

LONGEST = 128  # characters; file systems take 255 bytes with endings
RULE = f"letters, digits and . _ - + = only, a letter or digit first, at most {LONGEST} characters"


def is_name(text: str) -> bool:
    """Returns whether a text may be the name of a file or folder: never a path."""
    return len(text) <= LONGEST and re.fullmatch(r"\w[\w.+=,@-]*", text) is not None


def check_name(text: str, option: str) -> str:
    """Returns a name.

    Raises:
        UserError: it is none (`is_name`).
    """
    if not is_name(text):
        raise UserError(f"{option}: {text!r} becomes the name of a file: {RULE}")
    return text


def named_folder(path: str | Path) -> Path:
    """Returns a path that ends in the folder's name: that of `.` and `..` from the root."""
    path = Path(path)
    return path if path.name not in ("", "..") else path.resolve()
