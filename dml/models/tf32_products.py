"""TF32 in the matrix products of a network, and in no others.

GPUs take ten bits of each factor then, as they may do for convolutions: three times as fast, and
what transformers consist of. The setting is one for the whole process, and a loss, whose products
must stay exact, takes part in the same backward pass. So it is on while features are computed, and
from the moment at which the backward pass of the loss has arrived at them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Variable


def with_tf32_products(network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Returns `network(images)`, forwards and backwards with TF32 products."""
    _allow(True)
    try:
        features = network(images)
    finally:
        _allow(False)
    if features.requires_grad:
        features.register_hook(_begin_backward)
    return features


def _begin_backward(gradient: Tensor) -> None:
    """Allows TF32 until the end of the running backward pass."""
    Variable._execution_engine.queue_callback(lambda: _allow(False))
    _allow(True)


def _allow(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
