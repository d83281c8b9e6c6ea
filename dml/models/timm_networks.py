"""Networks of timm: their features, their pooling, and weights loaded by timm's converters.

A network with `embedder.pooling=native` pools as timm does before its classifier. The pooling of
the authors of each family, and of timm:

| family | authors | timm |
|---|---|---|
| ViT, DeiT, DeiT III, MAE, DINO, DINOv2, CLIP, EVA-02-CLIP | class token | class token |
| DeiT, distilled | class and distillation token | their mean |
| BEiT, BEiT v2, EVA, EVA-02, I-JEPA, AIMv2 | average of the patches | average of the patches |
| SigLIP, Perception Encoder | attention | attention |
| Swin, ConvNeXt, ResNet, EfficientNet | average of the maps | average of the maps |
| DINOv3 (ViT) | class token | average of the patches; replaced here |

CLIP's projection into the space of texts is omitted: for timm it is the classifier. MAE's authors
average the patches for fine-tuning, and use the class token of the frozen network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError, UserError, nearest
from dml.core.progress import show_task
from dml.core.timm_records import HUB, find_folder, find_record
from dml.models.npz_weights import NPZ, load_npz
from dml.models.timm_weights import find_timm_weights
from dml.models.weights import find_weights, read_state_dict

SET_HERE = ("img_size", "in_chans", "num_classes")  # arguments that other options set
HINTS = {
    "none": "leave backbone.input_size out for the size of timm's record",
    "imagenet": "delete the file if it is damaged",
}


def load_network(
    model: str,
    input_size: int,
    weights: str | None,
    args: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Returns a network without classifier, with the weights of the option `backbone.weights`.

    timm converts the names of published files, drops the classifier, and resizes position
    embeddings. A file is read here, without unpickling code; an `.npz` file by timm.

    Args:
        model: timm's name.
        input_size: side of the images in pixels.
        weights: see `TimmBackbone`.
        args: further arguments of the network's constructor.

    Raises:
        ConfigError: the constructor takes no such argument.
        UserError: the input size does not fit the network, or the weights cannot be had, cannot be
            loaded or belong to another network.
    """
    if args:
        _check_arguments(model, args)
    create = partial(_create, model, input_size, **args)
    weights = weights or "none"
    file, is_of_hub = _find_file(model, weights)
    state = None
    if file is not None and not is_of_hub and file.suffix != NPZ:
        state = read_state_dict(file)
    try:
        with show_task(f"loading {model}"):
            if state is not None:
                return _load_state(create, model, state)
            return _load_file(create, file, is_of_hub)
    except Exception as error:  # of timm, torch, or the disk
        source = file or find_record(model).get("hf_hub_id") or model
        reason = shorten(str(error), 300, placeholder=" …")
        hint = HINTS.get(weights, "are they of another network?")
        if state is not None:
            hint += f" The file has {', '.join(list(state)[:3])}"
        raise UserError(
            f"backbone.weights={weights}: {model} cannot be made from {source} ({reason}); {hint}"
        ) from error


def _find_file(model: str, weights: str) -> tuple[Path | None, bool]:
    """Returns the file of the weights, None for random ones, and whether it is the hub's."""
    if weights == "none":
        return None, False
    if weights == "imagenet":
        return find_timm_weights(model)
    return find_weights(weights), False


def _create(model: str, input_size: int, **options: Any) -> Any:
    """Returns a new network without classifier, whose pooling is that of its authors."""
    import timm

    if find_record(model)["fixed_input_size"]:
        options["img_size"] = input_size
    name = f"local-dir:{find_folder(model)}" if model.startswith(HUB) else model
    network: Any = timm.create_model(name, num_classes=0, **options)
    has_class_token = getattr(network, "num_prefix_tokens", 0) > 0
    if "dinov3" in model and has_class_token:  # a ConvNeXt of DINOv3 has none
        network.global_pool = "token"
    return network


def _check_arguments(model: str, args: Mapping[str, Any]) -> None:
    """Raises ConfigError for arguments that the class of a network does not have."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = _create(model, find_record(model)["input_size"][-1])
    known = set(signature(type(network)).parameters) - set(SET_HERE)
    problems = []
    for name in args:
        if name not in known:
            hint = nearest(name, sorted(known)) or f"; it takes {', '.join(sorted(known))}"
            problem = f"{type(network).__name__} takes no such argument"
            if name in SET_HERE:
                problem, hint = "is set by other options", "; leave it out"
            problems.append(f"backbone.args.{name}: {problem}{hint}")
    if problems:
        raise ConfigError(problems)


def set_checkpointing(network: Any) -> None:
    """Lets a network compute the features of its blocks again in the backward pass.

    Raises:
        ConfigError: timm cannot do that for this network.
    """
    try:
        network.set_grad_checkpointing(True)
    except (AttributeError, AssertionError) as error:
        name = type(network).__name__
        raise ConfigError(
            [f"backbone.checkpointing: timm has it not for {name}; data.micro_batch saves memory"]
        ) from error


def _load_file(create: Callable[..., Any], file: Path | None, is_of_hub: bool) -> Any:
    """Returns a network whose weights timm reads: from a file of the hub, or an `.npz` file.

    Args:
        create: returns a new network with options of timm.
        file: of the weights; None: random ones.
        is_of_hub: whether the file is loaded as timm loads it from the hub.
    """
    if file is None:
        return create()
    if not is_of_hub:
        return load_npz(create, file)
    overlay = {"source": "", "file": str(file), "custom_load": file.suffix == NPZ}
    return create(pretrained=True, pretrained_cfg_overlay=overlay)


def _load_state(create: Callable[..., Any], model: str, state: dict[str, Tensor]) -> Any:
    """Returns a network with the tensors of a file, whose names may differ in the classifier only.

    timm itself ignores all differences if it drops the classifier. Other modules of the classifier
    may have weights too: `head.bn` belongs to `head.linear`.
    """
    from timm.models import remap_state_dict

    if "_conv_stem.weight" in state:  # `efficientnet_pytorch` has the same tensors in this order
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            state = remap_state_dict(state, create())
    load = nn.Module.load_state_dict
    heads = find_record(model)["classifier"] or ()
    heads = [heads] if isinstance(heads, str) else heads
    tops = tuple(f"{head.partition('.')[0]}." for head in heads)

    def load_strictly(network: nn.Module, state: dict[str, Tensor], **options: Any) -> Any:
        known = network.state_dict()
        kept = {n: v for n, v in state.items() if n in known or not n.startswith(tops)}
        return load(network, kept)

    overlay = {"source": "", "state_dict": state, "custom_load": False}
    with mock.patch.object(nn.Module, "load_state_dict", load_strictly):
        network = create(pretrained=True, pretrained_cfg_overlay=overlay)
    network.pretrained_cfg["state_dict"] = None  # otherwise copied with the network
    return network
