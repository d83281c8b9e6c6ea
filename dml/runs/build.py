"""From nodes of the config to the objects they describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate as hydra_instantiate
from torch import nn
from torch.optim import Optimizer

from dml.config.schema import Config
from dml.config.signatures import (
    LOSS_KEYS,
    METHOD_KEYS,
    accepted_parameters,
    constructor_arguments,
    find_argument_problems,
    import_target,
)
from dml.core.errors import ConfigError, UserError, first_line
from dml.core.launcher import read_launch
from dml.data import transforms
from dml.data.cache import open_image_source
from dml.data.image_check import exclude_undecodable
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.splits import merge_query_and_gallery
from dml.methods.plain import Plain
from dml.methods.reference_losses import disable_normalization
from dml.models.embedder import Embedder
from dml.training.optim import build_optimizer, parameter_groups
from dml.training.precision import set_convolutions
from dml.training.process_group import ALONE, World
from dml.training.sync_batch_norm import synchronize_batch_norm

KINDS: dict[str, tuple[str, type, tuple[str, ...]]] = {  # what a target must make, and have
    "loss": ("loss, a torch.nn.Module", nn.Module, ()),
    "loss.miner": ("miner, which can be called", Callable, ()),  # type: ignore[dict-item]
    "method": (
        "method; derive it from dml.methods.batch_method.BatchMethod",
        nn.Module,
        ("attach", "after_backward", "on_evaluation", "on_stall"),
    ),
    "backbone": (
        "backbone, a torch.nn.Module with channels, kind and input (dml.models.backbones.Backbone)",
        nn.Module,
        ("channels", "kind", "input"),
    ),
    "data.reader": ("index of images, a dml.data.image_index.ImageIndex", ImageIndex, ()),
    "tracking": (
        "tracker; derive it from dml.tracking.NullTracker",
        object,
        ("keeps_a_copy", "start", "log", "job_done", "conclude", "finish"),
    ),
    "optim.schedule": ("learning-rate schedule", object, ("step", "state_dict")),
}


def instantiate(node: dict[str, Any], option: str, *reserved: str, **extra: Any) -> Any:
    """The object that `node._target_` makes of the node's other keys and `extra`.

    Args:
        node: with `_target_`.
        option: its name in the config, for messages.
        reserved: keys of the node that are not for the constructor.

    Raises:
        ConfigError: there is no such target, it refuses its arguments, or makes something else.
        UserError: what it raises itself.
    """
    if wrong := list(find_argument_problems(node, option, *reserved, given=extra)):
        raise ConfigError(wrong)
    try:
        made = hydra_instantiate(constructor_arguments(node, *reserved), **extra, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__ or error
        if isinstance(cause, UserError):
            raise cause from None
        raise ConfigError([_refusal(node, option, cause)]) from error
    if option in KINDS:
        what, kind, needed = KINDS[option]
        if not (isinstance(made, kind) and all(hasattr(made, name) for name in needed)):
            raise ConfigError([f"{option}._target_: {node['_target_']} makes no {what}"])
    return made


def _refusal(node: dict[str, Any], option: str, error: BaseException) -> str:
    """Why a constructor refused its arguments, by the option that its message begins with."""
    reason = first_line(error)
    first, _, rest = reason.partition(" ")
    return f"{option}.{first}: {rest}" if first in node else f"{option}: {reason}"


def embedder_node(config: Config) -> dict[str, Any]:
    """The node `embedder` with its class, of which there is one."""
    return {**config.embedder, "_target_": f"{Embedder.__module__}.{Embedder.__qualname__}"}


def build_index(config: Config) -> ImageIndex:
    """Reads the dataset's index; images of the user's own are decoded once, to check them."""
    data = config.data
    index = instantiate(data.reader, "data.reader")
    if data.identified_by == "place":
        folder = Path(data.root) if Path(data.root).is_dir() else Path(data.root).parent
        index = exclude_undecodable(index, data.skip_corrupt, folder / ".cache")
    index = replace(index, apply_orientation=data.exif_orientation)
    return merge_query_and_gallery(index) if config.data.query_gallery == "none" else index


def open_source(config: Config, index: ImageIndex, device: torch.device) -> ImageSource | None:
    """Where pixels come from: the cache that `data.cache` asks for, or None to decode each time."""
    wanted = config.data.cache_device
    cache_device = str(device) if wanted == "cuda" else wanted  # the run's own GPU
    return open_image_source(index, config.data.cache, cache_device, config.data.root)


def build_embedder(config: Config) -> Embedder:
    """The network, with its backbone's weights.

    Raises:
        ConfigError: an option has none of its values, or does not go with another.
        UserError: there are no such weights.
    """
    return attach_head(config, instantiate(config.backbone, "backbone"))


def attach_head(config: Config, backbone: nn.Module) -> Embedder:
    """The embedder on a backbone; see `build_embedder`."""
    try:
        return instantiate(embedder_node(config), "embedder", backbone=backbone)
    except UserError as error:
        raise ConfigError(str(error).splitlines()) from error


def build_network(config: Config, world: World, device: torch.device) -> Embedder:
    """The network on its device, as the processes of `world` train it.

    Raises:
        UserError: the device cannot do what the config asks for.
    """
    set_convolutions(config.precision, device)
    embedder = world.main_first(lambda: build_embedder(config)).to(device)
    if config.channels_last:
        embedder.backbone.to(memory_format=torch.channels_last)
    if world.size > 1 and not embedder.freeze_batch_norm:
        synchronize_batch_norm(embedder, device)
    if config.compile:
        embedder.backbone.compile()  # in place: names in checkpoints stay the same
    return embedder


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
    """The method with its loss, miner and their parameters.

    Raises:
        ConfigError: one of them refuses its options, or another.
    """
    sizes = {"num_classes": num_classes, "embedding_size": embedding_size}
    miner = config.loss.get("miner")
    try:
        loss = instantiate(config.loss, "loss", *LOSS_KEYS, **_accepted(sizes, config.loss, "loss"))
        miner = None if miner is None else instantiate(miner, "loss.miner")
        if _compares_clipped(config):
            for part in (loss, miner):
                if isinstance(part, nn.Module):
                    disable_normalization(part)
        return instantiate(
            config.method,
            "method",
            *METHOD_KEYS,
            loss=loss,
            miner=miner,
            **_accepted(sizes, config.method, "method"),
        )
    except UserError as error:
        raise ConfigError(str(error).splitlines()) from error


def _compares_clipped(config: Config) -> bool:
    """Whether pairs are compared by the lengths that the normalizer left (ccp, section 4.4).

    Losses of pytorch-metric-learning would normalize once more, and a plain baseline would be
    trained in another space than ccp and than the one it is scored in. Mixing methods keep unit
    vectors for the clean loss as for the mixed one; proxies have no such lengths.
    """
    clipped = config.embedder.get("normalize") == "clipped"
    plain = config.method["_target_"] == f"{Plain.__module__}.{Plain.__qualname__}"
    return clipped and plain and config.loss["batch_kind"] == "pair"


def _accepted(sizes: dict[str, int], node: dict[str, Any], option: str) -> dict[str, int]:
    """Those of the sizes that the node's class takes and the node itself does not give."""
    accepted = accepted_parameters(import_target(node["_target_"], option))
    # An option of the file wins: `num_classes: null` of the margin loss means one β for all.
    return {name: size for name, size in sizes.items() if name in accepted and name not in node}


