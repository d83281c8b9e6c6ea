"""The optimizer and its parameter groups: backbone, BatchNorm, head, and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from dml.core.errors import ConfigError, first_line, nearest
from dml.core.torch_internals import BatchNorm

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)  # torch's kernels for GPUs


def parameter_groups(
    embedder: nn.Module,
    method: nn.Module,
    *,
    lr: float,
    weight_decay: float = 0.0,
    loss_lr: float | None = None,
    loss_lr_ratio: float | None = None,
    groups: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Returns named parameter groups that contain every trainable parameter exactly once.

    Args:
        embedder: its `backbone` is one group, its other parameters are the group `head`.
        method: its parameters, including those of the loss, are the group `loss`.
        lr: learning rate of backbone and head.
        weight_decay: weight decay of all groups.
        loss_lr: learning rate of the group `loss`; None: `lr` × `loss_lr_ratio`.
        loss_lr_ratio: see `loss_lr`.
        groups: group name → options of that group (`lr`, `weight_decay`, …). The group
            `batch_norm`, for γ and β of BatchNorm layers, exists only if it is named here.

    Raises:
        ConfigError: the loss has parameters but no learning rate.
    """
    layers = embedder.modules() if "batch_norm" in groups else ()
    norm_layers = nn.ModuleList(layer for layer in layers if isinstance(layer, BatchNorm))
    grouped: set[int] = set()

    def take(module: nn.Module) -> list[nn.Parameter]:
        """Returns the trainable parameters of a module that are not in a group yet."""
        new = [p for p in module.parameters() if p.requires_grad and id(p) not in grouped]
        grouped.update(map(id, new))
        return new

    norms, backbone = take(norm_layers), take(embedder.get_submodule("backbone"))
    head, of_loss = take(embedder), take(method)
    if of_loss and loss_lr is None:
        if loss_lr_ratio is None:
            raise ConfigError(["optim.loss_lr: the loss has parameters; set it, or loss_lr_ratio"])
        loss_lr = lr * loss_lr_ratio
    return [
        {"name": name, "params": parameters, "lr": rate, "weight_decay": weight_decay}
        | dict(groups.get(name, {}))
        for name, parameters, rate in (
            ("backbone", backbone, lr),
            ("batch_norm", norms, lr),
            ("head", head, lr),
            ("loss", of_loss, loss_lr),
        )
        if parameters
    ]


def build_optimizer(
    optimizer_class: Callable[..., Optimizer],
    groups: list[dict[str, Any]],
    args: dict[str, Any],
) -> Optimizer:
    """Returns the optimizer of parameter groups, fused on GPUs by default.

    `args` can change this by `fused`, or by `foreach` or `differentiable`, which exclude it.

    Raises:
        ConfigError: `args` or an option of a group are invalid for the optimizer, or the class is
            none.
    """
    on_gpu = all(p.is_cuda for group in groups for p in group["params"])
    chosen = args.get("foreach") or args.get("differentiable")
    if on_gpu and not chosen and optimizer_class in FUSED:
        args = {"fused": True, **args}
    try:
        optimizer = optimizer_class(groups, **args)
    except Exception as error:  # of any class, by torch or a custom optimizer
        raise ConfigError([f"optim.args: {first_line(error)}"]) from error
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(["optim._target_: does not create a torch.optim.Optimizer"])
    problems = list(_find_unknown_options(optimizer, groups))
    if problems:
        raise ConfigError(problems)
    return optimizer


def _find_unknown_options(optimizer: Optimizer, groups: list[dict[str, Any]]) -> Iterator[str]:
    """Yields a problem for each option of a group that torch would keep without a word."""
    known = {"lr", "weight_decay", *optimizer.defaults}
    for group in groups:
        for key in sorted(group.keys() - {"name", "params"} - known):
            hint = nearest(key, known) or f"; its groups have {', '.join(sorted(known))}"
            option = f"optim.groups.{group['name']}.{key}"
            yield f"{option}: {type(optimizer).__name__} takes no such option{hint}"
