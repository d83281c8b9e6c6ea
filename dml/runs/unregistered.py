"""Tensors of a custom loss or method that would not be trained, of which PyTorch says nothing.

They are neither parameters nor buffers of a module, so that they are neither saved nor moved to a
GPU; or they are parameters that are made after the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

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


def check_shapes(method: nn.Module, option: str) -> None:
    """Checks that parameters have a shape before the first batch.

    Args:
        method: a method with its loss.
        option: "loss" or "method", for messages.

    Raises:
        ConfigError: one has none, such as that of a `LazyLinear`.
    """
    for name, parameter in method.named_parameters():
        if is_lazy(parameter):
            raise ConfigError(
                [
                    f"{option}: {name} has no shape before the first batch, and would not be "
                    f"trained; give its shape in __init__, which can have the arguments "
                    f"embedding_size and num_classes"
                ]
            )


def check_late(earlier: Mapping[str, nn.Parameter], method: nn.Module, option: str) -> None:
    """Checks that a method made no parameter in a batch.

    Args:
        earlier: name → parameter before the batch.
        method: the method with its loss.
        option: "loss" or "method", for messages.

    Raises:
        ConfigError: it made or replaced one, which the optimizer would not know.
    """
    for name, parameter in method.named_parameters():
        if parameter is not earlier.get(name):
            raise ConfigError(
                [
                    f"{option}: {name} is made while training, and would not be trained; make it "
                    f"in __init__, which can have the arguments embedding_size and num_classes"
                ]
            )


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
