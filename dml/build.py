"""From nodes of the config to the objects they describe."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_class, get_method
from hydra.utils import instantiate as hydra_instantiate
from torch import nn
from torch.optim import Optimizer

from dml.config import LOSS_KEYS, METHOD_KEYS, Config, arguments
from dml.data import loaders, transforms
from dml.data.base import ImageIndex, ImageSource
from dml.data.splits import joined_gallery
from dml.errors import UserError, nearest
from dml.models.embedder import Embedder
from dml.training.optim import build_optimizer, parameter_groups


def instantiate(node: dict[str, Any], option: str, *reserved: str, **extra: Any) -> Any:
    """The object that `node._target_` makes of the node's other keys and `extra`.

    Args:
        node: with `_target_`.
        option: its name in the config, for messages.
        reserved: keys of the node that are not for the constructor.

    Raises:
        UserError: there is no such target, or it refuses its arguments.
    """
    try:
        return hydra_instantiate(arguments(node, *reserved), **extra, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__ or error
        if isinstance(cause, UserError):
            raise cause from None
        raise UserError(f"{option}: {str(cause).splitlines()[0]}") from error


def constructor_parameters(target: Any) -> dict[str, inspect.Parameter]:
    """What a class accepts by name: its own arguments and those its `**kwargs` pass upwards."""
    if not inspect.isclass(target):
        return dict(inspect.signature(target).parameters)
    accepted: dict[str, inspect.Parameter] = {}
    for cls in target.__mro__:
        if cls in (nn.Module, object):
            break
        if "__init__" not in vars(cls):
            continue
        parameters = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
        for one in parameters:
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                accepted.setdefault(one.name, one)
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            break
    return accepted


def build_index(config: Config) -> ImageIndex:
    """Reads the dataset's index."""
    index = instantiate(config.data.reader, "data.reader")
    return joined_gallery(index) if config.data.query_gallery == "none" else index


def open_source(config: Config, index: ImageIndex, device: torch.device) -> ImageSource | None:
    """Where pixels come from: the cache that `data.cache` asks for, or None to decode each time."""
    wanted = config.data.cache_device
    cache_device = str(device) if wanted == "cuda" else wanted  # the run's own GPU
    return loaders.open_source(index, config.data.cache, cache_device, config.data.root)


def build_embedder(config: Config) -> Embedder:
    """The network, with its backbone's weights."""
    backbone = instantiate(config.backbone, "backbone")
    try:
        return Embedder(backbone, **arguments(config.embedder))
    except TypeError as error:
        valid = constructor_parameters(Embedder)
        wrong = [key for key in config.embedder if key not in valid]
        hint = nearest(wrong[0], valid) if wrong else ""
        raise UserError(f"embedder: {error}{hint}") from error


@dataclass(frozen=True)
class Transforms:
    """What happens to an image on its way into the network."""

    train: nn.Module
    test: nn.Module
    to_input: nn.Module


def build_transforms(config: Config, embedder: Embedder) -> Transforms:
    """Crops and flips of the config, in the size and colors that the backbone takes."""
    t, spec = config.transform, embedder.input
    size = t.size or spec.size
    return Transforms(
        train=transforms.train_transform(
            t.augmentation,
            size,
            resize=t.resize,
            scale=t.scale,
            ratio=t.ratio,
            flip=t.flip,
            padding=t.padding,
            degrees=t.degrees,
        ),
        test=transforms.eval_transform(size, resize=t.test_resize),
        to_input=transforms.ToInput(spec.mean, spec.std, spec.channel_order, spec.scale),
    )


def build_method(config: Config, num_classes: int, embedding_size: int) -> nn.Module:
    """The method with its loss, miner and their parameters."""
    sizes = {"num_classes": num_classes, "embedding_size": embedding_size}
    loss = instantiate(config.loss, "loss", *LOSS_KEYS, **_accepted(sizes, config.loss, "loss"))
    miner = config.loss.get("miner")
    return instantiate(
        config.method,
        "method",
        *METHOD_KEYS,
        loss=loss,
        miner=None if miner is None else instantiate(miner, "loss.miner"),
        **_accepted(sizes, config.method, "method"),
    )


def _accepted(sizes: dict[str, int], node: dict[str, Any], option: str) -> dict[str, int]:
    """Those of the sizes that the node's class takes and the node itself does not give."""
    try:
        accepted = constructor_parameters(get_class(node["_target_"]))
    except Exception as error:
        raise UserError(f"{option}._target_: {str(error).splitlines()[0]}") from error
    # An option of the file wins: `num_classes: null` of the margin loss means one β for all.
    return {name: size for name, size in sizes.items() if name in accepted and name not in node}


def build_training(
    config: Config, embedder: nn.Module, method: nn.Module
) -> tuple[Optimizer, torch.optim.lr_scheduler.LRScheduler | None]:
    """The optimizer over all parameters, and its schedule."""
    o = config.optim
    groups = parameter_groups(
        embedder,
        method,
        lr=o.lr,
        weight_decay=o.weight_decay,
        loss_lr=o.loss_lr,
        loss_lr_ratio=o.loss_lr_ratio,
        overrides=o.groups,
    )
    try:
        make = get_method(o._target_)
    except Exception as error:
        raise UserError(f"optim._target_: {str(error).splitlines()[0]}") from error
    optimizer = build_optimizer(make, groups, o.args)
    if o.schedule is None:
        return optimizer, None
    return optimizer, instantiate(o.schedule, "optim.schedule", optimizer=optimizer)


def resolve_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
