"""Matrix products in true float32, whatever precision training runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

_precision_lock = Lock()
_searches = 0  # running ones, which need full float32
_precision_before: tuple[str, ...] = ()


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Keeps products in true float32, whatever precision training runs in.

    The error bounds hold for nothing less: TF32 and bfloat16 products keep 11 and 8 bits. The
    setting is one for all threads: the first search saves it, the last one restores it.
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
