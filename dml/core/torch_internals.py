"""What this package uses of PyTorch that is not in its public interface, all in one module.

`tests/test_private_names.py` names the version of PyTorch that no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

Function = TypeVar("Function", bound=Callable[..., Any])

# The base class of all BatchNorm layers, also of SyncBatchNorm and of timm's.
BatchNorm = _BatchNorm


def not_compiled(function: Function) -> Function:
    """Excludes a function from `torch.compile`, as a decorator.

    The public `torch.compiler.disable` imports torch._dynamo at once, which takes seconds.
    """
    return cast(Function, torch._disable_dynamo(function))


def add_differences(
    sums: list[Tensor], minuends: list[Tensor], subtrahends: list[Tensor], factor: float
) -> None:
    """Adds factor · (minuend − subtrahend) to each of the sums, in place.

    A few kernels for all tensors of a network, as in PyTorch's optimizers, instead of two for each.
    """
    # The difference first, for precision. mypy takes it for a tuple or None.
    differences: Any = torch._foreach_sub(minuends, subtrahends)
    torch._foreach_add_(sums, differences, alpha=factor)
