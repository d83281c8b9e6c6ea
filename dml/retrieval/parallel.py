"""Parallel work on tiles: one thread per tile instead of many threads per operation.

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


def worker_count(device: torch.device, memory_bytes: int) -> int:
    """Returns how many tiles to work on at once: one on a GPU, else as memory and threads allow."""
    if device.type != "cpu":
        return 1
    return max(1, min(torch.get_num_threads(), memory_bytes // BYTES_PER_WORKER))


class Workers:
    """Threads that take a tile each, for as long as the context lasts.

    PyTorch's own threads are shared out among them, the caller included: what it does in between is
    short, and threads woken for that go on spinning for milliseconds where workers want to run.

    Args:
        count: how many; one means the caller alone.
        teams: whether each may have PyTorch's threads for its operations, if there are more than
            workers. On operations too small for that, threads wait more than they work.
    """

    def __init__(self, count: int, *, teams: bool = True) -> None:
        self.count = count
        self.teams = teams

    def __enter__(self) -> Workers:
        self._threads = torch.get_num_threads()
        self._share = max(1, self._threads // self.count) if self.teams else 1
        torch.set_num_threads(self._share)
        self._pool = ThreadPoolExecutor(
            self.count, "tiles", initializer=torch.set_num_threads, initargs=(self._share,)
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        # a new thread takes over what was set last, so the number must be set back at the end
        torch.set_num_threads(self._threads)

    def for_each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Returns the function's value for each item, computed without gradients."""
        todo = list(items)

        def without_gradients(item: Item) -> Result:
            with torch.no_grad():
                return function(item)

        if self.count == 1:
            return [without_gradients(item) for item in todo]
        return list(self._pool.map(without_gradients, todo))
