"""The process that trains one model of a run beside others.

It receives the config and rebuilds the rest; log, history and checkpoints are its own files, so
that no file is written by two processes. It stops when it is asked to, or when its parent dies.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.core.progress import open_display
from dml.core.signals import StopRequest
from dml.runs.build import Builder
from dml.runs.console import console
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import Busy, RunFolder
from dml.runs.folder.run_log import write_log
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_history import open_job_history
from dml.tracking import Tracker

ORPHAN_SECONDS = 60.0  # that the process of a killed parent may take to save and exit


@dataclass(frozen=True)
class JobTask:
    """The input of a process.

    Attributes:
        config, identity: of the run; `config.device` is the device of the process.
        key: (repeat, fold) of the model.
        folder: of the run.
        threads: of torch; results may depend on their number.
        test: see `JobRun.run`.
        log: the file of its output.
        problem: the file of its message for the user, if it fails.
    """

    config: Config
    identity: dict[str, Any]
    key: tuple[int, int]
    folder: Path
    threads: int
    test: bool
    log: Path
    problem: Path


def run_process(task: JobTask, epochs: Any) -> None:
    """Trains the model of a task; the body of a process, which exits with a status.

    Args:
        task: the input.
        epochs: a shared number that this process sets to the completed epochs.
    """

    def set_epochs(completed: float) -> None:
        epochs.value = completed

    log = os.open(task.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which sends SIGTERM
    torch.set_num_threads(task.threads)
    try:
        with open_display(console), write_log(task.folder, task.log.stem):
            _train(task, set_epochs)
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


def _train(task: JobTask, on_epoch: Callable[[float], None]) -> None:
    parent = multiprocessing.parent_process()
    requested = StopRequest()

    def stop() -> RunStopped | None:
        if parent is not None and not parent.is_alive():
            return RunStopped("the process that started this one ended", ExitStatus.TIME_LIMIT)
        return requested()

    folder = RunFolder(task.folder)
    builder = Builder(task.config)
    context = RunContext.open(builder, task.identity, builder.index())
    context = replace(context, position=replace(context.position, on_epoch=on_epoch))
    job = next(job for job in context.jobs() if job.key == task.key)
    with requested, _lock_job(RunFolder(folder.job(job.name))):
        history = open_job_history(folder, job)
        JobRun(context, job, folder.job(job.name)).run(history, Tracker(), stop, task.test)


def _lock_job(folder: RunFolder) -> ExitStack:
    """Locks a job's folder; the process of a parent that was killed may still be saving."""
    lock = ExitStack()
    deadline = time.monotonic() + ORPHAN_SECONDS
    while True:
        try:
            lock.enter_context(folder.locked())
            return lock
        except Busy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
