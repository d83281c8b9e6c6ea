"""Running statistics of BatchNorm layers: frozen at those of the weights, or their momentum set."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dml.core.errors import UserError


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


def set_momentum(network: nn.Module, momentum: float) -> None:
    """Sets the weight of a batch in the running statistics of every BatchNorm layer.

    Args:
        network: changed in place.
        momentum: in PyTorch's sense, 0–1: Caffe's networks were converted with 0.9, so that their
            statistics follow the last batches.

    Raises:
        UserError: the momentum is out of range.
    """
    if not 0 <= momentum <= 1:
        raise UserError(f"embedder.batch_norm_momentum={momentum} must be between 0 and 1")
    for layer in network.modules():
        if isinstance(layer, _BatchNorm):
            layer.momentum = momentum


def _stay_in_evaluation_mode(layer: _BatchNorm, mode: bool = True) -> _BatchNorm:
    return layer
