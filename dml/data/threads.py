"""A map over items in threads, for functions that release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """Yields `function(item)` in order.

    Unlike `Executor.map` alone this stores only a few results. An exception of the function is
    raised at its item and cancels the later items.
    """
    rest, threads, previous = iter(items), os.cpu_count() or 1, torch.get_num_threads()
    # One thread per item: otherwise torch would start several threads in each thread of the pool.
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        while some := list(islice(rest, 16 * threads)):
            yield from pool.map(function, some)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(previous)
