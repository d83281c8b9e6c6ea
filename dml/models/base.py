"""What a backbone is: a network without its classifier that knows how its images must look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn


@dataclass(frozen=True)
class InputSpec:
    """How an image becomes the input of a network: `(image in [0, 1] * scale - mean) / std`.

    Attributes:
        size: height and width in pixels; None takes images as large as the dataset has them.
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
    """Images (B×3×H×W, prepared as `input` says) to features; neither pooling nor classifier.

    A network of your own need not derive from this class; it needs these attributes.

    Attributes:
        channels: c of the features.
        kind: "maps" if `forward` gives B×c×h×w, "tokens" if it gives B×tokens×c.
        input: what the weights were trained on.
        prefix_tokens: for tokens, how many come before those of the patches (class token first).
    """

    channels: int
    kind: Literal["maps", "tokens"]
    input: InputSpec
    prefix_tokens: int = 0

    def forward(self, images: Tensor) -> Tensor:
        """Features of `images`, B×c×h×w or B×tokens×c."""
        raise NotImplementedError
