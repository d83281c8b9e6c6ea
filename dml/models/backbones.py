"""Interface of backbones, and the networks of timm behind it: ResNet, ViT, DINO and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from dml.core.timm_records import find_record
from dml.models.timm_networks import inspect_network, load_network


@dataclass(frozen=True)
class InputSpec:
    """Input of a network: `(image * scale - mean) / std` for images in [0, 1].

    Attributes:
        size: height and width in pixels; None keeps the size of the dataset's images.
        mean: mean of each channel, in the network's channel order.
        std: standard deviation of each channel, in the same order.
        channel_order: "rgb", or "bgr" for networks converted from Caffe.
        scale: 1.0 for networks trained on values in [0, 1], 255.0 for those trained on [0, 255].
        interpolation: "bilinear" or "bicubic", for every resize.
        crop_share: side of the central crop of a test image, relative to the shorter side of the
            resized image, 0–1; None resizes whole images to a square.
    """

    size: int | None
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    channel_order: Literal["rgb", "bgr"] = "rgb"
    scale: float = 1.0
    interpolation: str = "bilinear"
    crop_share: float | None = 224 / 256


class Backbone(nn.Module):
    """Network from images (B×3×H×W, prepared as in `input`) to features, without pooling.

    A custom network needs neither this base class nor the attributes: missing ones are added by
    `dml.models.plain_network.complete`.

    Attributes:
        channels: c of the features.
        kind: output of `forward`: "maps" B×c×h×w, "tokens" B×tokens×c, or "vectors" B×c, which
            need no pooling.
        input: the input for which the weights were trained.
        prefix_tokens: number of tokens before the patch tokens (class token first).
        native_channels: c of `pool_natively`; None if the network has no native pooling.
    """

    channels: int
    kind: Literal["maps", "tokens", "vectors"]
    input: InputSpec
    prefix_tokens: int = 0
    native_channels: int | None = None

    def forward(self, images: Tensor) -> Tensor:
        """Returns features of `images`, B×c×h×w, B×tokens×c or B×c."""
        raise NotImplementedError

    def pool_natively(self, features: Tensor) -> Tensor:
        """Pools features B×c×h×w or B×tokens×c to B×c, as before the network's classifier."""
        raise NotImplementedError


class TimmBackbone(Backbone):
    """Features of a timm network: maps B×c×h×w, or all tokens B×t×c after the final norm.

    Args:
        model: timm's name, with or without the tag of the weights: "resnet50.tv_in1k".
        weights: "imagenet" (timm's weights for the tag, or for its default tag), "none", a file or
            an http(s) URL. Files have timm's names or names that timm converts.
        input_size: side of the images in pixels; position embeddings are resized to fit.
        mean, std: see `InputSpec`; None: the values in timm's record of the weights.
        interpolation: "bilinear" or "bicubic".
        crop_share: see `InputSpec`.

    Raises:
        ConfigError: timm has no such model, or the model or the input size is not supported.
        UserError: the weights cannot be loaded or belong to another network.
    """

    def __init__(
        self,
        model: str,
        weights: str = "imagenet",
        input_size: int = 224,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        interpolation: Literal["bilinear", "bicubic"] = "bilinear",
        crop_share: float | None = 224 / 256,
    ) -> None:
        super().__init__()
        record = find_record(model)
        output = inspect_network(model, input_size)
        self.network = load_network(model, input_size, weights)
        self.kind, self.channels = output.kind, output.channels
        self.native_channels = output.native_channels
        self.channels_last = output.channels_last
        self.prefix_tokens = getattr(self.network, "num_prefix_tokens", 0)
        self.input = InputSpec(
            size=input_size,
            mean=tuple(mean or record["mean"]),
            std=tuple(std or record["std"]),
            interpolation=interpolation,
            crop_share=crop_share,
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns maps B×c×h×w or tokens B×t×c, class token first, of images B×3×H×W."""
        features = self.network.forward_features(images)
        return features.permute(0, 3, 1, 2) if self.channels_last else features

    def pool_natively(self, features: Tensor) -> Tensor:
        """Returns timm's output before the classifier, B×c, for features from `forward`."""
        if self.channels_last:
            features = features.permute(0, 2, 3, 1)
        return self.network.forward_head(features, pre_logits=True)
