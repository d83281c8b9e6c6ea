"""Collective operations between processes, with their gradients.

Every process computes the same loss L of the whole batch. On n processes, autograd differentiates
the sum of their losses, nL: the gradients of any parameter, summed over the processes, are n times
those of L, and their average (`DataParallelLoss`) is exactly that of a single process. This holds
for parameters before and after a collective operation, provided that the operation passes
gradients back exactly: rows sent to all processes receive the sum of the gradients of all.
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


class ConnectionLost(UserError):
    """Another process of the run ended or cannot be reached."""


@contextmanager
def translate_connection_errors(in_backward: bool = False) -> Iterator[None]:
    """Turns the failure of a collective operation into an error message for users.

    Args:
        in_backward: a backward pass, whose other errors (no memory, a mistake in a loss) stay.

    Raises:
        ConnectionLost: another process ended.
    """
    try:
        yield
    except RuntimeError as error:
        # DistributedDataParallel passes errors of gloo on, which have no class of their own.
        if in_backward and not (isinstance(error, dist.DistError) or "/gloo/" in str(error)):
            raise
        line = (str(error).splitlines() or [""])[0].rsplit("] ", 1)[-1]
        reason = line.partition(". ")[0]
        raise ConnectionLost(
            f"torchrun: process {dist.get_rank()} lost contact with another of "
            f"{dist.get_world_size()}, which ended or was killed ({reason}); the last checkpoint "
            f"is intact, and the same command continues from it with any number of processes"
        ) from error


class GatherRows(torch.autograd.Function):
    """Gathers rows B×… of n processes into nB×…, in the order of ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        """Returns the rows of all processes."""
        gathered = rows.new_empty(dist.get_world_size() * len(rows), *rows.shape[1:])
        with translate_connection_errors():
            dist.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Returns the sum of the gradients of this process's rows."""
        local = gradient.new_empty(len(gradient) // dist.get_world_size(), *gradient.shape[1:])
        with translate_connection_errors():
            dist.reduce_scatter_tensor(local, gradient.contiguous())
        return local


class AllReduceSum(torch.autograd.Function):
    """Sums the tensors of all processes; every process gets the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Returns the sum."""
        return all_reduce_sum_(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Returns the sum of the gradients of all processes."""
        return all_reduce_sum_(gradient.clone(memory_format=torch.contiguous_format))


def all_reduce_sum_(x: Tensor) -> Tensor:
    """Sums in place, without a gradient."""
    with translate_connection_errors():
        dist.all_reduce(x)
    return x
