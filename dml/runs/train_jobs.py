"""The training of all models of a run, one after another or in parallel processes.

A process receives the config and rebuilds the rest; log, history and checkpoints are its own files,
so that no file is written by two processes. It stops when it is asked to, or when its parent dies.
The results are those of a serial run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.core.locks import wait_for_lock
from dml.core.progress import open_display, show_task
from dml.core.signals import StopRequest
from dml.runs.build import Builder
from dml.runs.console import console, print_line
from dml.runs.context import RunContext
from dml.runs.figures.run_figures import draw_test_images
from dml.runs.folder.run_folder import RUN_LOCK, RunFolder
from dml.runs.folder.run_log import write_log
from dml.runs.job import DrawTest, JobRun, Result, read_result, translate_resource_errors
from dml.runs.protocol import Job
from dml.runs.training_status import RunPosition
from dml.tracking import History, Tracker

POLL_SECONDS = 1.0  # between two looks at the rows that the processes have written
Stop = Callable[[], RunStopped | None]


def train_jobs(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    tracker: Tracker,
    stop: Stop,
    *,
    built: dict[tuple[int, int], JobRun] | None = None,
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
        on_result: receives every result once it is known.

    Raises:
        RunStopped: `stop` asked for it; the same call continues.
        UserError: see `JobRun.run`.
    """
    world = context.world
    history = world.run_on_main(lambda: _open_history(jobs, folder, tracker)) or History(None)

    def read(job: Job) -> Result | None:
        return world.broadcast_from_main(lambda: read_result(folder.job(job.name)))

    pending = [job for job in jobs if read(job) is None]
    if context.config.protocol.workers > 1 and len(pending) > 1:
        _train_in_parallel(context, pending, folder, history, tracker, stop, test)
    results, built = [], built or {}
    for job in jobs:
        result = read(job)
        if result is None:
            with translate_resource_errors():
                # No variable: a model is freed before the next one is built.
                result = (
                    built.pop(job.key, None) or JobRun(context, job, folder.job(job.name))
                ).run(history, tracker, stop, test, _pictures(job, folder, test))
        results.append(result)
        tracker.job_done(result)
        on_result(result)
    history.sort()  # jobs in parallel, or stopped and continued in turn, wrote in another order
    return results


def _pictures(job: Job, folder: RunFolder, test: bool) -> DrawTest | None:
    """Returns the function that draws the test images, for the first model of a run."""
    first = test and job.key == (0, 0)
    return partial(draw_test_images, folder=folder.figures) if first else None


def _open_history(jobs: Sequence[Job], folder: RunFolder, tracker: Tracker) -> History:
    """Returns the run's history, with the rows of processes of single jobs that were killed."""
    history = History(folder.history)
    for job in jobs:
        before = {row["step"] for row in history.job_rows(*job.key)}
        _move_rows(history, folder, job)
        for row in history.job_rows(*job.key):
            if (step := row.pop("step")) not in before:
                tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
    return history


def _job_history(folder: RunFolder, job: Job) -> History:
    """Returns the history of a process that trains one job alone, beside its checkpoints."""
    return History(folder.job(job.name) / "history.csv")


def _move_rows(history: History, folder: RunFolder, job: Job) -> None:
    """Moves the rows that a process wrote for a job into the run's history."""
    rows = _job_history(folder, job)
    if rows.path.exists():
        history.adopt(rows, job.key)
        rows.path.unlink()


def _train_in_parallel(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    history: History,
    tracker: Tracker,
    stop: Stop,
    test: bool,
) -> None:
    """Trains the jobs, `protocol.workers` at a time, and collects what they wrote.

    Raises:
        RunStopped: `stop` asked for it; the processes have saved.
        UserError: one of them failed; the others were stopped and have saved.
    """
    workers, epochs = context.config.protocol.workers, context.config.protocol.epochs
    devices = [str(context.device)]
    if context.config.device in ("auto", "cuda") and context.device.type == "cuda":
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    (folder.path / "logs").mkdir(exist_ok=True)
    print_line(f"{len(jobs)} models, {workers} at a time; logs in {folder.path / 'logs'}")
    waiting, running = [*jobs], []  # type: list[Job], list[_JobProcess]
    title = f"{context.position.describe_trial()}{len(jobs)} models"
    try:
        with show_task(title, len(jobs) * epochs) as update:
            while waiting or running:
                while waiting and len(running) < workers:
                    device = min(devices, key=[one.device for one in running].count)
                    job = waiting.pop(0)
                    _job_history(folder, job).adopt(history, job.key)  # started before, maybe
                    running.append(_JobProcess(context, job, folder, device, test))
                wait([one.process.sentinel for one in running], timeout=POLL_SECONDS)
                for one in [*running]:
                    alive = one.process.is_alive()
                    one.receive(tracker)
                    if not alive:
                        running.remove(one)
                        _move_rows(history, folder, one.job)
                        one.conclude()
                present = [one.epochs.value for one in running]
                done = len(jobs) - len(waiting) - len(present)
                update(completed=done * epochs + sum(present), description=f"{title}, {done} done")
                if (request := stop()) is not None:
                    raise request
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            one.process.join()
            one.receive(tracker)
            _move_rows(history, folder, one.job)


