"""Loading processes: where the death of one is raised."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

HANDLER_S = 2.0  # far longer than the system takes to report a dead process
DEAD_WORKER = "DataLoader worker"  # torch's errors begin so; they have no class of their own


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
