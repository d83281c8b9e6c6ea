"""A clock for training steps that separates computing from waiting for data.

On a CPU, the waiting time is the time inside the loader. A GPU computes while the loader loads, so
its waiting time is the gap in its own work: from the end of a step until the next batch is in its
memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch

Batch = TypeVar("Batch")


@dataclass
class TimeSpent:
    """The time that a number of training steps took.

    Attributes:
        steps: number of steps.
        seconds: of steps and of waiting for their batches, without evaluations and saving.
        waiting: the part of `seconds` spent waiting for batches.
    """

    steps: int = 0
    seconds: float = 0.0
    waiting: float = 0.0

    @property
    def waiting_share(self) -> float:
        """Waiting time per second, 0 to 1."""
        return min(1.0, self.waiting / max(self.seconds, 1e-9))

    @property
    def seconds_per_step(self) -> float:
        """Seconds of a step and its waiting; 0 without steps."""
        return self.seconds / max(self.steps, 1)

    def images_per_second(self, batch_size: int) -> float:
        """Training images per second."""
        return self.steps * batch_size / max(self.seconds, 1e-9)

    def since(self, earlier: TimeSpent) -> TimeSpent:
        """Returns the time spent after an earlier reading of the same clock."""
        return TimeSpent(
            self.steps - earlier.steps,
            self.seconds - earlier.seconds,
            self.waiting - earlier.waiting,
        )


class StepClock:
    """Measures a training loop without synchronizing the device after every step.

    Args:
        device: of the network.

    Attributes:
        total: since the first step of the model, in any process.
        in_process: in this process.
    """

    def __init__(self, device: torch.device) -> None:
        self.total, self.in_process = TimeSpent(), TimeSpent()
        self._wait_timer = _create_timer(device)
        self._started: float | None = None

    def time_batches(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the same batches; the caller's work between two of them counts as a step."""
        self.start()
        iterator = iter(batches)
        while True:
            self._wait_timer.start()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._wait_timer.stop()
            self._add(steps=1)
            yield batch

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Excludes the time inside the context.

        On a GPU the caller must have synchronized, or the rest of its steps counts as the pause.
        """
        self.stop()
        yield
        self.start()

    def start(self) -> None:
        """Starts to count time as training."""
        self._started = time.perf_counter()

    def stop(self) -> None:
        """Adds the time since `start`; the time that follows is not training."""
        self.read()
        self._started = None

    def read(self) -> TimeSpent:
        """Returns the time spent in this process up to now; the clock runs on.

        On a GPU this waits until the last batch is in its memory.
        """
        if self._started is not None:
            now = time.perf_counter()
            self._add(seconds=now - self._started, waiting=self._wait_timer.take())
            self._started = now
        return replace(self.in_process)

    def state_dict(self) -> dict[str, Any]:
        """The times that a resumed run continues from."""
        return {"total": list(astuple(self.total))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        self.total = TimeSpent(*state["total"])

    def _add(self, steps: int = 0, seconds: float = 0.0, waiting: float = 0.0) -> None:
        for spent in (self.total, self.in_process):
            spent.steps += steps
            spent.seconds += seconds
            spent.waiting += waiting


class _Timer(Protocol):
    """Sums the times between `start` and `stop`, in seconds."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def take(self) -> float:
        """Returns the sum and resets it."""
        ...


def _create_timer(device: torch.device) -> _Timer:
    return _GpuTimer(partial(_record_event, device)) if device.type == "cuda" else _CpuTimer()


class _CpuTimer:
    """Sums times of this process."""

    def __init__(self) -> None:
        self._sum = self._started = 0.0

    def start(self) -> None:
        self._started = time.perf_counter()

    def stop(self) -> None:
        self._sum += time.perf_counter() - self._started

    def take(self) -> float:
        total, self._sum = self._sum, 0.0
        return total


class _GpuTimer:
    """Sums times of a GPU, which records an event when it reaches it in its queue of work.

    Args:
        record_event: puts an event (`torch.cuda.Event`) behind the work queued so far.
    """

    def __init__(self, record_event: Callable[[], Any]) -> None:
        self._record_event = record_event
        self._first: Any = None
        self._pairs: deque[tuple[Any, Any]] = deque()
        self._sum = 0.0

    def start(self) -> None:
        self._first = self._record_event()

    def stop(self) -> None:
        self._pairs.append((self._first, self._record_event()))
        while len(self._pairs) > 1 and self._pairs[0][1].query():  # events that have passed
            self._add_oldest()

    def take(self) -> float:
        while self._pairs:
            self._pairs[0][1].synchronize()
            self._add_oldest()
        total, self._sum = self._sum, 0.0
        return total

    def _add_oldest(self) -> None:
        first, last = self._pairs.popleft()
        self._sum += first.elapsed_time(last) / 1e3  # milliseconds


def _record_event(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))  # not always the current device's
    return event
