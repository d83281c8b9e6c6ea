"""BN-Inception (Ioffe & Szegedy, 2015) under the names of the converted Caffe network.

With these names `bn_inception-52deb4733.pth` loads strictly: the weights behind most published
results of deep metric learning. Shapes: B images, c channels, h×w maps.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dml.core.download import Checksum
from dml.core.errors import ConfigError
from dml.models.backbones import Backbone, InputSpec
from dml.models.weights import (
    PublishedWeights,
    WeightFile,
    describe_option,
    find_option,
    load_weights,
)

CAFFE_WEIGHTS = PublishedWeights(
    "https://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth",
    Checksum("sha256", "52deb473314542a5c2f87e9e6f26f4ca42fe863d15f986414dbae8c2dfdd2353"),
    classifiers=("last_linear", "fc", "new_fc"),  # Cadene's, MMLab's and TSM's
)


Layer = tuple[str, int, int, int]  # name, output channels, kernel, stride


class Block(NamedTuple):
    """Channels of the branches of an inception block; without 1×1 branch it halves the maps."""

    name: str
    single: int  # 1×1
    reduce: int  # 1×1 before …
    triple: int  # … the 3×3
    double_reduce: int  # 1×1 before …
    double: int  # … each of two 3×3
    pool: Literal["avg", "max"]
    projection: int  # 1×1 after the pooling

    def branches(self) -> list[list[Layer]]:
        """Returns the layers of the branches in the order of their outputs; the last one pools."""
        halves_maps = not self.single
        stride = 2 if halves_maps else 1
        start = f"inception_{self.name}_"
        triple = [
            (f"{start}3x3_reduce", self.reduce, 1, 1),
            (f"{start}3x3", self.triple, 3, stride),
        ]
        double = [
            (f"{start}double_3x3_reduce", self.double_reduce, 1, 1),
            (f"{start}double_3x3_1", self.double, 3, 1),
            (f"{start}double_3x3_2", self.double, 3, stride),
        ]
        if halves_maps:
            return [triple, double, []]
        single = [(f"{start}1x1", self.single, 1, 1)]
        pooled = [(f"{start}pool_proj", self.projection, 1, 1)]
        return [single, triple, double, pooled]


BLOCKS = (
    #     name  1×1  reduce 3×3  reduce double pool  projection
    Block("3a", 64, 64, 64, 64, 96, "avg", 32),
    Block("3b", 64, 64, 96, 64, 96, "avg", 64),
    Block("3c", 0, 128, 160, 64, 96, "max", 0),
    Block("4a", 224, 64, 96, 96, 128, "avg", 128),
    Block("4b", 192, 96, 128, 96, 128, "avg", 128),
    Block("4c", 160, 128, 160, 128, 160, "avg", 128),
    Block("4d", 96, 128, 192, 160, 192, "avg", 128),
    Block("4e", 0, 128, 192, 192, 256, "max", 0),
    Block("5a", 352, 192, 320, 160, 224, "avg", 128),
    Block("5b", 352, 192, 320, 192, 224, "max", 128),
)


class BNInception(Backbone):
    """BN-Inception: 1024 maps at 1/32 of the resolution (7×7 for images of 224 or 227 pixels).

    Input: BGR in [0, 255] minus (104, 117, 128), with standard deviation 1, as in Caffe.

    Args:
        weights: "imagenet", "none", a file or an http(s) URL.
        input_size: side of the images in pixels: 224, 227 (MLRC) or another size whose maps can be
            halved evenly, such as 256, or 32 for tests.

    Raises:
        ConfigError: the maps of `input_size` cannot be halved evenly.
        UserError: the weights cannot be loaded or belong to another network.
    """

    kind: Literal["maps", "tokens"] = "maps"
    channels = 1024

    def __init__(self, weights: str = "imagenet", input_size: int = 224) -> None:
        super().__init__()
        side = -(-input_size // 2) // 4  # of the maps before the last two halvings
        if side < 4 or side % 4:  # convolved and pooled maps would differ by one pixel
            raise ConfigError(
                [f"backbone.input_size={input_size} must be 224, 227 or a multiple of 32"]
            )
        self.input = InputSpec(
            size=input_size,
            mean=(104.0, 117.0, 128.0),
            std=(1.0, 1.0, 1.0),
            channel_order="bgr",
            scale=255.0,
        )
        self._add("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, kernel=1)
        self._add("conv2_3x3", 64, 192, kernel=3)
        channels = 192
        for block in BLOCKS:
            outputs = []
            for branch in block.branches():
                width = channels
                for name, channels_out, kernel, stride in branch:
                    self._add(name, width, channels_out, kernel, stride)
                    width = channels_out
                outputs.append(width)
            channels = sum(outputs)
        load_weights(self, weights, CAFFE_WEIGHTS)

    @classmethod
    def fetch_weights(cls, **options: Any) -> None:
        """Downloads the weights, unless they are there; see `Backbone.fetch_weights`."""
        find_option(options.get("weights", "imagenet"), CAFFE_WEIGHTS)

    @classmethod
    def describe_weights(cls, **options: Any) -> WeightFile | None:
        """Returns the file of `fetch_weights`; see `Backbone.describe_weights`."""
        return describe_option(options.get("weights", "imagenet"), CAFFE_WEIGHTS)

    def forward(self, images: Tensor) -> Tensor:
        """Returns maps B×1024×h×w of images B×3×H×W."""
        x_Bchw = _max_pool(self._run("conv1_7x7_s2", images))
        x_Bchw = _max_pool(self._run("conv2_3x3", self._run("conv2_3x3_reduce", x_Bchw)))
        for block in BLOCKS:
            x_Bchw = self._run_block(block, x_Bchw)
        return x_Bchw

    def _run_block(self, block: Block, x_Bchw: Tensor) -> Tensor:
        branches = block.branches()
        inputs = [x_Bchw] * (len(branches) - 1)
        if not branches[-1]:
            inputs.append(_max_pool(x_Bchw))
        elif block.pool == "max":
            inputs.append(F.max_pool2d(x_Bchw, 3, stride=1, padding=1))
        else:
            inputs.append(F.avg_pool2d(x_Bchw, 3, stride=1, padding=1))
        outputs = []
        for y_Bchw, branch in zip(inputs, branches, strict=True):
            for name, *_ in branch:
                y_Bchw = self._run(name, y_Bchw)
            outputs.append(y_Bchw)
        return torch.cat(outputs, dim=1)

    def _add(
        self, name: str, channels_in: int, channels_out: int, kernel: int, stride: int = 1
    ) -> None:
        convolution = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2)
        self.add_module(name, convolution)
        self.add_module(name + "_bn", nn.BatchNorm2d(channels_out))

    def _run(self, name: str, x_Bchw: Tensor) -> Tensor:
        """Applies convolution, BatchNorm and ReLU."""
        convolved = self.get_submodule(name)(x_Bchw)
        return F.relu(self.get_submodule(name + "_bn")(convolved), inplace=True)


def _max_pool(x_Bchw: Tensor) -> Tensor:
    """Halves the maps by max pooling, rounding up as Caffe does."""
    return F.max_pool2d(x_Bchw, 3, stride=2, ceil_mode=True)
