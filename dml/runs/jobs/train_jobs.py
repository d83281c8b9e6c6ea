"""The training of all models of a run, or of a trial of a search, that are not finished yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dml.core.errors import RunStopped
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_history import move_job_rows
from dml.runs.jobs.job_list import Job
from dml.runs.jobs.job_result import read_result
from dml.runs.jobs.parallel_jobs import train_in_parallel
from dml.tracking import History, Tracker
from dml.training.process_group import ProcessGroup

Result = dict[str, Any]


def train_jobs(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    tracker: Tracker,
    stop: Callable[[], RunStopped | None],
    *,
    test: bool = True,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Trains the jobs that have no result yet; returns the results of all, in order.

    Args:
        context: config, data, device.
        jobs: the models.
        folder: of their checkpoints and history.
        tracker: receives the rows of the history and the results.
        stop: called after every step.
        test: whether the test images are scored; a search must not use them.
        on_result: receives every result once it is known.

    Raises:
        RunStopped: `stop` asked for it; the same call continues.
        UserError: see `JobRun.run`.
    """
    world = context.world
    history = world.run_on_main(lambda: _open_history(jobs, folder, tracker)) or History(None)
    open_jobs = [job for job in jobs if _read_result(world, job, folder) is None]
    if context.config.protocol.workers > 1 and len(open_jobs) > 1:
        train_in_parallel(context, open_jobs, folder, history, tracker, stop, test)
    results = []
    for job in jobs:
        result = _read_result(world, job, folder)
        if result is None:
            result = JobRun(context, job, folder.job(job.name)).run(history, tracker, stop, test)
        results.append(result)
        tracker.job_done(result)
        on_result(result)
    history.sort()  # jobs in parallel, or stopped and continued in turn, wrote in another order
    return results


def _read_result(world: ProcessGroup, job: Job, folder: RunFolder) -> Result | None:
    return world.broadcast_from_main(lambda: read_result(folder.job(job.name)))


def _open_history(jobs: Sequence[Job], folder: RunFolder, tracker: Tracker) -> History:
    """The run's history, with the rows of processes of single jobs that were stopped."""
    history = History(folder.history)
    for job in jobs:
        move_job_rows(history, job, folder, tracker)
    return history
