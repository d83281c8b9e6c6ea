"""All models of a run, or of one trial of a search: those that are not finished yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dml.core.errors import RunStopped
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_result import read_result
from dml.runs.jobs.job_tables import adopt_rows
from dml.runs.jobs.parallel_jobs import train_in_parallel
from dml.runs.protocols import Job
from dml.tracking import RunTables, Tracker
from dml.training.process_group import World

Result = dict[str, Any]


def train_all(
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
        jobs: what to train.
        folder: where their checkpoints and tables go.
        tracker: gets the rows of the history too, and the results.
        stop: asked after every step.
        test: whether the test images are scored; a search must not look at them.
        on_result: told of every result as it comes.

    Raises:
        RunStopped: asked for; the same call continues.
        UserError: see `JobRun.run`.
    """
    world = context.world
    records = world.main_only(lambda: _records(jobs, folder, tracker)) or RunTables.null()
    open_jobs = [job for job in jobs if _result(world, job, folder) is None]
    if context.config.protocol.workers > 1 and len(open_jobs) > 1:
        train_in_parallel(context, open_jobs, folder, records, tracker, stop, test)
    results = []
    for job in jobs:
        result = _result(world, job, folder)
        if result is None:
            result = JobRun(context, job, folder.job(job.name)).run(records, tracker, stop, test)
        results.append(result)
        tracker.job_done(result)
        on_result(result)
    records.sort()  # models side by side, stopped and continued in turn, wrote in another order
    return results


def _result(world: World, job: Job, folder: RunFolder) -> Result | None:
    return world.on_main(lambda: read_result(folder.job(job.name)))


def _records(jobs: Sequence[Job], folder: RunFolder, tracker: Tracker) -> RunTables:
    """The run's tables, with what processes of single jobs left behind if they were stopped."""
    records = RunTables.open(folder.path)
    for job in jobs:
        adopt_rows(records, job, folder, tracker)
    return records
