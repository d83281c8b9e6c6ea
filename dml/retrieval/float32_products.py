"""Matrix products in full float32, independent of the precision of the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def full_float32(device: torch.device) -> Iterator[None]:
    """Computes products in full float32 within the context, in all threads.

    The error bounds require this: TF32 and bfloat16 products have only 11 and 8 bits.
    """
    previous = _set_precision(("highest",))
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        _set_precision(previous)


def _set_precision(settings: tuple[str, ...]) -> tuple[str, ...]:
    """Sets the precision of products; returns the previous setting, for a later call.

    PyTorch has an older global setting and one per backend, and raises an error if the older one is
    read after a program has used the others.
    """
    backends: Any = torch.backends
    matmuls = (backends.cuda.matmul, backends.mkldnn.matmul)
    if len(settings) == 1:
        try:
            previous = (torch.get_float32_matmul_precision(),)
            torch.set_float32_matmul_precision(settings[0])
            return previous
        except RuntimeError:
            settings = ("ieee", "ieee")
    each = tuple(str(matmul.fp32_precision) for matmul in matmuls)
    for matmul, setting in zip(matmuls, settings, strict=True):
        matmul.fp32_precision = setting
    return each
