"""How the autograd functions of this package run backwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Gradients = Tensor | tuple[Tensor | None, ...] | None
Backward = Callable[..., Gradients]


def first_derivative(backward: Backward) -> Backward:
    """Makes a function's `backward` compute with autocast off, and refuse to be differentiated.

    torch's `once_differentiable` refuses only where the gradient that comes in depends on
    something: a penalty on the gradient of a loss would be left out of training without a word.

    Raises:
        RuntimeError: the gradient is computed with `create_graph=True`.
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: Tensor) -> Gradients:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "this loss has no second derivative: compute its gradient without create_graph=True"
            )
        with torch.autocast(device_type=gradients[0].device.type, enabled=False):
            return backward(ctx, *gradients)

    return run
