"""The optimizer and its parameter groups: backbone, BatchNorm, head, and loss."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    layer_decay: float = 1.0,
) -> list[dict[str, Any]]:
    """Returns named parameter groups that contain every trainable parameter exactly once.

    Args:
        embedder: its `backbone` is one group, its other parameters are the group `head`.
        method: its parameters, including those of the loss, are the group `loss`.
        lr: learning rate of backbone and head.
        weight_decay: weight decay of all groups.
        loss_lr: learning rate of the group `loss`; None: `lr` × `loss_lr_ratio`.
        loss_lr_ratio: see `loss_lr`.
        groups: group name → options of that group (`lr`, `weight_decay`, …). Two groups exist only
            if they are named here: `batch_norm`, for γ and β of BatchNorm layers, and `bias`, for
            what is left of what timm trains without weight decay: biases, scales and shifts of
            norms, and position embeddings and class tokens of many networks.
        layer_decay: the rates of a layer of the backbone are this share of those of the next layer,
            as timm divides the network into layers; a group has parts then, `backbone`,
            `backbone_1`, … from the last layer to the first. 1: equal rates.

    Raises:
        ConfigError: the loss has parameters but no learning rate.
    """
    layers = embedder.modules() if "batch_norm" in groups else ()
    norm_layers = nn.ModuleList(layer for layer in layers if isinstance(layer, BatchNorm))
    grouped: set[int] = set()

    def take(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """Returns the trainable parameters that are not in a group yet."""
        new = [p for p in parameters if p.requires_grad and id(p) not in grouped]
        grouped.update(map(id, new))
        return new

    norms = take(norm_layers.parameters())
    biases = take(_find_biases(embedder)) if "bias" in groups else []
    backbone = take(embedder.get_submodule("backbone").parameters())
    head, of_loss = take(embedder.parameters()), take(method.parameters())
    if of_loss and loss_lr is None:
        if loss_lr_ratio is None:
            raise ConfigError(["optim.loss_lr: the loss has parameters; set it, or loss_lr_ratio"])
        loss_lr = lr * loss_lr_ratio
    scales = _layer_scales(embedder.get_submodule("backbone"), layer_decay)
    parts: list[dict[str, Any]] = []
    for name, parameters, rate in (
        ("backbone", backbone, lr),
        ("batch_norm", norms, lr),
        ("bias", biases, lr),
        ("head", head, lr),
        ("loss", of_loss, loss_lr),
    ):
        group = {"name": name, "params": parameters, "lr": rate, "weight_decay": weight_decay}
        parts += _divide(group | dict(groups.get(name, {})), scales)
    return parts


def _find_biases(embedder: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters of a network that timm trains without weight decay."""
    from timm.optim import param_groups_weight_decay

    network: Any = getattr(embedder.backbone, "network", None)
    names = []
    if hasattr(network, "no_weight_decay"):
        names = [f"backbone.network.{name}" for name in network.no_weight_decay()]
    without, _ = param_groups_weight_decay(embedder, no_weight_decay_list=names)
    parameters: list[nn.Parameter] = without["params"]
    return parameters


def _layer_scales(backbone: nn.Module, layer_decay: float) -> dict[int, float]:
    """Returns id of a parameter → share of the learning rate, as timm divides its networks.

    It is empty for other networks, and if all rates are equal.
    """
    network = getattr(backbone, "network", None)
    if layer_decay == 1 or not isinstance(network, nn.Module):
        return {}
    from timm.optim import param_groups_layer_decay

    layers = param_groups_layer_decay(
        network, weight_decay_exclude_1d=False, layer_decay=layer_decay
    )
    scales = {}
    for layer in layers:
        scales.update(dict.fromkeys(map(id, layer["params"]), layer["lr_scale"]))
    return scales


def _divide(group: dict[str, Any], scales: Mapping[int, float]) -> Iterator[dict[str, Any]]:
    """Yields the parts of a group whose learning rates are equal, the largest rate first."""
    parts: dict[float, list[nn.Parameter]] = defaultdict(list)
    for parameter in group["params"]:
        parts[scales.get(id(parameter), 1.0)].append(parameter)
    for number, (scale, parameters) in enumerate(sorted(parts.items(), reverse=True)):
        name = f"{group['name']}_{number}" if number else group["name"]
        yield {**group, "name": name, "params": parameters, "lr": group["lr"] * scale}


def build_optimizer(
    optimizer_class: Callable[..., Optimizer],
    groups: list[dict[str, Any]],
    args: dict[str, Any],
) -> Optimizer:
    """Returns the optimizer of parameter groups, fused on GPUs by default.

    `args` can change this by `fused`, or by `foreach` or `differentiable`, which exclude it. For a
    class without fused kernels `fused`, which some protocols set, is left out.

    Raises:
        ConfigError: `args` or an option of a group are invalid for the optimizer, or the class is
            none.
    """
    try:
        optimizer = optimizer_class(groups, **_choose_kernels(optimizer_class, groups, args))
    except Exception as error:  # of any class, by torch or a custom optimizer
        raise ConfigError([f"optim.args: {first_line(error)}"]) from error
    if not isinstance(optimizer, Optimizer):
        raise ConfigError(["optim._target_: does not create a torch.optim.Optimizer"])
    problems = list(dict.fromkeys(_find_unknown_options(optimizer, groups)))
    if problems:
        raise ConfigError(problems)
    return optimizer


def _choose_kernels(
    optimizer_class: Callable[..., Optimizer], groups: list[dict[str, Any]], args: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of an optimizer, with or without `fused`; see `build_optimizer`."""
    on_gpu = all(p.is_cuda for group in groups for p in group["params"])
    chosen = args.get("foreach") or args.get("differentiable")
    if on_gpu and not chosen and optimizer_class in FUSED:
        return {"fused": True, **args}
    if _has_fused_kernels(optimizer_class):
        return args
    return {name: value for name, value in args.items() if name != "fused"}


def _has_fused_kernels(optimizer_class: Callable[..., Optimizer]) -> bool:
    """Returns whether a class takes the argument `fused`; True where that cannot be seen."""
    try:
        parameters = inspect.signature(optimizer_class).parameters
    except (TypeError, ValueError):
        return True
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return takes_any or "fused" in parameters


def _find_unknown_options(optimizer: Optimizer, groups: list[dict[str, Any]]) -> Iterator[str]:
    """Yields a problem for each option of a group that torch would keep without a word."""
    known = {"lr", "weight_decay", *optimizer.defaults}
    for group in groups:
        for key in sorted(group.keys() - {"name", "params"} - known):
            hint = nearest(key, known) or f"; its groups have {', '.join(sorted(known))}"
            option = f"optim.groups.{re.sub(r'_[0-9]+$', '', group['name'])}.{key}"
            yield f"{option}: {type(optimizer).__name__} takes no such option{hint}"
