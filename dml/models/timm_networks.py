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

from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError, UserError, first_line
from dml.core.progress import show_task
from dml.core.timm_records import find_record
from dml.models.weights import find_weights, misfit, read_state_dict


def load_network(model: str, input_size: int, weights: str | None) -> Any:
    """Returns a network without classifier, with the weights of the option `backbone.weights`.

    timm converts the names of published files, drops the classifier, resizes position embeddings,
    and downloads its weights. A file is read here, without unpickling code.

    Raises:
        ConfigError: the input size does not fit the network.
        UserError: the weights cannot be loaded or belong to another network.
    """
    if weights is None or weights == "none":
        return _create(model, input_size)
    if weights == "imagenet":
        return _load_published(model, input_size)
    path = find_weights(weights)
    state = read_state_dict(path)
    try:
        if "_conv_stem.weight" in state:
            state = _rename_efficientnet(state, model, input_size)
        overlay = {"state_dict": state, "custom_load": False}
        with mock.patch.object(nn.Module, "load_state_dict", _strict_loader(model)):
            network = _create(model, input_size, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # of any class: timm's converters expect their own files
        raise misfit(path, error) from error
    network.pretrained_cfg["state_dict"] = None  # otherwise copied with the network
    return network


def _create(model: str, input_size: int, **options: Any) -> Any:
    """Returns a new network without classifier."""
    import timm

    size = {"img_size": input_size} if find_record(model)["fixed_input_size"] else {}
    try:
        network: Any = timm.create_model(model, num_classes=0, **size, **options)
    except (AssertionError, ValueError) as error:
        if options:  # the weights may be the reason
            raise
        raise ConfigError(
            [
                f"backbone.input_size={input_size} does not fit {model}: {first_line(error)}; "
                "leave it out for the size of timm's record"
            ]
        ) from error
    if "dinov3" in model and getattr(network, "num_prefix_tokens", 0):  # not its ConvNeXt
        network.global_pool = "token"
    return network


def _load_published(model: str, input_size: int) -> Any:
    """Returns a network with timm's weights, from the Hugging Face hub, its cache, or a URL."""
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()  # the progress line shows it
    try:
        with show_task(f"loading the weights of {model}"):
            return _create(model, input_size, pretrained=True)
    except Exception as error:  # of timm, huggingface_hub, its transport, or the disk
        record = find_record(model)
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

    They have the same tensors in the same order; the classifier, at the end, is dropped.
    """
    from timm.models import remap_state_dict

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return remap_state_dict(state, _create(model, input_size))


def _strict_loader(model: str) -> Any:
    """Returns a strict `load_state_dict` for timm, which ignores names of the classifier only.

    timm itself ignores all differences if it drops the classifier. Other modules of the classifier
    may have weights too: `head.bn` belongs to `head.linear`.
    """
    load = nn.Module.load_state_dict
    heads = find_record(model)["classifier"] or ()
    heads = [heads] if isinstance(heads, str) else heads
    tops = tuple(f"{head.partition('.')[0]}." for head in heads)

    def load_strictly(network: nn.Module, state: dict[str, Tensor], **options: Any) -> Any:
        known = network.state_dict()
        kept = {n: v for n, v in state.items() if n in known or not n.startswith(tops)}
        return load(network, kept)

    return load_strictly
