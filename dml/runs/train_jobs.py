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
from dataclasses import dataclass
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
    yield from _Process(context, folder, stop, tracker, {} if built is None else built).run()


@dataclass
class _Process:
    """The part of this process in the training of all models; see `train_jobs`."""

    context: RunContext
    folder: RunFolder
    stop: Stop
    tracker: Tracker | None
    built: Models

    def __post_init__(self) -> None:
        self.world = self.context.world
        stored = None
        if self.tracker is not None:
            stored = self.world.run_on_main(lambda: History(self.folder.history))
        self.history = History(None) if stored is None else stored

    def run(self) -> Iterator[Result]:
        """Trains models until there is none left; yields their results, in order."""
        jobs, finished = self.context.jobs, 0
        while finished < len(jobs):
            if self.tracker is not None:
                self._collect_rows()
                result = self._read(jobs[finished])
                if result is not None:
                    finished += 1
                    self.tracker.job_done(result)
                    yield result
                    continue
            if not self._train_next():
                if self.tracker is None:
                    return
                wait(self.stop)
        self._collect_rows()
        self.history.sort()  # jobs in parallel, or continued in turn, wrote in another order

    def _read(self, job: Job) -> Result | None:
        return self.world.broadcast_from_main(lambda: self.folder.read_result(job.name))

    def _collect_rows(self) -> None:
        """Takes the rows of other processes into the history of the run."""

        def collect(tracker: Tracker) -> None:
            for job in self.context.jobs:
                done = self.folder.read_result(job.name) is not None
                _take_rows(self.history, tracker, job, self.folder, last=done)

        if self.tracker is not None:
            self.world.run_on_main(partial(collect, self.tracker))

    def _train_next(self) -> bool:
        """Trains the next model that no other process trains; returns False if there is none."""
        with ExitStack() as claim:
            for job in unfinished_jobs(self.context, self.folder):
                if self._is_claimed(job, claim):
                    if self._read(job) is None:  # else another process has just finished it
                        self._train(job)
                    return True
        return False

    def _is_claimed(self, job: Job, claim: ExitStack) -> bool:
        if self.world.size > 1:  # processes that share each batch need no help
            return True
        with suppress(Busy):
            claim.enter_context(try_lock(self.folder.job(job.name) / RUN_LOCK))
            return True
        return False

    def _train(self, job: Job) -> None:
        place, rows = self.folder.job(job.name), self.history
        if self.tracker is not None:
            take = partial(_take_rows, self.history, self.tracker, job, self.folder, last=True)
            self.world.run_on_main(take)
        elif not (rows := History(place / HISTORY)).rows:
            rows.adopt(History(self.folder.history), job.key)
        draws = self.context.trial is None and job.key == (0, 0) and len(job.test.query) > 0
        draw = partial(draw_test_images, folder=self.folder.figures) if draws else None
        with translate_resource_errors():
            # No variable for a model: it is freed before the next one is built.
            (self.built.pop(job.key, None) or JobRun(self.context, job, place)).run(
                rows, self.tracker or Tracker(), self.stop, draw
            )


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
