"""Loading processes: an error if one dies, warnings while no batch arrives."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from torch.utils.data import DataLoader

from dml.core.errors import UserError

log = logging.getLogger(__name__)

HANDLER_S = 2.0  # far longer than the system takes to report a dead process
DEAD_WORKER = "DataLoader worker"  # torch's errors begin with this, without a specific class
SILENCE_S, REPEAT_S = 60.0, 300.0  # without a batch: the first warning, and the next ones
STATES = {"T": "(stopped)", "D": "(waiting for a disk)"}


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of a loader; the error of a dead worker is raised only here.

    Raises:
        RuntimeError: a worker died; the message begins with `DEAD_WORKER`.
        UserError: the system cannot start so many workers.
    """
    _deaths.held = None  # of a loader that is no longer used
    if not loader.num_workers:
        yield from loader
        return
    batches = _start(loader)
    _deaths.hold_back()
    while True:
        try:
            batch = _deaths.wait_for_next(batches)
        except StopIteration:
            return
        yield batch


def _start(loader: DataLoader[Any]) -> Iterator[Any]:
    others = set(multiprocessing.active_children())
    try:
        return iter(loader)
    except OSError as error:
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        error.__traceback__ = None  # ends torch's iterator, which is incomplete and complains
        sys.unraisablehook = hook
        raise UserError(
            f"data.workers: {loader.num_workers} loading processes cannot be started "
            f"({error.strerror}); try fewer, or raise the limit (ulimit)"
        ) from None
    finally:
        _processes.update(set(multiprocessing.active_children()) - others)


def prepare_process(worker: int) -> None:
    """Ignores Ctrl-C and SIGTERM in a worker: the training process finishes its step first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.excepthook = _print_unless_disconnected


def _print_unless_disconnected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints a traceback, except for a connection closed because another worker died."""
    if not issubclass(kind, (ConnectionError, EOFError)):
        sys.__excepthook__(kind, error, trace)


@atexit.register
def _end_processes() -> None:
    """Kills remaining workers: Python would send SIGTERM, which they ignore, and wait for them."""
    for process in _processes & set(multiprocessing.active_children()):
        process.kill()


@contextmanager
def _report_silence() -> Iterator[None]:
    """Warns while no batch arrives, for example because of a stopped process or a stalled disk."""
    ended = threading.Event()

    def report() -> None:
        seconds = SILENCE_S
        while not ended.is_set():
            states = ", ".join(_state(child.pid) for child in multiprocessing.active_children())
            log.warning(
                "data.workers: no batch for %.0f s; loading processes: %s; data.workers=0 loads in "
                "the training process",
                seconds,
                states,
            )
            ended.wait(REPEAT_S)
            seconds += REPEAT_S

    watcher = threading.Timer(SILENCE_S, report)
    watcher.daemon = True
    watcher.start()
    try:
        yield
    finally:
        watcher.cancel()
        ended.set()


def _state(process: int | None) -> str:
    try:
        letter = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # not Linux
        letter = ""
    return f"{process} {STATES.get(letter, '')}".strip()


class _Deaths:
    """Delays the error that torch's handler of SIGCHLD raises until this process waits for a batch.

    Raised between arbitrary instructions, the error could leave a lock acquired, for which the
    checkpoint thread would wait forever; and a run could not save its state if SIGTERM reached its
    workers too.

    Attributes:
        held: the message of the error, until it is raised. The exception itself would keep the
            interrupted frames alive, and with them the loader and its other processes.
    """

    def __init__(self) -> None:
        self.held: str | None = None
        self._waiting = False
        self._handler: Callable[[int, FrameType | None], Any] | None = None

    def hold_back(self) -> None:
        """Replaces torch's handler, which the first loader with workers installs."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGCHLD)
        if callable(handler) and handler != self._receive:
            self._handler = handler
            signal.signal(signal.SIGCHLD, self._receive)

    def wait_for_next(self, batches: Iterator[Any]) -> Any:
        """Returns the next batch, or raises the delayed error."""
        self._waiting = True
        try:
            self._raise_held()
            with _report_silence():
                return next(batches)
        except RuntimeError:
            self._raise_held()  # torch hides the reason where its handler interrupts the waiting
            raise
        except (ConnectionError, EOFError) as error:
            # A worker that dies while sending a batch breaks the connection before torch's handler
            # runs. The handler, which knows the reason, raises while this process sleeps.
            time.sleep(HANDLER_S)
            raise RuntimeError(f"{DEAD_WORKER} exited before it sent its batch") from error
        finally:
            self._waiting = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        assert self._handler is not None
        try:
            self._handler(number, frame)
        except RuntimeError as error:
            self.held = str(error)
            if self._waiting:
                raise

    def _raise_held(self) -> None:
        if self.held is not None:
            message, self.held = self.held, None
            raise RuntimeError(message)


_processes: weakref.WeakSet[multiprocessing.process.BaseProcess] = weakref.WeakSet()
_deaths = _Deaths()
