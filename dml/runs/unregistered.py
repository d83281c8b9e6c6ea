"""Tensors of a custom loss or method that are neither parameters nor buffers of a module.

PyTorch neither trains nor saves them, nor moves them to a GPU, and says nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from dml.core.errors import ConfigError

NOT_CHECKED = ("dml.", "torch.", "pytorch_metric_learning.")  # packages of known modules
OF_EVERY_MODULE = vars(nn.Module())  # `_parameters` and others


def check_registered(method: nn.Module, option: str) -> list[str]:
    """Returns a note for each constant tensor of a custom module that is no buffer.

    Tensors of one element, and of integers, need none.

    Args:
        method: a method with its loss.
        option: "loss" or "method", for messages.

    Raises:
        ConfigError: a tensor requires gradients, and would not be trained.
    """
    notes: dict[str, None] = {}  # a list of tensors has one
    trained = {id(parameter) for parameter in method.parameters()}
    for name, tensor in _find_tensors(method):
        if id(tensor) in trained:
            continue
        if tensor.requires_grad and tensor.is_leaf:
            raise ConfigError(
                [
                    f"{option}: {name} requires gradients and would not be trained; use "
                    f"nn.Parameter, nn.ParameterList or nn.ModuleList, or requires_grad_(False)"
                ]
            )
        if tensor.is_floating_point() and tensor.numel() > 1:
            note = (
                f"{option}: {name} is not trained, not in checkpoints and stays on its device; "
                f"nn.Parameter trains it, register_buffer keeps it"
            )
            notes[note] = None
    return [*notes]


def _find_tensors(method: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields names and tensors of the attributes of custom modules, registered ones excepted."""
    for module in method.modules():
        if type(module).__module__.startswith(NOT_CHECKED):
            continue
        for attribute, value in vars(module).items():
            if attribute not in OF_EVERY_MODULE:
                for tensor in _tensors_in(value):
                    yield f"{type(module).__name__}.{attribute}", tensor


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
