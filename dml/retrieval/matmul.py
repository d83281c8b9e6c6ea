"""Matrix products in true float32, by the fastest kernel of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

_precision_lock = Lock()
_searches = 0  # that need full float32 now
_precision_before: tuple[str, ...] = ()


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Keeps products in true float32, whatever precision training runs in.

    The error bounds hold for nothing less: TF32 and bfloat16 products keep 11 and 8 bits. The
    setting is one for all threads: the first search saves it, the last one puts it back.
    """
    global _searches, _precision_before
    with _precision_lock:
        if _searches == 0:
            _precision_before = _set_precision(("highest",))
        _searches += 1
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        with _precision_lock:
            _searches -= 1
            if _searches == 0:
                _set_precision(_precision_before)


def _set_precision(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Sets the precision of products; returns what it was, in the form that sets it again.

    PyTorch has an older setting and one per backend, and refuses to read the older one after a
    program has used the others.
    """
    backends: Any = torch.backends
    matmuls = (backends.cuda.matmul, backends.mkldnn.matmul)
    if len(wanted) == 1:
        try:
            before = (torch.get_float32_matmul_precision(),)
            torch.set_float32_matmul_precision(wanted[0])
            return before
        except RuntimeError:
            wanted = ("ieee", "ieee")
    each = tuple(str(matmul.fp32_precision) for matmul in matmuls)
    for matmul, word in zip(matmuls, wanted, strict=True):
        matmul.fp32_precision = word
    return each


Product = Callable[[Tensor, Tensor, Tensor], Tensor]


def fastest_product(dim: int, device: torch.device) -> Product:
    """Returns the faster way to a·bᵀ (n×c) for a (n×dim), b (c×dim) and a buffer (n×c).

    The result may lie in the buffer or in memory of its own. Call it within `full_float32`.
    PyTorch's default on a CPU is MKL, which uses AVX-512 on some processors only; oneDNN on all
    that have it.
    """
    wide = device.type == "cpu" and "AVX512" in torch.backends.cpu.get_cpu_capability()
    one_dnn = wide and _one_dnn_is_faster(dim, torch.get_num_threads())
    return _one_dnn if one_dnn else _default


def _default(a_nE: Tensor, b_cE: Tensor, out_nc: Tensor) -> Tensor:
    return torch.mm(a_nE, b_cE.T, out=out_nc)  # fresh memory would halve the speed


def _one_dnn(a_nE: Tensor, b_cE: Tensor, out_nc: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a_nE, b_cE, None, "none", [], "")


@lru_cache
def _one_dnn_is_faster(dim: int, threads: int) -> bool:
    """Times both products on this machine; oneDNN's must be as accurate and clearly faster."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, dim, generator=generator, dtype=torch.float32) for n in (512, 1024))
    out = torch.empty(512, 1024, dtype=torch.float32)
    try:
        error = (_one_dnn(a, b, out).double() - a.double() @ b.double().T).abs()
    except (AttributeError, NotImplementedError, RuntimeError):
        return False  # a build without oneDNN
    bound = (dim + 2) * 2.0**-24 * a.norm(dim=1)[:, None] * b.norm(dim=1)
    if not bool((error <= bound).all()):
        return False
    best: dict[Product, float] = {_one_dnn: float("inf"), _default: float("inf")}
    for _ in range(3):
        for product in best:
            start = time.perf_counter()
            product(a, b, out)
            best[product] = min(best[product], time.perf_counter() - start)
    return best[_one_dnn] < 0.9 * best[_default]
