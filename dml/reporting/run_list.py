"""The run folders below a folder: state, score and age of each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.runs.folder.run_folder import RunFolder

SCORE = "map_at_r"  # the score that every run has
UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


@dataclass(frozen=True)
class ListedRun:
    """One run folder.

    Attributes:
        folder: its path.
        state: `finished`, `unfinished` or `damaged`.
        score: mean MAP@R on the test images, 0–1; None if it is not known.
        age: seconds since the run wrote a file.
        problem: of a damaged folder, one line.
    """

    folder: Path
    state: str
    score: float | None
    age: float
    problem: str = ""


def list_runs(root: Path) -> list[ListedRun]:
    """Returns the runs in `root/<experiment>/<name>/<run>`, the newest first.

    Raises:
        UserError: there is no such folder.
    """
    if not root.is_dir():
        raise UserError(
            f"runs: there is no folder {root}; {shell_command('train')} writes to outputs/"
        )
    folders = (path for path in root.glob("*/*/*") if path.is_dir())
    runs = [read_state(folder) for folder in folders if _is_run(RunFolder(folder))]
    return sorted(runs, key=lambda run: run.age)


def _is_run(folder: RunFolder) -> bool:
    return folder.config.exists() or folder.summary.exists()


def read_state(path: Path) -> ListedRun:
    """Returns the state of one run folder."""
    folder = RunFolder(path)
    written = [file.stat().st_mtime for file in path.iterdir() if file.is_file()]
    age = max(0.0, time.time() - max(written, default=path.stat().st_mtime))
    try:
        summary = folder.read_summary()
        if summary is None:
            return ListedRun(path, "unfinished", None, age)
        return ListedRun(path, "finished", float(summary["metrics"][SCORE]["mean"]), age)
    except UserError as error:
        return ListedRun(path, "damaged", None, age, first_line(error))
    except (KeyError, TypeError, ValueError):
        return ListedRun(path, "damaged", None, age, f"{folder.summary} has no {SCORE}")


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit: `3 d`, `2 h`, `5 min` or `0 s`."""
    for unit, length in UNITS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "0 s"
