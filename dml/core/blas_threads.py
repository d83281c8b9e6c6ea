"""Threads of the matrix products of NumPy: how many there are, and one for each of our threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


def count_threads() -> int:
    """Returns the threads of a product of NumPy, as `OMP_NUM_THREADS` and the cores allow."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return max((library["num_threads"] for library in libraries), default=1)


@contextmanager
def one_thread_a_product() -> Iterator[None]:
    """Computes each product in the thread that asks for it; the number is restored afterwards.

    Where several threads ask for products, the threads of each would wait for each other. The
    setting holds for the whole process.
    """
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        yield
