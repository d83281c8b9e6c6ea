"""Tables written by the process of one model, and their transfer into the run's tables."""

from __future__ import annotations

from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import Job
from dml.tracking import RunTables, Tracker


def open_job_tables(folder: RunFolder, job: Job) -> RunTables:
    """The tables of a process that trains one job alone, beside its checkpoints."""
    return RunTables.open(folder.job(job.name))


def move_job_rows(tables: RunTables, job: Job, folder: RunFolder, tracker: Tracker) -> None:
    """Moves the rows that a process wrote for a job into the run's tables.

    The process started with the rows of the run; the tracker receives only the others.
    """
    job_tables = open_job_tables(folder, job)
    if not job_tables.history.path.exists():
        return
    logged = {row["step"] for row in tables.history.job_rows(*job.key)}
    tables.adopt(job_tables, job.key)
    for row in tables.history.job_rows(*job.key):
        if row["step"] not in logged:
            log_row(row, job, tracker)
    job_tables.remove()


def log_row(row: dict[str, float], job: Job, tracker: Tracker) -> None:
    """Sends a row of a job's history to the tracker."""
    step = row.pop("step")
    tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
