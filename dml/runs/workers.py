"""Processes that take part in a run as the same command would, started in other shells.

What a process has claimed is free again when it ends, so that another one continues it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, cast

import torch

from dml.config.schema import Config
from dml.core.deadline import end_in_time, seconds_left
from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.core.locks import describe_refusal, share_folder
from dml.core.run_log import write_log
from dml.core.signals import StopRequest
from dml.core.tolerant_output import TolerantStream
from dml.runs.console import console, print_line
from dml.training.device import resolve_device

END_SECONDS = 30.0  # for a process that has nothing left to do
Stop = Callable[[], RunStopped | None]
Work = Callable[[Config, Stop], None]


@contextmanager
def start_workers(work: Work, config: Config, folder: Path, count: int) -> Iterator[None]:
    """Starts processes that call `work(config, stop)`; stops them if the block raises.

    Args:
        work: a function that can be pickled; returns when there is nothing left to claim.
        config: of the run; on several GPUs each process gets one.
        folder: of the run, for its log.
        count: number of processes.
    """
    devices, device = [config.device], resolve_device(config.device)
    if config.device in ("auto", "cuda") and device.type == "cuda":
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except PermissionError as error:
        raise UserError(describe_refusal(folder, error)) from error
    inode = folder.stat().st_ino
    workers = []
    if count > 0:
        print_line(f"{count + 1} processes, this one included")
    for number in range(1, count + 1):
        placed = config.model_copy(update={"device": devices[number % len(devices)]})
        lines, output = spawn.Pipe(duplex=False)
        # Results may depend on the number of threads.
        arguments = (work, placed, folder, inode, output, torch.get_num_threads())
        process = spawn.Process(target=_run, args=arguments)
        with without_ctrl_c():
            process.start()
        output.close()
        threading.Thread(target=_print_lines, args=(lines,), daemon=True).start()
        workers.append(process)
    try:
        yield
        _end(workers, END_SECONDS)  # there is nothing left for them to do
    finally:
        for process in workers:
            process.terminate()
        _end(workers, max(1.0, seconds_left() - 2.0))  # they save their state


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Blocks Ctrl-C for processes that are started meanwhile, also while they load modules.

    It reaches this process, which sends them SIGTERM.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(workers: Sequence[BaseProcess], seconds: float) -> None:
    """Waits for the end of processes, and kills those that do not end in time."""
    end = time.monotonic() + seconds
    for process in workers:
        process.join(max(0.0, end - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
            print_line(
                f"note: protocol.workers: process {process.pid} on {socket.gethostname()} did not "
                f"end within {seconds:.0f} s and was killed; its checkpoints are intact"
            )


def _print_lines(lines: Connection) -> None:
    """Prints what a process prints, until it ends."""
    with os.fdopen(lines.fileno(), closefd=False) as texts:
        for line in texts:
            print_line(line.rstrip("\n"), logged=False)


def _run(
    work: Work, config: Config, folder: Path, inode: int, output: Connection, threads: int
) -> None:
    """Works in a process of its own; see `start_workers`.

    Args:
        work, config: see `start_workers`.
        folder: of the run.
        inode: of this folder; another one in its place is left alone.
        output: for what is printed.
        threads: number of threads of torch.
    """
    parent = multiprocessing.parent_process()
    torch.set_num_threads(threads)
    lines = os.fdopen(output.fileno(), "w", buffering=1, closefd=False)
    console.file = cast(IO[str], TolerantStream(lines))  # the parent may end before it reads them
    requested = StopRequest()

    def stop() -> RunStopped | None:
        if parent is not None and not parent.is_alive():
            return RunStopped("the process that started this one ended", ExitStatus.TIME_LIMIT)
        return requested()

    try:
        with (
            share_folder(folder, inode),
            end_in_time(),
            suppress(RunStopped),
            write_log(folder, "worker"),
            requested,
        ):
            work(config, stop)
    except UserError as error:  # the other processes go on, or end with it too
        print_line(f"note: process {os.getpid()} ended: {error}", logged=False)