def build_training(
    config: Config, embedder: nn.Module, method: nn.Module
) -> tuple[Optimizer, torch.optim.lr_scheduler.LRScheduler | None]:
    """The optimizer over all parameters, and its schedule.

    Raises:
        ConfigError: there is no such optimizer or group, or they refuse their options.
        UserError: see `parameter_groups`.
    """
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
    optimizer = build_optimizer(import_target(o.target, "optim"), groups, o.args)
    if o.schedule is None:
        return optimizer, None
    return optimizer, instantiate(o.schedule, "optim.schedule", optimizer=optimizer)


def resolve_device(name: str, world: World = ALONE) -> torch.device:
    """`auto` is the GPU where there is one; of several processes, each takes a GPU of its own.

    Raises:
        UserError: the machine has fewer GPUs than processes.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if world.size == 1 or name == "cpu":
        return torch.device(name)
    launch, gpus = read_launch(), torch.cuda.device_count()
    if launch.local_rank >= gpus:
        raise UserError(
            f"torchrun: {launch.local_size} processes on a machine of which each sees {gpus} GPUs; "
            f"use --nproc-per-node={gpus}, with SLURM gpus_per_node instead of gpus_per_task"
        )
    torch.cuda.set_device(launch.local_rank)
    return torch.device("cuda", launch.local_rank)
