"""Networks without BatchNorm, so that an image's embedding does not depend on its batch."""

import torch
from torch import Tensor, nn

from dml.models.backbones import Backbone, InputSpec
from dml.models.embedder import Embedder


class TinyMaps(Backbone):
    kind = "maps"
    input = InputSpec(size=None)

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.channels = channels
        self.convolution = nn.Conv2d(3, channels, 3, stride=2, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.convolution(images).relu()


class TinyTokens(TinyMaps):
    kind = "tokens"
    prefix_tokens = 1

    def forward(self, images: Tensor) -> Tensor:
        tokens = super().forward(images).flatten(2).transpose(1, 2)
        return torch.cat([tokens.square().mean(dim=1, keepdim=True), tokens], dim=1)


def tiny_embedder(kind: str = "maps", pooling: str = "avg+max", size: int = 5) -> Embedder:
    """In float64; `pooling` is that of maps or of tokens."""
    if kind == "maps":
        return Embedder(TinyMaps(), size, pooling=pooling).double()
    return Embedder(TinyTokens(), size, token_pooling=pooling).double()
