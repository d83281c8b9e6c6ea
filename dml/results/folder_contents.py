"""Size, progress and last error of a run folder, read from its files in any state."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any


def read_last_error(log: Path) -> str:
    """Returns the error of the last start in a log; empty if there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        _, marker, message = line.partition("] error: ")
        if marker:
            return message
        if "] command: " in line:
            break
    return ""


def read_progress(history: Path, selected_by: str) -> dict[str, Any]:
    """Returns `epoch` and the best `score` so far, from the complete rows of `history.csv`.

    Args:
        history: the file; without a row nothing is returned.
        selected_by: the metric, and words behind it.
    """
    try:
        text = history.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return {}
    metric = selected_by.partition(" ")[0]
    best: dict[tuple[str, str], float] = {}
    epoch = None
    for row in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()):
        job = (row["repeat"], row["fold"])
        epoch = float(row["epoch"])
        if row.get(metric):
            best[job] = max(best.get(job, 0.0), float(row[metric]))
    if epoch is None:
        return {}
    return {"epoch": epoch, "score": fmean(best.values()) if best else None}


def measure_folder(path: Path) -> tuple[int, float]:
    """Returns the bytes of all files, and the time of the last change of one."""
    size, written = 0, 0.0
    for entry in _walk(path):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:  # removed meanwhile
            continue
        size += status.st_size
        if not entry.name.endswith(".lock"):
            written = max(written, status.st_mtime)
    return size, written or path.stat().st_mtime


def _walk(path: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yields all files below a folder."""
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        else:
            yield entry
