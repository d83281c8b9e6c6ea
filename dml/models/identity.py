"""The backbone of stored features, without and with the network that made them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dml.models.backbones import Backbone, InputSpec
from dml.models.embedder import Embedder

# A channel that deviates less is constant: share of its mean, or of the mean deviation of channels.
LEAST_DEVIATION = 1e-6


class Identity(Backbone):
    """Passes features on, standardized by the training features.

    Args:
        channels: number c of a row of features.
        standardize: subtract the mean of each channel and divide by its standard deviation, which
            `fit` takes from the training features and checkpoints keep.
        network: that made the features, as for `dml.load`, and its options; None: unknown.
    """

    kind: Literal["maps", "tokens", "vectors"] = "vectors"
    input = InputSpec(size=None)

    def __init__(self, channels: int, standardize: bool = True, network: str | None = None) -> None:
        super().__init__()
        self.channels, self.standardize, self.network = channels, standardize, network
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))

    def fit(self, features: Tensor) -> None:
        """Takes mean and standard deviation from training features N×c.

        The scale of a channel that is constant in them stays 1, as in scikit-learn: such a channel
        may vary in other images.
        """
        if self.standardize:
            deviation, mean = torch.std_mean(features.double(), dim=0, correction=0)
            self.mean.copy_(mean)
            smallest = LEAST_DEVIATION * torch.maximum(mean.abs(), deviation.mean())
            is_constant = deviation <= smallest
            self.scale.copy_(1 / deviation.masked_fill(is_constant, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Returns the standardized features B×c."""
        return (features - self.mean) * self.scale


class FeatureNetwork(Backbone):
    """The pooled, standardized features of a network.

    Args:
        network: makes features of images.
        standardize: of these features.
    """

    kind: Literal["maps", "tokens", "vectors"] = "vectors"

    def __init__(self, network: Embedder, standardize: Identity) -> None:
        super().__init__()
        self.network, self.standardize = network, standardize
        self.channels, self.input = standardize.channels, network.input

    def forward(self, images: Tensor) -> Tensor:
        """Returns features B×c of images B×3×H×W."""
        features = self.network.pool(self.network.features(images))
        return self.standardize(features.float())
