"""A three-layer network for the stand-in datasets: digits of 8×8 and glyphs of 32×32 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from dml.core.errors import UserError
from dml.models.backbones import Backbone, InputSpec
from dml.models.weights import WeightFile, describe_option, find_option, load_weights

# Trained on 92 characters that data=glyphs does not contain: `python train.py data=glyphs
# data.reader.first_class=200 data.reader.classes=92 data.reader.per_class=59 loss=norm_softmax
# embedder.size=128 protocol.epochs=10`; without its head, rounded to float16.
GLYPHS = Path(__file__).with_name("small_cnn_glyphs.safetensors")
MAX_WIDTH = 4096


class SmallCNN(Backbone):
    """Three convolutions with BatchNorm and ReLU, for images of 8×8 pixels and more.

    8×8 pixels become 2×2 maps and 32×32 become 4×4: images above 16 pixels are halved three times,
    smaller ones twice. The first convolution keeps the resolution, which 8×8 digits need.

    Args:
        weights: "none", "glyphs" (pretrained, for `width` 32), a file or a URL; there are no
            ImageNet weights.
        input_size: side of the images in pixels; None keeps their size.
        width: channels of the first layer, a quarter of the channels of the features.

    Raises:
        UserError: the weights cannot be loaded or belong to another network; a wrong width.
    """

    kind: Literal["maps", "tokens"] = "maps"

    def __init__(
        self, weights: str = "none", input_size: int | None = None, width: int = 64
    ) -> None:
        super().__init__()
        if not 1 <= width <= MAX_WIDTH:
            raise UserError(f"backbone.width: {width} must be between 1 and {MAX_WIDTH}")
        self.channels = 4 * width
        self.input = InputSpec(size=input_size)
        self.stem = nn.Sequential(*_layer(3, width, stride=1))
        self.layers = nn.Sequential(
            *_layer(width, 2 * width, stride=2),
            *_layer(2 * width, 4 * width, stride=2),
        )
        load_weights(self, str(GLYPHS) if weights == "glyphs" else weights)

    @classmethod
    def fetch_weights(cls, **options: Any) -> None:
        """Downloads the weights, unless they are there; see `Backbone.fetch_weights`."""
        weights = options.get("weights")
        if weights != "glyphs":
            find_option(weights)

    @classmethod
    def describe_weights(cls, **options: Any) -> WeightFile | None:
        """Returns the file of `fetch_weights`; see `Backbone.describe_weights`."""
        weights = options.get("weights")
        return None if weights == "glyphs" else describe_option(weights)

    def forward(self, images: Tensor) -> Tensor:
        """Returns maps B×4w×⌈H/4⌉×⌈W/4⌉ of images B×3×H×W, above 16 pixels B×4w×⌈H/8⌉×⌈W/8⌉."""
        maps = self.stem(images)
        if min(maps.shape[-2:]) > 16:  # so that a glyph costs about as much as a digit
            maps = nn.functional.max_pool2d(maps, 2)
        return self.layers(maps)


def _layer(channels_in: int, channels_out: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    ]
