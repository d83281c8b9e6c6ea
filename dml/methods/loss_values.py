"""What a loss returns, as a scalar with a graph: also for a batch that teaches nothing.

Public losses of pairs and triplets return 0, or a tensor without a graph, if no pair of a batch
violates their margin. The step of such a batch is that of zero gradients, as for the losses of
pytorch-metric-learning: momentum, weight decay and the hooks of a method act as in other steps.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError
from dml.training.interfaces import EMPTY_STEPS


class LossValue(NamedTuple):
    """The loss of a batch.

    Attributes:
        value: a scalar with a graph.
        is_empty: whether the loss returned 0 without a graph that leads to the embeddings.
    """

    value: Tensor
    is_empty: bool


def read_loss(
    returned: Any, embeddings: Tensor, loss: nn.Module, num_classes: int | None = None
) -> LossValue:
    """Returns the result of a loss as a scalar with a graph.

    A 0 without a graph becomes one with gradients of zero for the network and for the parameters of
    the loss.

    Args:
        returned: a number, or a tensor or array with one element.
        embeddings: B×D, that the loss was computed from.
        loss: that returned it.
        num_classes: C, for the message, if logits would have been accepted.

    Raises:
        ConfigError: the result is not one number, or a number other than 0 without a gradient.
    """
    value = _as_scalar(returned, num_classes)
    if isinstance(value, float):
        number = value  # which needs no copy to a GPU, for which the host would wait
    elif not torch.is_grad_enabled() or _has_gradient(value, embeddings, loss):
        return LossValue(value, False)
    else:
        number = value.item()
    if number == 0:
        zero = _zero(embeddings, loss)
        if zero.requires_grad or not torch.is_grad_enabled():
            return LossValue(zero, True)
    elif (
        isinstance(value, Tensor) and value.grad_fn is not None
    ):  # such as a regularizer of the loss's parameters alone
        return LossValue(value, False)
    if not math.isfinite(number):
        raise ConfigError([f"loss: returned {number} without a graph; is it a mean of no pairs?"])
    raise ConfigError([f"loss: its value has no gradient; is it detached? It is {number:.4g}"])


def empty_logs(*values: LossValue) -> dict[str, Tensor]:
    """Returns what a step logs if all its losses are empty; else nothing."""
    if all(value.is_empty for value in values):
        return {EMPTY_STEPS: torch.ones_like(values[0].value).detach()}
    return {}


def _as_scalar(returned: Any, num_classes: int | None) -> Tensor | float:
    if isinstance(returned, Real):
        return float(returned)
    if isinstance(returned, np.ndarray) and returned.size == 1:
        return float(returned.item())
    if isinstance(returned, Tensor) and returned.numel() == 1:
        return returned.reshape(()) if returned.ndim else returned
    got = repr(returned)
    if isinstance(returned, Tensor | np.ndarray):
        got = f"a tensor of shape {list(returned.shape)}"
    wanted = "one number, or a 0-d tensor"
    if num_classes is not None:
        wanted = f"one number, a 0-d tensor, or logits for the {num_classes} classes"
    raise ConfigError([f"loss: must return {wanted}; returned {got}"])


def _has_gradient(value: Tensor, embeddings: Tensor, loss: nn.Module) -> bool:
    """Returns whether a backward pass reaches the embeddings.

    If these have no gradient, because the network is frozen, a graph or a parameter is enough.
    """
    if value.grad_fn is None:
        is_parameter = any(value is parameter for parameter in loss.parameters())
        return is_parameter and not embeddings.requires_grad
    return not embeddings.requires_grad or _leads_to(value, embeddings)


def _leads_to(value: Tensor, embeddings: Tensor) -> bool:
    if embeddings.grad_fn is None:  # a leaf, which only the graph's last nodes know
        gradients = torch.autograd.grad(value, embeddings, retain_graph=True, allow_unused=True)
        return gradients[0] is not None
    waiting, seen = [value.grad_fn], {value.grad_fn}
    while waiting:
        node = waiting.pop()
        if node is embeddings.grad_fn:
            return True
        for following, _ in node.next_functions:  # type: ignore[union-attr]
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _zero(embeddings: Tensor, loss: nn.Module) -> Tensor:
    zero = (0 * embeddings).sum()
    for parameter in loss.parameters():
        if parameter.requires_grad:
            zero = zero + (0 * parameter).sum().to(zero)
    return zero
