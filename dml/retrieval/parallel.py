"""Parallel work on tiles: one thread per tile instead of many threads per operation.

A tile takes twenty short operations. Threads that share each of them wait for one another twenty
times, and on a busy machine every such wait may cost a time slice; threads that take a tile each
wait once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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


def for_each(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> list[Result]:
    """Returns the function's value for each item, computed by several threads without gradients.

    PyTorch's own threads are shared out among the workers meanwhile.
    """
    todo = list(items)
    workers = min(workers, len(todo))

    def without_gradients(item: Item) -> Result:
        with torch.no_grad():
            return function(item)

    if workers <= 1:
        return [without_gradients(item) for item in todo]
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        # a new thread takes over what was set last, so the number must be set back at the end
        stack.callback(torch.set_num_threads, threads)
        pool = ThreadPoolExecutor(
            workers, "tiles", torch.set_num_threads, (max(1, threads // workers),)
        )
        stack.enter_context(pool)
        return list(pool.map(without_gradients, todo))
