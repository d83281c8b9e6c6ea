"""The history that the process of one model writes, and its transfer into that of the run."""

from __future__ import annotations

from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import Job
from dml.tracking import History, Tracker


def open_job_history(folder: RunFolder, job: Job) -> History:
    """The history of a process that trains one job alone, beside its checkpoints."""
    return History(folder.job(job.name) / "history.csv")


def move_job_rows(history: History, job: Job, folder: RunFolder, tracker: Tracker) -> None:
    """Moves the rows that a process wrote for a job into the run's history.

    The process started with the rows of the run; the tracker receives only the others.
    """
    job_history = open_job_history(folder, job)
    if not job_history.path.exists():
        return
    logged = {row["step"] for row in history.job_rows(*job.key)}
    history.adopt(job_history, job.key)
    for row in history.job_rows(*job.key):
        if row["step"] not in logged:
            log_row(row, job, tracker)
    job_history.path.unlink()


def log_row(row: dict[str, float], job: Job, tracker: Tracker) -> None:
    """Sends a row of a job's history to the tracker."""
    step = row.pop("step")
    tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
