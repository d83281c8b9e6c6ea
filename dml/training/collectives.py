"""What processes exchange, with the gradient that belongs to it.

Every process computes the same loss L of the whole batch. What autograd differentiates on n of them
is the sum of their losses, nL, so that the gradients of any parameter, summed over the processes,
are n times those of L: `World.average_gradients` gives exactly those of one process. This holds
wherever a parameter is used, before an exchange or after it, if only each exchange passes gradients
back as calculus has it: what one process sent to all gets back the sum of what all say of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from dml.core.errors import UserError


class LostContact(UserError):
    """Another process of the run ended or cannot be reached."""


@contextmanager
def contact() -> Iterator[None]:
    """Tells in the user's terms that an exchange failed.

    Raises:
        LostContact: it did.
    """
    try:
        yield
    except RuntimeError as error:
        line = (str(error).splitlines() or [""])[0].rsplit("] ", 1)[-1]
        reason = line.partition(". ")[0]
        raise LostContact(
            f"torchrun: process {dist.get_rank()} lost contact with another of "
            f"{dist.get_world_size()}, which ended or was killed ({reason}); the last checkpoint "
            f"is intact, and the same command goes on from it with any number of processes"
        ) from error


class AllGather(torch.autograd.Function):
    """Rows B×… of all n processes, equally many each: nB×…, in the order of ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        """Gathers."""
        gathered = rows.new_empty(dist.get_world_size() * len(rows), *rows.shape[1:])
        with contact():
            dist.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Sums what all processes say of this one's rows."""
        own = gradient.new_empty(len(gradient) // dist.get_world_size(), *gradient.shape[1:])
        with contact():
            dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own


class AllSum(torch.autograd.Function):
    """The sum of all processes' tensors, which each of them gets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Sums."""
        return all_sum_(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Sums what all processes say of the sum."""
        return all_sum_(gradient.clone(memory_format=torch.contiguous_format))


def all_sum_(x: Tensor) -> Tensor:
    """Sums in place, without a gradient."""
    with contact():
        dist.all_reduce(x)
    return x
