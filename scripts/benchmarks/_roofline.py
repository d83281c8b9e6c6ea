"""Roofline of a training step: the speed that its arithmetic and its memory traffic allow.

The FLOPs are those of matrix products and convolutions, which torch counts. The bytes are those
that all operations read and write when each runs by itself; fused ones (`compile`) move fewer. Both
are divided by rates measured on the same device in the same run, not by those of a data sheet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from dml.training.device import autocast

from ._operations import is_view
from ._training_loops import Loop

SIDES = {"cpu": 1024, "cuda": 8192}  # of the matrices; the smallest that reach the full rate
RUNS = 5  # of which the fastest counts
COPY_BYTES = {"cpu": 2**28, "cuda": 2**30}  # larger than all caches


@dataclass(frozen=True)
class Work:
    """Floating-point operations and bytes moved by a step, forward and backward."""

    flops: float
    bytes: float

    def images_per_second(self, batch: int, flop_rate: float, byte_rate: float) -> float:
        """Returns what the slower of both rates allows."""
        return batch / max(self.flops / flop_rate, self.bytes / byte_rate)


def count_work(loop: Loop, precision: str) -> Work:
    """Counts one step of a loop's network and loss, which changes nothing but BatchNorm.

    Args:
        loop: one that is not compiled.
        precision: fp32 | tf32 | bf16.
    """
    size, device = loop.setting.size, loop.device
    images = torch.randn(loop.setting.batch, 3, size, size, device=device)
    labels = torch.arange(loop.setting.batch, device=device) % loop.classes
    traffic = _Traffic()
    with FlopCounterMode(display=False) as counter, traffic:
        with autocast(precision, device):
            loss, _ = loop.method(loop.embedder, images, labels)
        loss.backward()
    loop.embedder.zero_grad()
    loop.method.zero_grad()
    return Work(counter.get_total_flops(), traffic.bytes)


class _Traffic(TorchDispatchMode):
    """The sum of the bytes that operations read and write; views move none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not is_view(func, (args, kwargs), result):
            for leaf in tree_leaves((args, kwargs, result)):
                if isinstance(leaf, Tensor):
                    self.bytes += leaf.numel() * leaf.element_size()
        return result


def measure_flop_rate(precision: str, device: torch.device) -> float:
    """Returns the FLOP/s of a large matrix product in the format of a precision."""
    side = SIDES[device.type]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(side, side, device=device).to(dtype)
    b = torch.randn(side, side, device=device).to(dtype)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        return 2 * side**3 / _seconds(lambda: torch.mm(a, b))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def measure_byte_rate(device: torch.device) -> float:
    """Returns the bytes/s, read and written, of a copy within the memory of the device."""
    size = COPY_BYTES[device.type]
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source))


def _seconds(work: Callable[[], object]) -> float:
    """Returns the time of the fastest of a few runs: other programs must not lower the roof."""
    timer = Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
    return min(timer.timeit(1).mean for _ in range(RUNS))
