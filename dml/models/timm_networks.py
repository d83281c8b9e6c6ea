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
| DINOv3 (ViT) | class token | average of the patches; `POOLING` departs from it |

CLIP's projection into the space of texts is omitted: for timm it is the classifier. MAE's authors
average the patches for fine-tuning, and use the class token of the frozen network.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError, UserError, first_line
from dml.core.progress import show_task
from dml.core.timm_records import HUB, find_record
from dml.models.weights import describe_mismatch, find_weights, read_state_dict

KINDS: dict[int, Literal["maps", "tokens", "vectors"]] = {2: "vectors", 3: "tokens", 4: "maps"}
POOLING = {"dinov3": "token"}  # part of a transformer's name → the authors' pooling


@dataclass(frozen=True)
class NetworkOutput:
    """Properties of a network's features, found by a trial on one image.

    Attributes:
        kind: see `Backbone`.
        channels: c of the features.
        native_channels: c of timm's output before the classifier; None if it has no vector there.
        channels_last: whether the network returns maps B×h×w×c.
    """

    kind: Literal["maps", "tokens", "vectors"]
    channels: int
    native_channels: int | None
    channels_last: bool


@cache
def inspect_network(model: str, input_size: int) -> NetworkOutput:
    """Returns the properties of a network's features, without allocating its weights.

    Raises:
        ConfigError: timm has no such network, the input size is not supported, or the features are
            neither maps nor tokens nor vectors.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            with torch.device("meta"):
                return _try_network(model, input_size)
        except NotImplementedError:  # an operation that meta tensors lack
            return _try_network(model, input_size)


def _try_network(model: str, input_size: int) -> NetworkOutput:
    network = _create(model, input_size).eval()
    try:
        features = network.forward_features(torch.zeros(1, 3, input_size, input_size))
    except NotImplementedError:
        raise
    except Exception as error:  # of any class
        raise _misfit(model, input_size, error) from error
    if not isinstance(features, Tensor) or features.ndim not in KINDS:
        raise ConfigError(
            [
                f"backbone.model={model}: the features of an image are a {type(features).__name__};"
                " expected one tensor of maps (1xcxhxw), tokens (1xtokensxc) or a vector (1xc)"
            ]
        )
    channels_last = features.ndim == 4 and getattr(network, "output_fmt", "NCHW") == "NHWC"
    try:
        pooled = network.forward_head(features, pre_logits=True)
    except NotImplementedError:
        raise
    except Exception:  # of any class: the network has no such head
        pooled = None
    return NetworkOutput(
        kind=KINDS[features.ndim],
        channels=features.shape[1 if features.ndim == 4 and not channels_last else -1],
        native_channels=pooled.shape[1]
        if isinstance(pooled, Tensor) and pooled.ndim == 2
        else None,
        channels_last=channels_last,
    )


def _create(model: str, input_size: int, **options: Any) -> Any:
    """Returns a new network without classifier."""
    import timm

    size: dict[str, Any] = (
        {"img_size": input_size} if find_record(model)["fixed_input_size"] else {}
    )
    try:
        network: Any = timm.create_model(model, num_classes=0, **size, **options)
    except (AssertionError, ValueError) as error:
        raise _misfit(model, input_size, error) from error
    patch = getattr(getattr(network, "patch_embed", None), "patch_size", 1)
    patch = patch if isinstance(patch, int) else patch[0]
    if input_size < 1 or input_size % patch:
        raise ConfigError(
            [
                f"backbone.input_size={input_size} must be a multiple of the {patch} pixels "
                f"of {model}'s patches"
            ]
        )
    if getattr(network, "num_prefix_tokens", 0):
        for family, pooling in POOLING.items():
            network.global_pool = pooling if family in model else network.global_pool
    return network


def _misfit(model: str, input_size: int, error: Exception) -> ConfigError:
    return ConfigError(
        [
            f"backbone.input_size={input_size} does not fit {model}: {first_line(error)}; "
            "leave it out for the size of timm's record"
        ]
    )


def load_network(model: str, input_size: int, weights: str | None) -> Any:
    """Returns a network without classifier, with the weights of the option `backbone.weights`.

    timm converts the names of published files, drops the classifier, resizes position embeddings,
    and downloads its weights. A file is read here, without unpickling code.

    Raises:
        UserError: the weights cannot be loaded or belong to another network.
    """
    if weights is None or weights == "none":
        return _create(model, input_size)
    if weights == "imagenet":
        return _load_published(model, input_size)
    path = find_weights(weights)
    state = read_state_dict(path)
    if "_conv_stem.weight" in state:
        state = _rename_efficientnet(state, model, input_size)
    overlay = {"state_dict": state, "custom_load": False}
    network, problem = None, ""
    with _record_differences() as differences:
        try:
            network = _create(model, input_size, pretrained=True, pretrained_cfg_overlay=overlay)
        except Exception as error:  # of any class: timm's converters expect their own files
            problem = " ".join(str(error).split())
    if network is not None:
        missing, unknown = differences[-1]
        # Modules of the classifier are ignored: `head.bn` belongs to `head.linear`.
        heads = network.pretrained_cfg.get("classifier") or ()
        heads = [heads] if isinstance(heads, str) else heads
        tops = tuple(f"{head.partition('.')[0]}." for head in heads)
        problem = describe_mismatch(missing, (n for n in unknown if not n.startswith(tops)))
        network.pretrained_cfg["state_dict"] = None  # otherwise copied with the network
    if problem:
        raise UserError(f"backbone.weights: {path} belongs to another network: {problem}")
    return network


def _load_published(model: str, input_size: int) -> Any:
    """Returns a network with timm's weights, from the Hugging Face hub, its cache, or a URL."""
    record = find_record(model)
    if not (model.startswith(HUB) or record["hf_hub_id"] or record["url"] or record["file"]):
        raise UserError("backbone.weights=imagenet: this network has none; use weights=none")
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()  # the progress line shows it
    try:
        with show_task(f"loading the weights of {model}"):
            return _create(model, input_size, pretrained=True)
    except ConfigError:
        raise
    except Exception as error:  # of timm, huggingface_hub, its transport, or the disk
        source = record["hf_hub_id"] or record["url"] or model
        raise UserError(
            f"backbone.weights=imagenet: cannot get {source} ({first_line(error)}); a gated model "
            f"needs its terms accepted on its page and HF_TOKEN=<token>; without a network, "
            f"download it elsewhere and give backbone.weights=<file>, or start from random weights "
            f"with backbone.weights=none"
        ) from error


def _rename_efficientnet(
    state: dict[str, Tensor], model: str, input_size: int
) -> dict[str, Tensor]:
    """Renames the tensors of `efficientnet_pytorch` and derived packages to timm's names.

    They have the same tensors in the same order; the classifier is dropped.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        names = list(_create(model, input_size).state_dict())
    features = [tensor for name, tensor in state.items() if not name.startswith("_fc.")]
    return dict(zip(names, features, strict=True)) if len(names) == len(features) else state


@contextmanager
def _record_differences() -> Iterator[list[Any]]:
    """Records the missing and unexpected names of state dicts, which timm does not return."""
    differences: list[Any] = []
    load = nn.Module.load_state_dict
    log = logging.getLogger("timm")  # it warns of the classifier, which is dropped on purpose
    level = log.level

    def load_and_record(module: nn.Module, *more: Any, **options: Any) -> Any:
        differences.append(load(module, *more, **options))
        return differences[-1]

    log.setLevel(logging.ERROR)
    try:
        with mock.patch.object(nn.Module, "load_state_dict", load_and_record):
            yield differences
    finally:
        log.setLevel(level)
