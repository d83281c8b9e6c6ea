"""Counters of BatchNorm layers, advanced for a whole network at once.

Every layer counts its batches in `num_batches_tracked`, which on a GPU is a kernel launch per layer
and step, 69 with BN-Inception. Only layers with `momentum=None` read the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

COUNTER = "num_batches_tracked"


def find_counting_layers(network: nn.Module) -> list[_BatchNorm]:
    """Returns the BatchNorm layers of `network` that count their batches and need no counter.

    Those of torch and timm's BatchNormAct2d; SyncBatchNorm and classes of one's own may insist on
    a counter.
    """
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, _BatchNorm)
        and (type(layer).forward is _BatchNorm.forward or type(layer).__name__ == "BatchNormAct2d")
        and layer.training
        and layer.track_running_stats
        and layer.num_batches_tracked is not None
    ]


@contextmanager
def counting_at_once(layers: Sequence[_BatchNorm]) -> Iterator[None]:
    """Takes the counters out of the layers for a forward pass, and advances all after it.

    Layers that read their counter keep it.
    """
    taken: list[tuple[_BatchNorm, Tensor]] = []
    for layer in layers:
        counter = layer._buffers[COUNTER]
        if layer.training and layer.momentum is not None and counter is not None:
            taken.append((layer, counter))
            layer._buffers[COUNTER] = None
    try:
        yield
    finally:
        for layer, counter in taken:
            layer._buffers[COUNTER] = counter
    if taken:
        torch._foreach_add_([counter for _, counter in taken], 1)
