"""Threads of the matrix products of NumPy: how many there are, and one for each of our threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy  # noqa: F401, whose library of products must be loaded
from threadpoolctl import ThreadpoolController


class _Limit:
    """The limit of one thread, which callers in several threads may hold at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._limiter: Any = None

    def hold(self) -> None:
        with self._lock:
            if not self._holders:
                self._limiter = _controller().limit(limits=1)
                self._limiter.__enter__()
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                self._limiter.__exit__(None, None, None)


_LIMIT = _Limit()


@cache
def _controller() -> Any:
    """Returns the libraries of products; looking for them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


def count_threads() -> int:
    """Returns the threads of a product of NumPy, as `OMP_NUM_THREADS` and the cores allow."""
    return max((library["num_threads"] for library in _controller().info()), default=1)


@contextmanager
def one_thread_a_product() -> Iterator[None]:
    """Computes each product in the thread that asks for it; the number is restored afterwards.

    Where several threads ask for products, the threads of each would wait for each other. The
    setting holds for the whole process, until the last context in any thread has ended.
    """
    _LIMIT.hold()
    try:
        yield
    finally:
        _LIMIT.release()
