"""The kernels of OpenBLAS, and processes that compute with one of them each.

NumPy and faiss bring an OpenBLAS, which chooses its kernel by the processor, not always the fastest
one. `OPENBLAS_CORETYPE` names another one when a process starts.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

V = TypeVar("V")
VARIABLE = "OPENBLAS_CORETYPE"
AUTOMATIC = "auto"
KERNELS = (AUTOMATIC, "Haswell", "Zen", "SkylakeX")


class KernelProcess:
    """A process whose products are those of a kernel.

    Args:
        pool: of one process.
    """

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def call(self, function: Callable[..., V], *arguments: object) -> V:
        """Returns what a function of a module returns in the process."""
        return self._pool.submit(function, *arguments).result()


@contextmanager
def kernel_processes(names: tuple[str, ...] = KERNELS) -> Iterator[dict[str, KernelProcess]]:
    """Starts a process for each kernel that this processor has, by name."""
    processes = {}
    with ExitStack() as stack:
        for name in names:
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(1, spawn))
            process = KernelProcess(pool)
            with _environment(name):
                try:
                    process.call(multiply)
                except BrokenProcessPool:  # an instruction that the processor does not have
                    continue
            processes[name] = process
        yield processes


@contextmanager
def _environment(kernel: str) -> Iterator[None]:
    """Names a kernel to processes that start meanwhile."""
    before = os.environ.pop(VARIABLE, None)
    if kernel != AUTOMATIC:
        os.environ[VARIABLE] = kernel
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def multiply() -> list[str]:
    """Multiplies once by NumPy; returns the kernels of the libraries that are loaded."""
    import numpy as np
    from threadpoolctl import threadpool_info

    part = np.ones((64, 64), np.float32)
    part @ part
    libraries: list[dict[str, Any]] = threadpool_info()
    return [library["architecture"] for library in libraries if "architecture" in library]
