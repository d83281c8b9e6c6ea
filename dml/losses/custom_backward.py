"""Decorator for the hand-written gradients of this package."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


def first_order_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `backward` of an autograd function: no autocast, an error for second derivatives.

    torch's `once_differentiable` raises an error only if the incoming gradient requires a gradient:
    without an error here, a gradient penalty would silently have no effect.

    Raises:
        RuntimeError: the gradient is computed with `create_graph=True`.
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: Tensor) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "this loss has no second derivative: compute its gradient without create_graph=True"
            )
        with torch.autocast(device_type=gradients[0].device.type, enabled=False):
            return backward(ctx, *gradients)

    return run
