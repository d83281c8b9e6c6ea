"""BN-Inception (Ioffe & Szegedy, 2015) under the names of the converted Caffe network.

With these names `bn_inception-52deb4733.pth` loads strictly: the weights behind most published
results of deep metric learning. Shapes: B images, c channels, h×w maps.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dml.core.errors import ConfigError
from dml.models.backbones import Backbone, InputSpec
from dml.models.weights import load_weights

CAFFE_WEIGHTS = "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"


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

    @property
    def halves(self) -> bool:
        """True if the output maps are half as high and wide."""
        return self.single == 0

    def channels_out(self, channels_in: int) -> int:
        """Returns the sum of the channels of all branches."""
        passed_through = channels_in if self.halves else 0  # pooled, not projected
        return self.single + self.triple + self.double + self.projection + passed_through


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
        if side < 4 or side % 4:  # odd sizes: convolved and pooled maps would differ by one pixel
            raise ConfigError(
                [
                    f"backbone.input_size={input_size} leaves maps that BN-Inception cannot halve "
                    f"evenly: use 224 (227 under MLRC, 256) or another multiple of 32"
                ]
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
            channels = self._add_block(block, channels)
        load_weights(self, weights, CAFFE_WEIGHTS, classifier="last_linear")

    def forward(self, images: Tensor) -> Tensor:
        """Returns maps B×1024×h×w of images B×3×H×W."""
        x_Bchw = _max_pool(self._run("conv1_7x7_s2", images))
        x_Bchw = _max_pool(self._run("conv2_3x3", self._run("conv2_3x3_reduce", x_Bchw)))
        for block in BLOCKS:
            x_Bchw = self._run_block(block, x_Bchw)
        return x_Bchw

    def _add_block(self, block: Block, channels: int) -> int:
        """Adds the convolutions of `block`; returns its output channels."""
        prefix = f"inception_{block.name}_"
        stride = 2 if block.halves else 1
        if block.single:
            self._add(prefix + "1x1", channels, block.single, kernel=1)
        self._add(prefix + "3x3_reduce", channels, block.reduce, kernel=1)
        self._add(prefix + "3x3", block.reduce, block.triple, kernel=3, stride=stride)
        self._add(prefix + "double_3x3_reduce", channels, block.double_reduce, kernel=1)
        self._add(prefix + "double_3x3_1", block.double_reduce, block.double, kernel=3)
        self._add(prefix + "double_3x3_2", block.double, block.double, kernel=3, stride=stride)
        if block.projection:
            self._add(prefix + "pool_proj", channels, block.projection, kernel=1)
        return block.channels_out(channels)

    def _run_block(self, block: Block, x_Bchw: Tensor) -> Tensor:
        prefix = f"inception_{block.name}_"
        branches = [self._run(prefix + "1x1", x_Bchw)] if block.single else []
        branches.append(self._run(prefix + "3x3", self._run(prefix + "3x3_reduce", x_Bchw)))
        double = self._run(prefix + "double_3x3_reduce", x_Bchw)
        double = self._run(prefix + "double_3x3_1", double)
        branches.append(self._run(prefix + "double_3x3_2", double))
        if block.halves:
            branches.append(_max_pool(x_Bchw))
        else:
            pool = F.max_pool2d if block.pool == "max" else F.avg_pool2d
            pooled = pool(x_Bchw, 3, stride=1, padding=1)
            branches.append(self._run(prefix + "pool_proj", pooled))
        return torch.cat(branches, dim=1)

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
