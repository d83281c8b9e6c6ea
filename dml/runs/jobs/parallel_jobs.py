"""Several models at once, each in a process of its own: the same results as one after the other.

A process gets the config and rebuilds the rest; its log, history and checkpoints are files of its
own, so that nothing is written by two. It stops when it is told to, and when its parent dies.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.runs import build, protocols
from dml.runs.console import console
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import Busy, RunFolder
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_result import read_result
from dml.runs.jobs.job_tables import adopt_rows, own_records
from dml.runs.protocols import Job
from dml.tracking import History, NullTracker, RunTables, Tracker
from dml.training.interrupts import StopRequest

LIVE_SECONDS = 5.0  # between looks at what the processes have written
ORPHAN_SECONDS = 60.0  # how long the process of a killed parent may take to save and leave


@dataclass(frozen=True)
class Task:
    """What a process has to know.

    Attributes:
        config, identity: of the run; `config.device` is the process's own.
        repeat, fold: which model.
        folder: of the run.
        threads: of torch; results may depend on their number.
        test: see `JobRun.run`.
        log: what it prints goes here.
        problem: where it writes a message for the user.
    """

    config: Config
    identity: dict[str, Any]
    repeat: int
    fold: int
    folder: Path
    threads: int
    test: bool
    log: Path
    problem: Path


def train_in_parallel(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    records: RunTables,
    tracker: Tracker,
    stop: Callable[[], RunStopped | None],
    test: bool,
) -> None:
    """Trains the jobs, `protocol.workers` at a time, and collects what they wrote.

    Raises:
        RunStopped: asked for; the processes have saved.
        UserError: one of them failed; the others were stopped and have saved.
    """
    spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    devices = _devices(context)
    waiting = list(jobs)
    running: dict[BaseProcess, tuple[Job, Task]] = {}
    shown = time.monotonic()
    logs = folder.path / "logs"
    logs.mkdir(exist_ok=True)
    console.print(
        f"{len(jobs)} models, {context.config.protocol.workers} at a time; logs in {logs}"
    )
    try:
        while waiting or running:
            while waiting and len(running) < context.config.protocol.workers:
                job = waiting.pop(0)
                busy = [task.config.device for _, task in running.values()]
                device = min(devices, key=busy.count)
                task = _task(context, job, folder, device, test)
                own = own_records(folder, job)
                own.adopt(records, (job.repeat, job.fold))  # it may have been begun before
                process: BaseProcess = spawn.Process(target=_train, args=(task,), name=job.name)
                process.start()
                running[process] = (job, task)
            wait([process.sentinel for process in running], timeout=0.2)
            if time.monotonic() > shown + LIVE_SECONDS:
                for job, _ in running.values():
                    _track(own_records(folder, job).history, job, tracker)
                shown = time.monotonic()
            for process in [one for one in running if not one.is_alive()]:
                job, task = running.pop(process)
                _collect(process, job, task, folder, records, tracker)
                result = read_result(folder.job(job.name))
                if result is not None:
                    tracker.job_done(result)
                    score = result["validation"][context.config.protocol.select_metric]
                    console.print(f"{job.name}  done, validation {100 * score:.2f}")
            request = stop()
            if request is not None:
                raise request
    finally:
        _end(running)
        for job, _ in running.values():
            adopt_rows(records, job, folder, tracker)
    records.sort()


def _task(context: RunContext, job: Job, folder: RunFolder, device: str, test: bool) -> Task:
    log = folder.path / "logs" / f"{job.name}.log"
    return Task(
        context.config.model_copy(update={"device": device}),
        context.identity,
        job.repeat,
        job.fold,
        folder.path,
        torch.get_num_threads(),
        test,
        log,
        log.with_suffix(".problem"),
    )


def _devices(context: RunContext) -> list[str]:
    """All GPUs where the config leaves the choice, else the one it names."""
    if context.config.device in ("auto", "cuda") and context.device.type == "cuda":
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(context.device)]


def _collect(
    process: BaseProcess,
    job: Job,
    task: Task,
    folder: RunFolder,
    records: RunTables,
    tracker: Tracker,
) -> None:
    """Takes over the rows of a process that ended; tells if it failed."""
    adopt_rows(records, job, folder, tracker)
    if process.exitcode == 0:
        return
    if task.problem.exists():
        message = task.problem.read_text(encoding="utf-8")
        task.problem.unlink()
        raise UserError(message)
    if process.exitcode == ExitStatus.TIME_LIMIT:
        raise RunStopped(f"{job.name} was stopped", ExitStatus.TIME_LIMIT)
    raise UserError(
        f"protocol.workers: the process of {job.name} ended with status {process.exitcode}; "
        f"see {task.log}"
    )


def _track(history: History, job: Job, tracker: Tracker) -> None:
    """Hands over a job's rows, which the tracker may have had before."""
    for row in history.of(job.repeat, job.fold):
        step = row.pop("step")
        tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))


def _end(running: dict[BaseProcess, tuple[Job, Task]]) -> None:
    """Asks all processes to save and leave, and waits until they have."""
    for process in running:
        process.terminate()
    for process in running:
        process.join()


def _train(task: Task) -> None:
    """Body of a process."""
    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which sends SIGTERM
    torch.set_num_threads(task.threads)
    try:
        _train_one(task)
    except RunStopped as request:
        print(request)
        sys.exit(ExitStatus.TIME_LIMIT)
    except UserError as error:
        print(error)
        task.problem.write_text(str(error), encoding="utf-8")
        sys.exit(ExitStatus.FAILED)
    except Exception:
        traceback.print_exc()
        sys.exit(ExitStatus.FAILED)


def _train_one(task: Task) -> None:
    parent = multiprocessing.parent_process()
    requested = StopRequest()

    def stop() -> RunStopped | None:
        if parent is not None and not parent.is_alive():
            return RunStopped("the process that started this one is gone", ExitStatus.TIME_LIMIT)
        return requested()

    folder = RunFolder(task.folder)
    index = build.build_index(task.config)
    context = RunContext.of(task.config, task.identity, index)
    p = task.config.protocol
    jobs = protocols.jobs(
        p.splits, task.repeat + 1, index, task.config.data.label_noise, task.config.seed
    )
    job = next(one for one in jobs if (one.repeat, one.fold) == (task.repeat, task.fold))
    with requested, _own(RunFolder(folder.job(job.name))):
        records = own_records(folder, job)
        JobRun(context, job, folder.job(job.name)).run(records, NullTracker(), stop, task.test)


def _own(folder: RunFolder) -> ExitStack:
    """The job's lock; the process of a parent that was killed may still be about to leave."""
    held = ExitStack()
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            held.enter_context(folder.locked())
            return held
        except Busy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
