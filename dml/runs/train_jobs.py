"""The training of all models of a run, by any number of processes.

A process claims one model at a time by the lock of its folder, which the system frees if the
process dies. One process holds the lock of the run and calls `train_jobs`; others call `assist`:
those of `protocol.workers`, and the same command started again, also on another machine with the
same folder. Their rows are in a history of each model until the first process takes them over. The
results are those of a single process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from dml.core.locks import Busy, try_lock
from dml.runs.figures.run_figures import draw_test_images
from dml.runs.folder.run_folder import RUN_LOCK, RunFolder
from dml.runs.job import JobRun, Result, RunContext, read_result, translate_resource_errors
from dml.runs.protocol import Job
from dml.runs.workers import POLL_SECONDS, Stop, start_workers
from dml.tracking import History, Tracker

HISTORY = "history.csv"  # of one model
Models = dict[tuple[int, int], JobRun]  # by repeat and fold


def train_jobs(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    tracker: Tracker,
    stop: Stop,
    *,
    built: Models | None = None,
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
        built: models that are built already, by repeat and fold; those that are trained are taken.
        test: whether the test images are scored; a search must not use them.
        on_result: receives every result, in order, once it is known.

    Raises:
        RunStopped: `stop` asked for it; the same call continues.
        UserError: see `JobRun.run`.
    """
    world = context.world
    history = world.run_on_main(lambda: History(folder.history)) or History(None)
    training = _Training(context, jobs, folder, history, tracker, test, built or {})
    pending, results = [job for job in jobs if training.read(job) is None], list[Result]()
    count = max(min(context.config.protocol.workers, len(pending)) - 1, 0)
    with start_workers(context, folder.path, count, partial(assist, folder=folder), stop) as watch:
        while len(results) < len(jobs):
            world.run_on_main(training.collect)
            result = training.read(jobs[len(results)])
            if result is not None:
                results.append(result)
                tracker.job_done(result)
                on_result(result)
            elif not training.train_next(watch):
                wait(watch)
    world.run_on_main(training.collect)
    history.sort()  # jobs in parallel, or stopped and continued in turn, wrote in another order
    return results


def assist(context: RunContext, stop: Stop, folder: RunFolder) -> None:
    """Trains models of the run that another process keeps, until others have all of them.

    Raises:
        RunStopped: `stop` asked for it.
        UserError: see `JobRun.run`.
    """
    training = _Training(context, context.jobs(), folder, None, Tracker(), True, {})
    while training.train_next(stop):
        pass


def wait(stop: Stop) -> None:
    """Waits a moment for other processes.

    Raises:
        RunStopped: `stop` asked for it.
    """
    time.sleep(POLL_SECONDS)
    if (request := stop()) is not None:
        raise request


@dataclass
class _Training:
    """The models of a run, of which this process trains some.

    Attributes:
        history: of the run; None in a process that assists.
        built: see `train_jobs`, as are the other attributes.
    """

    context: RunContext
    jobs: Sequence[Job]
    folder: RunFolder
    history: History | None
    tracker: Tracker
    test: bool
    built: Models

    def read(self, job: Job) -> Result | None:
        """Returns the result of a model; None if it is not finished."""
        folder = self.folder.job(job.name)
        return self.context.world.broadcast_from_main(lambda: read_result(folder))

    def train_next(self, stop: Stop) -> bool:
        """Trains the first model that no process has finished or claimed; False if there is none.

        The first model of a run draws the test images.
        """
        world = self.context.world
        for job in self.jobs:
            place = self.folder.job(job.name)
            with ExitStack() as claim:
                if world.size == 1:  # processes that share each batch need no help
                    try:
                        claim.enter_context(try_lock(place / RUN_LOCK))
                    except Busy:
                        continue
                if self.read(job) is not None:
                    continue
                history = self.history or History(place / HISTORY)
                if self.history is not None:
                    world.run_on_main(partial(self._take_rows, job, last=True))
                elif not history.rows:
                    history.adopt(History(self.folder.history), job.key)
                draws = self.test and job.key == (0, 0) and len(job.test.query) > 0
                draw = partial(draw_test_images, folder=self.folder.figures) if draws else None
                with translate_resource_errors():
                    # No variable for a model: it is freed before the next one is built.
                    (self.built.pop(job.key, None) or JobRun(self.context, job, place)).run(
                        history, self.tracker, stop, self.test, draw
                    )
            return True
        return False

    def collect(self) -> None:
        """Copies the rows that other processes have written to the history and the tracker."""
        for job in self.jobs:
            self._take_rows(job, last=read_result(self.folder.job(job.name)) is not None)

    def _take_rows(self, job: Job, last: bool) -> None:
        """Copies the rows of a model; moves them if they are the last ones of their process."""
        rows, history = History(self.folder.job(job.name) / HISTORY), self.history
        assert history is not None
        known = history.job_rows(*job.key)
        if rows.rows and (new := rows.job_rows(*job.key)) != known:
            history.adopt(rows, job.key)
            steps = {row["step"] for row in known}
            for row in new:
                if (step := row.pop("step")) not in steps:
                    self.tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
        if last:
            rows.path.unlink(missing_ok=True)
