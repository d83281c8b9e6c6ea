"""Paths that do not exist: which part is missing, and what is called nearly the same."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

from dml.core.errors import nearest_name
from dml.core.plain_text import show_line

LISTED = 10_000  # names of a folder that are compared


def describe_missing(path: str | os.PathLike[str], advice: str = "") -> str:
    """Returns that a path does not exist, and what is called nearly the same.

    Args:
        path: which does not exist.
        advice: what to do if nothing has a similar name.

    Returns:
        Such as `fotos/a.png does not exist; did you mean 'photos/a.png'?`.
    """
    text = os.fspath(path)
    near = _find_near(text)
    if near:
        return f"{show_line(text)} does not exist{near}"
    if advice:
        advice = f"; {advice}"
    return f"{show_line(text)} does not exist{advice}"


def _find_near(path: str) -> str:
    """Returns `; did you mean 'photos'?` for a path with another first missing name; or nothing."""
    parent, name = os.path.split(os.path.normpath(path))
    rest: list[str] = []
    while name and not os.path.isdir(parent or os.curdir):
        rest.insert(0, name)
        parent, name = os.path.split(parent)
    if not name:
        return ""
    names: list[str] = []
    with suppress(OSError, ValueError), os.scandir(parent or os.curdir) as entries:
        for entry in islice(entries, LISTED):
            whole = os.path.join(parent, entry.name, *rest)
            if not entry.name.startswith(".") and os.path.exists(whole):
                names.append(entry.name)
    chosen = nearest_name(name, sorted(names))
    if not chosen:
        return ""
    return f"; did you mean '{show_line(os.path.join(parent, chosen, *rest))}'?"
