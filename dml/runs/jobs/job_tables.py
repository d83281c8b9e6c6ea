"""Tables written by the process of one model, and their transfer into the run's tables."""

from __future__ import annotations

from dml.runs.folder.run_folder import RunFolder
from dml.runs.protocols import Job
from dml.tracking import RunTables, Tracker


def adopt_rows(records: RunTables, job: Job, folder: RunFolder, tracker: Tracker) -> None:
    """Moves the rows that a process of its own wrote for a job into the run's tables.

    The process began with the rows that were there; the tracker is told of the others alone.
    """
    own = own_records(folder, job)
    if not own.history.path.exists():
        return
    told = {row["step"] for row in records.history.job_rows(job.repeat, job.fold)}
    records.adopt(own, (job.repeat, job.fold))
    for row in records.history.job_rows(job.repeat, job.fold):
        step = row.pop("step")
        if step not in told:
            tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
    own.remove()


def own_records(folder: RunFolder, job: Job) -> RunTables:
    """What a process that trains one job alone writes, beside the checkpoints."""
    return RunTables.open(folder.job(job.name))
