"""Interface of backbones, and the networks of timm behind it: ResNet, ViT, DINO and others."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from dml.core.errors import ConfigError, nearest
from dml.models.hub import HUB_FILE
from dml.models.weights import PublishedWeights, load_weights, named_checksum


@dataclass(frozen=True)
class InputSpec:
    """Preparation of an image for a network: `(image in [0, 1] * scale - mean) / std`.

    Attributes:
        size: height and width in pixels; None keeps the size of the dataset's images.
        mean: subtracted from each channel, in the order in which the network sees the channels.
        std: divides each channel, same order.
        channel_order: "rgb", or "bgr" for networks that come from Caffe.
        scale: 1.0 for networks trained on values in [0, 1], 255.0 for those trained on [0, 255].
    """

    size: int | None
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    channel_order: Literal["rgb", "bgr"] = "rgb"
    scale: float = 1.0


class Backbone(nn.Module):
    """Network from images (B×3×H×W, prepared as in `input`) to features, without pooling.

    A custom network needs these attributes but not this base class.

    Attributes:
        channels: c of the features.
        kind: "maps" if `forward` gives B×c×h×w, "tokens" if it gives B×tokens×c.
        input: the images that the weights were trained on.
        prefix_tokens: number of tokens before those of the patches (class token first).
    """

    channels: int
    kind: Literal["maps", "tokens"]
    input: InputSpec
    prefix_tokens: int = 0

    def forward(self, images: Tensor) -> Tensor:
        """Returns features of `images`, B×c×h×w or B×tokens×c."""
        raise NotImplementedError


class TimmBackbone(Backbone):
    """Features of a timm network: maps B×c×h×w, or all tokens B×t×c after the final norm.

    Mean and standard deviation come from timm's record of the weights.

    Args:
        model: timm's name with the tag of the weights, such as "resnet50.tv_in1k".
        weights: "imagenet" (those of the tag), "none", a file or an http(s) URL.
        input_size: side of the images in pixels; position embeddings are resized to fit.

    Raises:
        ConfigError: timm has no such model, or the size does not fit its patches.
        UserError: the weights cannot be loaded or belong to another network.
    """

    def __init__(self, model: str, weights: str = "imagenet", input_size: int = 224) -> None:
        super().__init__()
        record = _find_record(model)
        self.network = _create(model, input_size, fixed_size=record["fixed_input_size"])
        self.channels = self.network.num_features
        # Swin and similar networks have the channels last.
        self.channels_last = getattr(self.network, "output_fmt", "NCHW") == "NHWC"
        is_transformer = hasattr(self.network, "num_prefix_tokens")
        self.kind: Literal["maps", "tokens"] = "tokens" if is_transformer else "maps"
        self.prefix_tokens = self.network.num_prefix_tokens if is_transformer else 0
        self.input = InputSpec(
            size=input_size, mean=tuple(record["mean"]), std=tuple(record["std"])
        )
        load_weights(
            self.network,
            weights,
            find_published_weights(model, record),
            classifier=record["classifier"],
            adapt=self._resize_positions,
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns maps B×c×h×w or tokens B×t×c, class token first, of images B×3×H×W.

        Raises:
            ConfigError: the network's features are neither.
        """
        features = self.network.forward_features(images)
        if self.channels_last:
            features = features.permute(0, 3, 1, 2)
        shape = tuple(features.shape)
        expected = (shape[0], self.channels) if self.kind == "maps" else (shape[0], shape[1])
        if len(shape) != (4 if self.kind == "maps" else 3) or shape[:2] != expected:
            raise ConfigError(
                [
                    f"backbone.model: the features of this network are {'x'.join(map(str, shape))} "
                    f"for a batch of {shape[0]}; only maps and tokens with a class token can be "
                    f"pooled, choose another"
                ]
            )
        return features

    def _resize_positions(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Resizes position embeddings of weights for another resolution."""
        if self.kind == "maps" or "pos_embed" not in state:
            return state
        from timm.layers import resample_abs_pos_embed

        patches = state["pos_embed"].shape[1] - self.prefix_tokens
        if patches < 1 or isqrt(patches) ** 2 != patches:
            return state  # of another network, which loading reports
        grid = list(self.network.patch_embed.grid_size)
        resized = resample_abs_pos_embed(
            state["pos_embed"], grid, num_prefix_tokens=self.prefix_tokens
        )
        return {**state, "pos_embed": resized}


def find_published_weights(model: str, record: dict[str, Any]) -> PublishedWeights | None:
    """Returns the weights in timm's record; a file with its hash in the name is preferred."""
    url, hub = record["url"], record["hf_hub_id"]
    if url and named_checksum(url):
        return PublishedWeights(file=url.rsplit("/", 1)[-1], url=url)
    if not hub:
        return None
    return PublishedWeights(file=f"{model}{Path(HUB_FILE).suffix}", hub=hub)


def _find_record(model: str) -> dict[str, Any]:
    """Returns timm's record of the weights that the tag of `model` names."""
    import timm

    try:
        record = timm.get_pretrained_cfg(model)
    except RuntimeError:  # the network is known, the tag is not
        record = None
    if record is None:
        known = timm.list_models(pretrained=True)
        raise ConfigError(
            [f"backbone.model={model} is not a network of timm with weights{nearest(model, known)}"]
        )
    return record.to_dict()


def _create(model: str, input_size: int, fixed_size: bool) -> Any:
    import timm

    if input_size < 1:
        raise ConfigError([f"backbone.input_size: {input_size} must be at least 1"])
    size: dict[str, Any] = {"img_size": input_size} if fixed_size else {}
    network: Any = timm.create_model(model, pretrained=False, num_classes=0, **size)
    patch = network.patch_embed.patch_size[0] if hasattr(network, "patch_embed") else 1
    if input_size % patch:
        raise ConfigError(
            [
                f"backbone.input_size={input_size} must be a multiple of the {patch} pixels "
                f"of {model}'s patches"
            ]
        )
    return network
