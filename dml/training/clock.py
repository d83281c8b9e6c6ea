"""How long training takes, how much of that it waits for data, and the memory that it needs.

On a CPU, waiting is the time inside the loader. A GPU works while the loader loads, so what counts
there is the gap in its own work: from the end of a step until the next batch lies in its memory.
"""

from __future__ import annotations

import re
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

Batch = TypeVar("Batch")


@dataclass
class Spent:
    """What a stretch of training took.

    Attributes:
        steps: how many.
        seconds: of steps and of waiting for their batches; evaluations and saving left out.
        waiting: seconds of these.
    """

    steps: int = 0
    seconds: float = 0.0
    waiting: float = 0.0

    @property
    def waiting_share(self) -> float:
        """Waiting per second, 0 to 1."""
        return min(1.0, self.waiting / max(self.seconds, 1e-9))

    def images_per_second(self, batch_size: int) -> float:
        """Images trained on per second."""
        return self.steps * batch_size / max(self.seconds, 1e-9)


class StepClock:
    """Measures a training loop without making the device wait for it.

    Args:
        device: that trains.

    Attributes:
        total: since the model's first step, in whatever process.
        interval: since the last `lap`, in whatever process.
        here: in this process.
    """

    def __init__(self, device: torch.device) -> None:
        self.total, self.interval, self.here = Spent(), Spent(), Spent()
        self._gaps = _gaps_of(device)
        self._begun: float | None = None

    def watched(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; what the caller does with one before it takes the next is a step."""
        self.start()
        iterator = iter(batches)
        while True:
            self._gaps.begin()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._gaps.end()
            self._add(steps=1)
            yield batch

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out what happens inside, and takes stock first.

        On a GPU the caller has waited for its steps, or their time would be the pause's.
        """
        self.stop()
        yield
        self.start()

    def start(self) -> None:
        """The time that follows is training."""
        self._begun = time.perf_counter()

    def stop(self) -> None:
        """Takes stock; the time that follows is not training."""
        if self._begun is not None:
            self._add(seconds=time.perf_counter() - self._begun, waiting=self._gaps.take())
            self._begun = None

    def lap(self) -> Spent:
        """What the interval took, which ends here; the clock is paused."""
        interval, self.interval = self.interval, Spent()
        return interval

    def state_dict(self) -> dict[str, Any]:
        """For a run that is continued."""
        return {"total": list(astuple(self.total)), "interval": list(astuple(self.interval))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` returned."""
        self.total, self.interval = Spent(*state["total"]), Spent(*state["interval"])

    def _add(self, steps: int = 0, seconds: float = 0.0, waiting: float = 0.0) -> None:
        for spent in (self.total, self.interval, self.here):
            spent.steps += steps
            spent.seconds += seconds
            spent.waiting += waiting


class _Gaps(Protocol):
    """Adds up the times between `begin` and `end`, in seconds."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def take(self) -> float:
        """The sum, which begins anew."""
        ...


def _gaps_of(device: torch.device) -> _Gaps:
    return _DeviceGaps(partial(_mark_on, device)) if device.type == "cuda" else _HostGaps()


class _HostGaps:
    """As this process sees them."""

    def __init__(self) -> None:
        self._sum = self._begun = 0.0

    def begin(self) -> None:
        self._begun = time.perf_counter()

    def end(self) -> None:
        self._sum += time.perf_counter() - self._begun

    def take(self) -> float:
        found, self._sum = self._sum, 0.0
        return found


class _DeviceGaps:
    """As the GPU sees them: it notes the time when it comes to a mark among its work.

    Args:
        mark: puts a mark (`torch.cuda.Event`) behind the work given to the GPU so far.
    """

    def __init__(self, mark: Callable[[], Any]) -> None:
        self._mark = mark
        self._open: Any = None
        self._marks: deque[tuple[Any, Any]] = deque()
        self._sum = 0.0

    def begin(self) -> None:
        self._open = self._mark()

    def end(self) -> None:
        self._marks.append((self._open, self._mark()))
        while len(self._marks) > 1 and self._marks[0][1].query():  # those that it has passed
            self._take()

    def take(self) -> float:
        while self._marks:
            self._marks[0][1].synchronize()
            self._take()
        found, self._sum = self._sum, 0.0
        return found

    def _take(self) -> None:
        begun, ended = self._marks.popleft()
        self._sum += begun.elapsed_time(ended) / 1e3  # it counts in milliseconds


def _mark_on(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))  # not always the current device's
    return event


def peak_memory_mb(device: torch.device) -> float:
    """Most memory ever taken by this process: on the GPU, or else of the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # Linux counts what the program that started this one held into `ru_maxrss`, not into VmHWM.
    status = Path("/proc/self/status")
    if status.exists() and (peak := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        return int(peak[1]) / 2**10
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return taken / (2**20 if sys.platform == "darwin" else 2**10)
