"""Settings of PyTorch, restored when the last of several threads has ended its own work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from dml.core.held_settings import HeldSetting


def _read_precisions() -> list[str]:
    return [matmul.fp32_precision for matmul in _products()]


def _write_precisions(precisions: list[str]) -> None:
    for matmul, precision in zip(_products(), precisions, strict=True):
        matmul.fp32_precision = precision


def _products() -> tuple[Any, Any]:
    backends: Any = torch.backends
    return backends.cuda.matmul, backends.mkldnn.matmul


def _read_threads() -> int:
    """Returns the threads that PyTorch has in a new thread."""
    return _in_a_new_thread(torch.get_num_threads)


def _write_threads(threads: int) -> None:
    """Sets the threads that PyTorch has in new threads, which inherit the last number set."""
    _in_a_new_thread(torch.set_num_threads, threads)


def _in_a_new_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    with ThreadPoolExecutor(1, "threads of torch") as pool:
        return pool.submit(function, *arguments).result()


_PRECISIONS = HeldSetting(_read_precisions, _write_precisions)
_THREADS = HeldSetting(_read_threads, _write_threads)


@contextmanager
def threads_of_new_threads(share: int) -> Iterator[None]:
    """Sets the threads that PyTorch has in threads that are started within the context."""
    with _THREADS.hold(share):
        yield


@contextmanager
def fewer_threads(share: int) -> Iterator[None]:
    """Sets the threads of PyTorch in the context, for this thread and new ones."""
    threads = torch.get_num_threads()
    with threads_of_new_threads(share):
        torch.set_num_threads(share)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Computes products in full float32 within the context, in all threads.

    The error bounds require this: TF32 and bfloat16 products have only 11 and 8 bits.
    """
    held = _PRECISIONS.hold(["ieee", "ieee"])
    with held, torch.autocast(device.type, enabled=False):
        yield