class _JobProcess:
    """A process that trains one model of a run."""

    def __init__(
        self, context: RunContext, job: Job, folder: RunFolder, device: str, test: bool
    ) -> None:
        self.job, self.folder, self.device = job, folder, device
        self.log = folder.path / "logs" / f"{job.name}.log"
        self.problem: UserError | None = None
        spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        self.epochs = spawn.Value("d", 0.0, lock=False)
        # Both ends stay open here: there is something to receive only if the process has sent it.
        self._receiver, self._sender = spawn.Pipe(duplex=False)
        config = context.config.model_copy(update={"device": device})
        task = (config, context.identity, context.position, job.key, folder.path, self.log, test)
        threads = torch.get_num_threads()  # results may depend on it
        arguments = (*task, threads, self.epochs, self._sender)
        self.process = spawn.Process(target=_run_process, args=arguments, name=job.name)
        self.process.start()

    def receive(self, tracker: Tracker) -> None:
        """Prints lines, which the process has logged, and tracks rows."""
        while self._receiver.poll():
            message = self._receiver.recv()
            if isinstance(message, UserError):
                self.problem = message
            elif isinstance(message, str):
                print_line(message, logged=False)
            else:
                tracker.log(*message)

    def conclude(self) -> None:
        """Prints that a process has ended.

        Raises:
            RunStopped: it was stopped.
            UserError: it failed.
        """
        status = self.process.exitcode
        if self.problem is not None:
            raise self.problem
        if status == ExitStatus.TIME_LIMIT:
            raise RunStopped(f"{self.job.name} was stopped", ExitStatus.TIME_LIMIT)
        if status != 0:
            raise UserError(
                f"protocol.workers: the process of {self.job.name} ended with status {status}; "
                f"see {self.log}"
            )
        print_line(f"{self.job.name}  done")


class _SendingTracker(Tracker):
    """Sends rows to the process that started this one."""

    def __init__(self, sender: Connection) -> None:
        self.sender = sender

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Sends one row."""
        with suppress(OSError):  # that process ended: this one stops after its step
            self.sender.send((metrics, step))


def _run_process(
    config: Config,
    identity: dict[str, Any],
    position: RunPosition,
    key: tuple[int, int],
    folder: Path,
    log: Path,
    test: bool,
    threads: int,
    epochs: Any,
    sender: Connection,
) -> None:
    """Trains one model; the body of a process, which exits with a status.

    Args:
        config: of the run, with the device of the process.
        identity: of the run.
        position: of the models.
        key: (repeat, fold) of the model.
        folder: of the run.
        log: the file of its output.
        test: see `JobRun.run`.
        threads: of torch.
        epochs: a shared number that this process sets to the completed epochs.
        sender: receives lines for the user, rows for the tracker, and the error, if it fails.
    """
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which sends SIGTERM
    torch.set_num_threads(threads)
    parent, run_folder, builder = (
        multiprocessing.parent_process(),
        RunFolder(folder),
        Builder(config),
    )
    requested = StopRequest()

    def stop() -> RunStopped | None:
        if parent is not None and not parent.is_alive():
            return RunStopped("the process that started this one ended", ExitStatus.TIME_LIMIT)
        return requested()

    def print_and_send(line: str) -> None:
        print_line(line)
        with suppress(OSError):
            sender.send(line)

    def set_epochs(completed: float) -> None:
        epochs.value = completed

    position = replace(position, print_line=print_and_send, on_epoch=set_epochs)
    try:
        with open_display(console), write_log(folder, log.stem):
            context = RunContext.open(builder, identity, builder.index())
            context = replace(context, position=position)
            job = next(job for job in context.jobs() if job.key == key)
            place, pictures = run_folder.job(job.name), _pictures(job, run_folder, test)
            # The process of a parent that was killed may still be saving.
            with requested, wait_for_lock(place / RUN_LOCK), translate_resource_errors():
                history, tracker = _job_history(run_folder, job), _SendingTracker(sender)
                JobRun(context, job, place).run(history, tracker, stop, test, pictures)
    except RunStopped as request:
        print(request)
        sys.exit(ExitStatus.TIME_LIMIT)
    except UserError as error:
        print(error)
        sender.send(error)
        sys.exit(ExitStatus.FAILED)
    except Exception:
        traceback.print_exc()
        sys.exit(ExitStatus.FAILED)
