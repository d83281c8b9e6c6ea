"""Processes that take part in the work of this one: the models of a run, or the trials of a search.

A process receives the config and rebuilds the rest, claims models or trials as any process that is
started with the same command does, prints to a log of its own, and stops when it is asked to, or
when its parent dies.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.core.progress import open_display
from dml.core.signals import StopRequest
from dml.runs.build import Builder
from dml.runs.console import console, print_line
from dml.runs.folder.run_log import write_log
from dml.runs.job import RunContext
from dml.runs.training_status import RunPosition

POLL_SECONDS = 1.0  # between two looks at the processes
Stop = Callable[[], RunStopped | None]
Work = Callable[[RunContext, Stop], Any]


@contextmanager
def start_workers(
    context: RunContext, folder: Path, count: int, work: Work, stop: Stop
) -> Iterator[Stop]:
    """Starts processes that call `work(context, stop)`; stops them at the end of the block.

    Args:
        context: of the run.
        folder: of the run, for the logs.
        count: number of processes.
        work: a function that can be pickled.
        stop: of this process.

    Yields:
        `stop`, which also prints what the processes have printed.

    Raises:
        RunStopped: in the yielded function: a process was stopped.
        UserError: there: a process failed.
    """
    logs, device = folder / "logs", context.device
    devices = [str(device)]
    if context.config.device in ("auto", "cuda") and device.type == "cuda":
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    workers = []
    if count:
        logs.mkdir(parents=True, exist_ok=True)
        print_line(f"{count + 1} processes, this one included; logs in {logs}")
    for number in range(1, count + 1):
        config = context.config.model_copy(update={"device": devices[number % len(devices)]})
        threads = torch.get_num_threads()  # results may depend on it
        log = logs / f"worker{number}.log"
        start = log.stat().st_size if log.exists() else 0
        arguments = (work, config, context.identity, context.position, folder, log, threads)
        process = spawn.Process(target=_run, args=arguments, name=log.stem)
        process.start()
        workers.append(_Worker(process, log, start))
    looked = 0.0

    def watch() -> RunStopped | None:
        nonlocal looked
        if time.monotonic() > looked + POLL_SECONDS:
            looked = time.monotonic()
            for worker in workers:
                worker.look()
        return stop()

    try:
        yield watch
        for worker in workers:  # they have nothing left to claim
            worker.process.join()
            worker.look()
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


@dataclass
class _Worker:
    """A process, and the part of its log that was shown."""

    process: BaseProcess
    log: Path
    shown: int
    last: str = ""

    def look(self) -> None:
        """Prints new lines of the log.

        Raises:
            RunStopped: the process was stopped.
            UserError: it failed; with the last line of its log.
        """
        status = self.process.exitcode
        with open(self.log, "ab+") as file:
            file.seek(self.shown)
            *lines, rest = file.read().decode(errors="replace").split("\n")
            self.shown = file.tell() - len(rest.encode())
        for line in filter(None, lines):
            self.last = line
            print_line(line, logged=False)
        if status == ExitStatus.TIME_LIMIT:
            raise RunStopped(f"{self.process.name} was stopped", ExitStatus.TIME_LIMIT)
        if status == ExitStatus.WRONG_COMMAND:
            raise UserError(self.last)
        if status:
            raise UserError(
                f"protocol.workers: {self.process.name} ended with status {status}; see {self.log}"
            )


def _run(
    work: Work,
    config: Config,
    identity: dict[str, Any],
    position: RunPosition,
    folder: Path,
    log: Path,
    threads: int,
) -> None:
    """Works in a process of its own; see `start_workers`."""
    parent = multiprocessing.parent_process()
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

    try:
        with open_display(console), write_log(folder, log.stem), requested:
            builder = Builder(config)
            work(RunContext(builder, identity, builder.index(), position=position), stop)
    except RunStopped as request:
        print(request)
        raise SystemExit(ExitStatus.TIME_LIMIT) from None
    except UserError as error:
        print(error)
        raise SystemExit(ExitStatus.WRONG_COMMAND) from None
