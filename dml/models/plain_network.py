"""Completion of custom networks: missing attributes of a `Backbone`, found by a trial run."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError, first_line
from dml.models.backbones import Backbone, InputSpec
from dml.models.timm_networks import KINDS

IMAGENET = InputSpec(size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def complete(network: nn.Module, size: int | None = None) -> Backbone:
    """Adds the missing attributes of a `Backbone` to a network, in place, and returns the network.

    The default of `input` is 224 pixels with the mean and standard deviation of ImageNet; `kind`
    and `channels` are found by a run on an image of zeros, in evaluation mode without gradients.

    Args:
        network: maps B×3×H×W to B×c, B×c×h×w or B×tokens×c.
        size: side of the image in pixels; None: the size in `input`.

    Raises:
        ConfigError: the network fails on the image, or returns another shape or type.
    """
    defaults = {"input": IMAGENET, "prefix_tokens": 0, "native_channels": None}
    for attribute, default in defaults.items():
        if not hasattr(network, attribute):
            setattr(network, attribute, default)
    backbone = cast(Backbone, network)
    if not (hasattr(network, "channels") and hasattr(network, "kind")):
        features = _run_on_zeros(network, size or backbone.input.size or 224)
        backbone.kind = KINDS[features.ndim]
        backbone.channels = features.shape[1 if features.ndim == 4 else -1]
    return backbone


def _run_on_zeros(network: nn.Module, size: int) -> Tensor:
    name, training = type(network).__name__, network.training
    try:
        with torch.no_grad():
            features = network.eval()(torch.zeros(1, 3, size, size))
    except Exception as error:  # of any class: the network is the user's
        raise ConfigError(
            [
                f"backbone: {name} fails on an image of 3x{size}x{size}: {first_line(error)}; "
                "another size is set with transform.size=<pixels>"
            ]
        ) from error
    finally:
        network.train(training)
    if not isinstance(features, Tensor) or features.ndim not in KINDS or len(features) != 1:
        shape = list(getattr(features, "shape", ())) or f"a {type(features).__name__}"
        raise ConfigError(
            [
                f"backbone: {name} returns {shape} for an image of 1x3x{size}x{size}; expected "
                "1xc (vectors), 1xcxhxw (maps) or 1xtokensxc"
            ]
        )
    return features
