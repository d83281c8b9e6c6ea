"""Threads that take one tile each, instead of many threads for each operation.

A tile takes twenty short operations. Threads that share each of them wait for one another twenty
times, and on a busy machine every such wait may cost a time slice; threads that take a tile each
wait once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
BYTES_PER_WORKER = 24 << 20  # a tile of 9 MB and what selecting from it takes


def worker_count(memory_bytes: int) -> int:
    """Returns how many tiles to work on at once, as memory and PyTorch's threads allow."""
    return max(1, min(torch.get_num_threads(), memory_bytes // BYTES_PER_WORKER))


class Workers:
    """A pool of threads for as long as the context lasts.

    PyTorch's own threads are shared out among them, the caller included: what it does in between is
    short, and threads woken for that go on spinning for milliseconds where workers want to run.

    Args:
        count: how many; one means the caller alone.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> Workers:
        self._threads = torch.get_num_threads()
        share = max(1, self._threads // self.count)
        torch.set_num_threads(share)
        self._pool = ThreadPoolExecutor(
            self.count, "tiles", initializer=torch.set_num_threads, initargs=(share,)
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        # a new thread takes over what was set last, so the number must be set back at the end
        torch.set_num_threads(self._threads)

    def for_each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Returns the function's value for each item, computed without gradients."""

        def without_gradients(item: Item) -> Result:
            with torch.no_grad():
                return function(item)

        if self.count == 1:
            return [without_gradients(item) for item in items]
        return list(self._pool.map(without_gradients, items))
