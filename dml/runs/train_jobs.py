"""The training of all models of a run, by any number of processes.

A process claims one model at a time by the lock of its folder, which the system frees if the
process dies. The process that holds the lock of the run keeps its history. Others take part: those
of `protocol.workers`, and the same command started again, also on another machine with the same
folder. Their rows are in a history of each model until the first process takes them over. The
results are those of a single process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

from dml.core.locks import Busy, try_lock
from dml.data.protocol import Job
from dml.runs.figures.run_figures import draw_test_images
from dml.runs.folder.run_folder import RUN_LOCK, RunFolder
from dml.runs.job import JobRun, Result, RunContext, translate_resource_errors
from dml.runs.workers import Stop
from dml.tracking import History, Tracker

HISTORY = "history.csv"  # of one model
POLL_SECONDS = 1.0  # between two looks at the work of other processes
Models = dict[tuple[int, int], JobRun]  # by repeat and fold


def train_jobs(
    context: RunContext,
    folder: RunFolder,
    stop: Stop,
    tracker: Tracker | None = None,
    built: Models | None = None,
) -> Iterator[Result]:
    """Trains the models that have no result yet; yields the results of all, in order.

    Args:
        context: config, data, device.
        folder: of their checkpoints and history.
        stop: called after every step.
        tracker: receives the rows of the history and the results. None: this process does not keep
            the history of the run; it ends without results when no model is left to claim.
        built: models that are built already, by repeat and fold; those that are trained are taken.

    Raises:
        RunStopped: `stop` asked for it; the same call continues.
        UserError: see `JobRun.run`.
    """
    world, jobs, models, finished = context.world, context.jobs, built or {}, 0
    stored = world.run_on_main(lambda: History(folder.history)) if tracker else None
    history = stored or History(None)

    def read(job: Job) -> Result | None:
        return world.broadcast_from_main(lambda: folder.read_result(job.name))

    def is_claimed(job: Job, claim: ExitStack) -> bool:
        if world.size == 1:  # processes that share each batch need no help
            with suppress(Busy):
                claim.enter_context(try_lock(folder.job(job.name) / RUN_LOCK))
                return True
        return world.size > 1

    def collect(tracker: Tracker) -> None:
        for job in jobs:
            done = folder.read_result(job.name) is not None
            _take_rows(history, tracker, job, folder, last=done)

    while finished < len(jobs):
        if tracker is not None:
            world.run_on_main(partial(collect, tracker))
            if (result := read(jobs[finished])) is not None:
                finished += 1
                tracker.job_done(result)
                yield result
                continue
        with ExitStack() as claim:
            unfinished = unfinished_jobs(context, folder)
            if (job := next((job for job in unfinished if is_claimed(job, claim)), None)) is None:
                if tracker is None:
                    return
                wait(stop)
                continue
            if read(job) is not None:  # another process finished it between the two looks
                continue
            place, rows = folder.job(job.name), history
            if tracker is not None:
                world.run_on_main(partial(_take_rows, history, tracker, job, folder, last=True))
            elif not (rows := History(place / HISTORY)).rows:
                rows.adopt(History(folder.history), job.key)
            draws = context.trial is None and job.key == (0, 0) and len(job.test.query) > 0
            draw = partial(draw_test_images, folder=folder.figures) if draws else None
            with translate_resource_errors():
                # No variable for a model: it is freed before the next one is built.
                (models.pop(job.key, None) or JobRun(context, job, place)).run(
                    rows, tracker or Tracker(), stop, draw
                )
    if tracker is not None:
        world.run_on_main(partial(collect, tracker))
    history.sort()  # jobs in parallel, or stopped and continued in turn, wrote in another order


def unfinished_jobs(context: RunContext, folder: RunFolder) -> Iterator[Job]:
    """Yields the models that have no result."""
    for job in context.jobs:
        if context.world.broadcast_from_main(partial(folder.read_result, job.name)) is None:
            yield job


def wait(stop: Stop) -> None:
    """Waits a moment for other processes.

    Raises:
        RunStopped: `stop` asked for it.
    """
    time.sleep(POLL_SECONDS)
    if (request := stop()) is not None:
        raise request


def _take_rows(history: History, tracker: Tracker, job: Job, folder: RunFolder, last: bool) -> None:
    """Copies the rows that another process has written; moves them if they are the last ones."""
    rows = History(folder.job(job.name) / HISTORY)
    known = history.job_rows(*job.key)
    if rows.rows and (new := rows.job_rows(*job.key)) != known:
        history.adopt(rows, job.key)
        steps = {row["step"] for row in known}
        for row in new:
            if (step := row.pop("step")) not in steps:
                tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
    if last:
        rows.path.unlink(missing_ok=True)
