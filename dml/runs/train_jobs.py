"""The training of all models of a run, one after another or in parallel processes.

A process receives the config and rebuilds the rest; log, history and checkpoints are its own files,
so that no file is written by two processes. It stops when it is asked to, or when its parent dies.
The results are those of a serial run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
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
from dml.runs.figures.run_figures import draw_test_images
from dml.runs.folder.run_folder import RUN_LOCK, RunFolder
from dml.runs.folder.run_log import write_log
from dml.runs.job import JobRun, Result, RunContext, read_result, translate_resource_errors
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
    world, built = context.world, built or {}
    history = world.run_on_main(lambda: _open_history(jobs, folder, tracker)) or History(None)
    training = _Training(context, folder, history, tracker, stop, test)

    def read(job: Job) -> Result | None:
        return world.broadcast_from_main(lambda: read_result(folder.job(job.name)))

    pending = [job for job in jobs if read(job) is None]
    if context.config.protocol.workers > 1 and len(pending) > 1:
        training.train_in_parallel(pending)
    results = []
    for job in jobs:
        # No variable for a model: it is freed before the next one is built.
        result = read(job) or training.train(job, built.pop(job.key, None))
        results.append(result)
        tracker.job_done(result)
        on_result(result)
    history.sort()  # jobs in parallel, or stopped and continued in turn, wrote in another order
    return results


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


@dataclass
class _Training:
    """Trains jobs in this process, or each in a process of its own; see `train_jobs`."""

    context: RunContext
    folder: RunFolder
    history: History
    tracker: Tracker
    stop: Stop
    test: bool

    def train(self, job: Job, model: JobRun | None = None) -> Result:
        """Trains one model; draws the test images by the first one of a run."""
        draws = self.test and job.key == (0, 0) and len(job.test.query) > 0
        draw_test = partial(draw_test_images, folder=self.folder.figures) if draws else None
        with translate_resource_errors():
            model = model or JobRun(self.context, job, self.folder.job(job.name))
            return model.run(self.history, self.tracker, self.stop, self.test, draw_test)

    def train_in_parallel(self, jobs: Sequence[Job]) -> None:
        """Trains the jobs, `protocol.workers` at a time, and collects what they wrote.

        Raises:
            RunStopped: `stop` asked for it; the processes have saved.
            UserError: one of them failed; the others were stopped and have saved.
        """
        config, device, logs = self.context.config, self.context.device, self.folder.path / "logs"
        workers, epochs = config.protocol.workers, config.protocol.epochs
        devices = [str(device)]
        if config.device in ("auto", "cuda") and device.type == "cuda":
            devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        logs.mkdir(exist_ok=True)
        print_line(f"{len(jobs)} models, {workers} at a time; logs in {logs}")
        waiting, running = [*jobs], []  # type: list[Job], list[_JobProcess]
        title = f"{self.context.position.describe_trial()}{len(jobs)} models"
        try:
            with show_task(title, len(jobs) * epochs) as update:
                while waiting or running:
                    while waiting and len(running) < workers:
                        least_used = min(devices, key=[one.device for one in running].count)
                        running.append(_JobProcess(self, waiting.pop(0), least_used))
                    wait([one.process.sentinel for one in running], timeout=POLL_SECONDS)
                    for one in [*running]:
                        alive = one.process.is_alive()
                        one.receive()
                        if not alive:
                            running.remove(one)
                            one.conclude()
                    done = len(jobs) - len(waiting) - len(running)
                    completed = done * epochs + sum(one.epochs for one in running)
                    update(completed=completed, description=f"{title}, {done} done")
                    if (request := self.stop()) is not None:
                        raise request
        finally:
            for one in running:
                one.process.terminate()
            for one in running:
                one.process.join()
                one.receive()
                _move_rows(self.history, self.folder, one.job)


class _JobProcess:
    """A process that trains one model; `epochs` of it are completed."""

    def __init__(self, training: _Training, job: Job, device: str) -> None:
        self.training, self.job, self.device, self.epochs = training, job, device, 0.0
        self.error: BaseException | None = None
        context, folder = training.context, training.folder
        _job_history(folder, job).adopt(training.history, job.key)  # started before, maybe
        spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        # Both ends stay open here: there is something to receive only if the process has sent it.
        self._receiver, self._sender = spawn.Pipe(duplex=False)
        config = context.config.model_copy(update={"device": device})
        threads = torch.get_num_threads()  # results may depend on it
        task = (config, context.identity, context.position, folder, training.test, threads)
        arguments = (*task, self._sender)
        self.process = spawn.Process(target=_run_process, args=arguments, name=job.name)
        self.process.start()

    def receive(self) -> None:
        """Prints lines, which the process has logged, and tracks rows."""
        while self._receiver.poll():
            match self._receiver.recv():
                case BaseException() as error:
                    self.error = error
                case str() as line:
                    print_line(line, logged=False)
                case float() as epochs:
                    self.epochs = epochs
                case metrics, step:
                    self.training.tracker.log(metrics, step)

    def conclude(self) -> None:
        """Moves the rows of a finished process into the history, and prints its end.

        Raises:
            RunStopped: it was stopped.
            UserError: it failed.
        """
        folder, name, status = self.training.folder, self.job.name, self.process.exitcode
        _move_rows(self.training.history, folder, self.job)
        if self.error is not None:
            raise self.error
        if status != 0:
            raise UserError(
                f"protocol.workers: the process of {name} ended with status {status}; see "
                f"{folder.path / 'logs' / name}.log"
            )
        print_line(f"{name}  done")


class _SendingTracker(Tracker):
    """Sends rows to the process that started this one."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self.send = send

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Sends one row."""
        self.send((metrics, step))


def _run_process(
    config: Config,
    identity: dict[str, Any],
    position: RunPosition,
    folder: RunFolder,
    test: bool,
    threads: int,
    sender: Connection,
) -> None:
    """Trains the model whose name the process has.

    Args:
        config: of the run, with the device of the process.
        identity: of the run.
        position: of the models.
        folder: of the run.
        test: see `JobRun.run`.
        threads: of torch.
        sender: receives lines for the user, completed epochs, rows for the tracker, and the error
            that the process ends with, unless it is a mistake in the code.
    """
    name, parent = multiprocessing.current_process().name, multiprocessing.parent_process()
    log = folder.path / "logs" / f"{name}.log"
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which sends SIGTERM
    torch.set_num_threads(threads)
    requested = StopRequest()

    def stop() -> RunStopped | None:
        if parent is not None and not parent.is_alive():
            return RunStopped("the process that started this one ended", ExitStatus.TIME_LIMIT)
        return requested()

    def send(message: Any) -> None:
        with suppress(OSError):  # that process ended: this one stops after its step
            sender.send(message)

    def print_and_send(line: str) -> None:
        print_line(line)
        send(line)

    position = replace(position, print_line=print_and_send, on_epoch=send)
    try:
        with open_display(console), write_log(folder.path, name):
            builder = Builder(config)
            context = RunContext(builder, identity, builder.index(), position=position)
            job = next(job for job in context.jobs() if job.name == name)
            # The process of a parent that was killed may still be saving.
            with requested, wait_for_lock(folder.job(name) / RUN_LOCK):
                history, tracker = _job_history(folder, job), _SendingTracker(send)
                _Training(context, folder, history, tracker, stop, test).train(job)
    except RunStopped as request:
        print(request)
        send(RunStopped(f"{name} was stopped", ExitStatus.TIME_LIMIT))
    except UserError as error:
        print(error)
        send(error)
