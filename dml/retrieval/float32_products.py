"""Matrix products in true float32, whatever precision training runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Keeps products in true float32, whatever precision training runs in.

    The error bounds hold for nothing less: TF32 and bfloat16 products keep 11 and 8 bits. The
    setting is one for all threads.
    """
    before = _set_precision(("highest",))
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        _set_precision(before)


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
