"""A map over items in threads, for functions that release the interpreter lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[Result, None, None]:
    """Yields `function(item)` in order, a few items per core ahead of the consumer.

    Unlike `Executor.map` this stores only a few results. An exception of the function is raised at
    its item and cancels the later items.
    """
    threads = os.cpu_count() or 1
    previous = torch.get_num_threads()
    # One thread per item: otherwise torch would start several threads in each thread of the pool.
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    ahead: deque[Future[Result]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > 4 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(previous)
