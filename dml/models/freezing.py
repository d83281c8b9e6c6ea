"""Backbones of which only a part is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from dml.core.errors import ConfigError
from dml.models.embedder import Embedder

# Layers of timm's networks after the last block.
AFTER_BLOCKS = tuple(
    f"network.{name}."
    for name in ("head", "norm", "fc_norm", "attn_pool", "final_conv", "features.norm5")
)


def freeze_backbone(embedder: Embedder, train: str | int) -> None:
    """Freezes the backbone of a network, or its first blocks, with their BatchNorm statistics.

    What is frozen stays in evaluation mode during training. Layers after the blocks, such as a last
    norm, are trained with them.

    Args:
        embedder: the network, which is changed.
        train: "all", "none" (the head alone is trained), or the number of last blocks that are
            trained, as timm divides the network: the layers of a transformer, the stages of a
            ResNet.

    Raises:
        ConfigError: the backbone is none of timm, or has fewer blocks.
    """
    if train == "all":
        return
    backbone = embedder.backbone
    layers: dict[str, int] = {}
    first = 0
    if train != "none":
        layers, first = _find_layers(backbone, int(train))
    for name, parameter in backbone.named_parameters():
        if name not in layers or layers[name] < first:
            parameter.requires_grad_(False)
    embedder.keep_in_evaluation_mode(find_frozen(backbone))


def _find_layers(backbone: nn.Module, count: int) -> tuple[dict[str, int], int]:
    """Returns parameter → layer of a network of timm, and the first of its last blocks."""
    layers = _group_by_layer(backbone)
    blocks = _number_blocks(layers)
    if count > len(blocks):
        raise ConfigError(
            [f"backbone.train: {count} blocks, but the network has {len(blocks)}; use all"]
        )
    return layers, blocks[-count]


def _group_by_layer(backbone: nn.Module) -> dict[str, int]:
    """Returns parameter → number of its layer, as timm divides a network."""
    network: Any = getattr(backbone, "network", None)
    if not hasattr(network, "group_matcher"):
        name = type(network or backbone).__name__
        raise ConfigError([f"backbone.train: the blocks of {name} are not known; use all or none"])
    from timm.models import group_parameters

    layers = group_parameters(network, network.group_matcher(coarse=True), reverse=True)
    return {f"network.{name}": layer for name, layer in layers.items()}


def _number_blocks(layers: Mapping[str, int]) -> list[int]:
    """Returns the layers that are blocks, in order."""
    numbers = {layer for name, layer in layers.items() if not name.startswith(AFTER_BLOCKS)}
    return sorted(numbers - {min(numbers)})  # without the stem


def list_block_parameters(backbone: nn.Module) -> set[str]:
    """Returns the names of the parameters in the blocks of a network of timm.

    Raises:
        ConfigError: the backbone is none of timm.
    """
    layers = _group_by_layer(backbone)
    blocks = _number_blocks(layers)
    names = {name for name, layer in layers.items() if layer in blocks}
    return {name for name in names if not name.startswith(AFTER_BLOCKS)}


def find_frozen(module: nn.Module) -> Iterator[nn.Module]:
    """Yields the largest modules in which no parameter is trained."""
    trained = [parameter.requires_grad for parameter in module.parameters()]
    if trained and not any(trained):
        yield module
        return
    for child in module.children():
        yield from find_frozen(child)


def describe_trained(embedder: Embedder) -> str:
    """Returns `1.2 of 22.1 million parameters of the network`."""
    trained = 0
    total = 0
    for parameter in embedder.parameters():
        total += parameter.numel()
        if parameter.requires_grad:
            trained += parameter.numel()
    return f"{trained / 1e6:.3g} of {total / 1e6:.3g} million parameters of the network"
