"""BatchNorm layers that keep the statistics of their pretrained weights."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def freeze_batch_norm(network: nn.Module, affine: bool = False) -> None:
    """Freezes the running statistics of every BatchNorm layer in `network`, permanently.

    The layers stay in evaluation mode when `train()` is called on them or on a parent module. γ and
    β are still trained.

    Args:
        network: changed in place.
        affine: freeze γ and β as well.
    """
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.eval()
            # On the instance, not by a subclass: works for every kind of BatchNorm, and in copied
            # or pickled networks.
            layer.train = partial(_stay_in_evaluation_mode, layer)  # type: ignore[method-assign]
            if affine:
                layer.requires_grad_(False)


def _stay_in_evaluation_mode(layer: _BatchNorm, mode: bool = True) -> _BatchNorm:
    return layer
