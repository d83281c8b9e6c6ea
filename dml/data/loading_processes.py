"""Loading processes: how many, how they answer signals, and where their death is raised."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from dml.data.image_index import ImageIndex

AUTO = "auto"
MOST_WORKERS = 8  # of `auto`: more need memory and files, and often wait for the same disk
HANDLER_S = 2.0  # far longer than the system takes to report a dead process
DEAD_WORKER = "DataLoader worker"  # torch's errors begin so; they have no class of their own


def usable_workers(processes: int, most: int = MOST_WORKERS) -> int:
    """Returns the loading processes for each of `processes` on this machine, one for a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(most, (cores or 1) // processes))


def resolve_workers(
    workers: int | str, index: ImageIndex, device: torch.device, processes: int = 1
) -> int:
    """Returns the number that the option `data.workers` stands for.

    Args:
        workers: the number, or "auto": a CPU needs its cores for the network itself, and images in
            memory cost less than sending them between processes.
        index: the dataset.
        device: of the network.
        processes: training processes on this machine.
    """
    if workers != AUTO:
        return int(workers)
    in_memory = isinstance(index.images, np.ndarray)
    return 0 if in_memory or device.type == "cpu" else usable_workers(processes)


def leave_faults_to_parent(worker: int) -> None:
    """Ignores Ctrl-C, which reaches all processes of a terminal: the current step needs workers.

    A parent that fails drops the connection to the thread that sends batches: it has said why.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.excepthook = _report_unless_disconnected


def _report_unless_disconnected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, ConnectionError):
        sys.__excepthook__(kind, error, trace)


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of a loader; only here the death of one of its workers is raised.

    Raises:
        RuntimeError: a worker died; the message begins with `DEAD_WORKER`.
    """
    _deaths.held = None  # of a loader that nobody waits for any more
    batches = iter(loader)
    if loader.num_workers:
        _deaths.hold_back()
    while True:
        try:
            batch = _deaths.wait_for_next(batches)
        except StopIteration:
            return
        yield batch


class _Deaths:
    """Holds back what torch's handler of SIGCHLD raises until this process waits for a batch.

    An exception between any two instructions could leave a lock taken, for which the thread that
    writes checkpoints would then wait forever, and would keep a run whose workers got the same
    SIGTERM from saving.

    Attributes:
        held: the error of a worker that died, until it is raised.
    """

    def __init__(self) -> None:
        self.held: RuntimeError | None = None
        self._waiting = False
        self._handler: Callable[[int, FrameType | None], Any] | None = None

    def hold_back(self) -> None:
        """Takes the place of torch's handler, which the first loader with workers installs."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGCHLD)
        if callable(handler) and handler != self._receive:
            self._handler = handler
            signal.signal(signal.SIGCHLD, self._receive)

    def wait_for_next(self, batches: Iterator[Any]) -> Any:
        """Returns the next batch; what was held back is raised instead."""
        self._waiting = True
        try:
            self._raise_held()
            return next(batches)
        except RuntimeError:
            self._raise_held()  # torch hides the reason where its handler interrupts the waiting
            raise
        except (ConnectionError, EOFError) as error:
            # A worker that dies while sending a batch breaks the connection before torch's handler
            # has run. The handler knows the reason: it raises while this process waits.
            time.sleep(HANDLER_S)
            raise RuntimeError(f"{DEAD_WORKER} exited before it sent its batch") from error
        finally:
            self._waiting = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        assert self._handler is not None
        try:
            self._handler(number, frame)
        except RuntimeError as error:
            self.held = error
            if self._waiting:
                raise

    def _raise_held(self) -> None:
        if self.held is not None:
            error, self.held = self.held, None
            raise error


_deaths = _Deaths()
