"""The training of all models of a run, by any number of processes.

A process claims one model at a time by the lock of its folder, which the system frees if the
process dies. The process that holds the lock of the run keeps its history. Others take part: those
of `protocol.workers`, and the same command started again, also on another machine with the same
folder. Their rows are in a history of each model until the first process takes them over. The
results are those of a single process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dml.core.errors import UserError
from dml.core.locks import Busy, HolderWait, try_lock
from dml.data.protocol import FOLDS, Job
from dml.runs.console import print_line
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import EMBEDDINGS, RUN_LOCK, RunFolder
from dml.runs.job import JobRun, Result
from dml.runs.resource_errors import translate_resource_errors
from dml.runs.workers import Stop
from dml.tracking import History, Tracker

HISTORY = "history.csv"  # of one model
REMEDY = "; a process of protocol.workers is ended after ten minutes, others train its model then"
POLL_SECONDS = 1.0  # between two looks at the work of other processes


def train_jobs(
    context: RunContext, folder: RunFolder, stop: Stop, tracker: Tracker | None = None
) -> Iterator[Result]:
    """Trains the models that have no result yet; yields the results of all, in order.

    Args:
        context: config, data, device.
        folder: of their checkpoints and history.
        stop: called after every step.
        tracker: receives the rows of the history and the results. None: this process does not keep
            the history of the run; it ends without results when no model is left to claim.

    Raises:
        RunStopped: `stop` asked for it; the same call continues.
        UserError: see `JobRun.run`.
    """
    yield from _Process(context, folder, stop, tracker).run()


@dataclass
class _Process:
    """The part of this process in the training of all models; see `train_jobs`."""

    context: RunContext
    folder: RunFolder
    stop: Stop
    tracker: Tracker | None
    _noted: set[str] = field(default_factory=set)  # names of models

    def __post_init__(self) -> None:
        self.world = self.context.world
        stored = None
        if self.tracker is not None:
            stored = self.world.run_on_main(lambda: History(self.folder.history))
        self.history = History(None) if stored is None else stored

    def run(self) -> Iterator[Result]:
        """Trains models until there is none left; yields their results, in order."""
        finished = 0
        others = HolderWait(REMEDY)
        while True:
            results = read_results(self.context, self.folder)
            self._note_lost(results[:finished])
            if self.tracker is not None:
                self._collect_rows(self.tracker, results)
                for result in results[finished:]:
                    if result is None:  # results are given in order
                        break
                    finished += 1
                    self.tracker.job_done(result)
                    yield result
                if finished == len(results):
                    break
            if not self._train_next(results):
                if self.tracker is None:
                    return
                wait(self.stop, others, self._claims(results))
        self.history.sort()  # jobs in parallel, or continued in turn, wrote in another order

    def _note_lost(self, results: Sequence[Result | None]) -> None:
        """Says which models are trained again because their results were deleted meanwhile."""
        for job, result in zip(self.context.jobs, results, strict=False):
            if result is None and job.name not in self._noted:
                self._noted.add(job.name)
                print_line(
                    f"note: outputs: the result in {self.folder.job(job.name)} was deleted or "
                    f"moved while this process trained; the model is trained again"
                )

    def _collect_rows(self, tracker: Tracker, results: Sequence[Result | None]) -> None:
        """Takes the rows of other processes into the history of the run."""

        def collect() -> None:
            for job, result in zip(self.context.jobs, results, strict=True):
                is_finished = result is not None
                _take_rows(self.history, tracker, job, self.folder, last=is_finished)

        self.world.run_on_main(collect)

    def _train_next(self, results: Sequence[Result | None]) -> bool:
        """Trains the next model that no other process trains; returns False if there is none."""
        with ExitStack() as claim:
            for job, result in zip(self.context.jobs, results, strict=True):
                if result is None and self._is_claimed(job, claim):
                    if not self._has_result(job):  # else another process has just finished it
                        self._train(job)
                    return True
        return False

    def _claims(self, results: Sequence[Result | None]) -> list[Path]:
        """Returns the locks of the models that other processes train."""
        locks = []
        for job, result in zip(self.context.jobs, results, strict=True):
            if result is None:
                locks.append(self._claim(job))
        return locks

    def _claim(self, job: Job) -> Path:
        return self.folder.job(job.name) / RUN_LOCK

    def _has_result(self, job: Job) -> bool:
        result = self.world.broadcast_from_main(lambda: self.folder.read_result(job.name))
        return result is not None

    def _is_claimed(self, job: Job, claim: ExitStack) -> bool:
        if self.world.size > 1:  # processes that share each batch need no help
            return True
        with suppress(Busy):
            claim.enter_context(try_lock(self._claim(job)))
            return True
        return False

    def _train(self, job: Job) -> None:
        folder, rows = self.folder.job(job.name), self.history
        if self.tracker is not None:
            take = partial(_take_rows, self.history, self.tracker, job, self.folder, last=True)
            self.world.run_on_main(take)
        else:
            rows = History(folder / HISTORY)
            if not rows.rows:
                rows.adopt(History(self.folder.history), job.key)
        trial, figures = self.context.trial, None
        if trial is None and job.key == (0, 0) and len(job.test.query) > 0:
            figures = self.folder.figures
        with translate_resource_errors():
            # No variable for a model: it is freed before the next one is built.
            JobRun(self.context.take_model(job), folder, trial, figures).run(
                rows, self.tracker or Tracker(), self.stop
            )


def read_results(context: RunContext, folder: RunFolder) -> list[Result | None]:
    """Returns the results of all models, in order; None for those that are not finished.

    Raises:
        UserError: a model that is finished lacks the embeddings that are joined with others.
    """
    joined = FOLDS[context.config.protocol.splits] > 1 and context.trial is None

    def read() -> list[Result | None]:
        results = []
        for job in context.jobs:
            result = folder.read_result(job.name)
            embeddings = folder.job(job.name) / EMBEDDINGS
            if result is not None and joined and len(job.test.query) and not embeddings.exists():
                raise UserError(
                    f"outputs: {embeddings} was deleted or moved; put it back, or remove "
                    f"{embeddings.parent}, and the same command trains this model again"
                )
            results.append(result)
        return results

    return context.world.broadcast_from_main(read)


def wait(stop: Stop, others: HolderWait, locks: Sequence[Path]) -> None:
    """Waits a moment for other processes.

    Args:
        stop: called after the moment.
        others: of all moments of this wait.
        locks: that the other processes hold.

    Raises:
        RunStopped: `stop` asked for it.
        NoAnswerError: one of the others is silent for too long.
    """
    time.sleep(POLL_SECONDS)
    request = stop()
    if request is not None:
        raise request
    others.check(locks)


def _take_rows(history: History, tracker: Tracker, job: Job, folder: RunFolder, last: bool) -> None:
    """Copies the rows that another process has written; moves them if they are the last ones."""
    rows = History(folder.job(job.name) / HISTORY)
    known, written = history.job_rows(*job.key), rows.job_rows(*job.key)
    if rows.rows and written != known:
        history.adopt(rows, job.key)
        known_steps = {row["step"] for row in known}
        for row in written:
            step = row.pop("step")
            if step not in known_steps:
                tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
    if last:
        rows.path.unlink(missing_ok=True)
