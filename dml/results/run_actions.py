"""Removal of run folders, and of files that no finished run needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dml.core.errors import UserError
from dml.runs.folder.run_folder import RUN_LOCK, SEARCH_LOCK, RunFolder
from dml.runs.folder.stored_run import State, StoredRun

AT_WORK = (State.RUNNING, State.SEARCHING)


@dataclass(frozen=True)
class Removal:
    """A file or folder to remove.

    Attributes:
        path: of the file or folder.
        run: folder of the run that it belongs to.
        reason: a few words.
        size: bytes.
    """

    path: Path
    run: Path
    reason: str
    size: int


def plan_removal(runs: Iterable[StoredRun]) -> list[Removal]:
    """Returns the folders of whole runs.

    Raises:
        UserError: a process is at work in one of them.
    """
    removals = []
    for run in runs:
        if run.state in AT_WORK:
            raise UserError(f"rm: {run.id} is {run.state}; stop it first (Ctrl-C in its terminal)")
        removals.append(Removal(run.folder, run.folder, f"{run.state} run", run.size))
    return removals


def plan_cleaning(runs: Iterable[StoredRun]) -> list[Removal]:
    """Returns what no run needs any more.

    These are set-ups without an evaluation, `previous.pt` and the trials of finished runs, and
    files that a killed process left half-written. Runs at work are left alone.
    """
    removals: list[Removal] = []
    for run in runs:
        if run.state in AT_WORK:
            continue
        if run.state == State.EMPTY:
            removals.append(Removal(run.folder, run.folder, "set-up without results", run.size))
            continue
        found = [(path, "half-written") for path in run.folder.rglob(".*.partial")]
        if run.state == State.FINISHED:
            former = run.folder.glob("checkpoints/*/previous.pt")
            found += [(path, "former checkpoint") for path in former]
            trials = RunFolder(run.folder).trials
            found += [(trials, "trials of a finished search")] if trials.is_dir() else []
        for path, reason in found:
            files = path.rglob("*") if path.is_dir() else [path]
            size = sum(file.lstat().st_size for file in files if file.is_file())
            removals.append(Removal(path, run.folder, reason, size))
    return removals


def remove(removals: Iterable[Removal]) -> Iterator[Path]:
    """Removes files and folders, and yields each; empty parents of run folders go with them.

    Raises:
        Busy: a process has started in a run folder meanwhile.
        OSError: something cannot be removed.
    """
    for one in removals:
        folder = RunFolder(one.run)
        with folder.locked(RUN_LOCK), folder.locked(SEARCH_LOCK):
            if one.path.is_dir():
                shutil.rmtree(one.path)
            else:
                one.path.unlink(missing_ok=True)
        if one.path == one.run and not any(one.run.parent.iterdir()):
            one.run.parent.rmdir()
        yield one.path
