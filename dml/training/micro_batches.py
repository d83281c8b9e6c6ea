"""Large batches in little memory: the network embeds one part of a batch after the other.

The forward pass keeps the embeddings of each part, but no intermediate tensors. The loss is that of
the whole batch. The backward pass computes each part again, with the same random numbers, and
differentiates it with the gradient of the loss with respect to its embeddings.
Loss and gradients are therefore those of the whole batch if an image's embedding does not depend on
the others, that is, without BatchNorm or with frozen statistics (GradCache; Gao et al., Scaling
Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dml.core.errors import UserError
from dml.core.torch_internals import BatchNorm

TOLERANCE = 0.02  # of the largest value: differences of kernels that add in any order are smaller


def in_micro_batches(embedder: nn.Module, size: int | None) -> Any:
    """Returns the embedder for the calls of a method: in parts, or itself without a size."""
    return embedder if size is None else MicroBatches(embedder, size)


def uses_batch_statistics(network: nn.Module) -> bool:
    """Returns whether a network in training mode has BatchNorm layers that are not frozen."""
    return any(isinstance(layer, BatchNorm) and layer.training for layer in network.modules())


class MicroBatches:
    """Calls an embedder with parts of a batch; forwards its other attributes.

    Args:
        embedder: maps images to embeddings; `features`, if a method calls it, to features.
        size: largest number of images in a part.
    """

    def __init__(self, embedder: nn.Module, size: int) -> None:
        self.embedder, self.size = embedder, size
        self._compared = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def features(self, images: Tensor) -> Tensor:
        """Returns the features of all images, which are kept in memory."""
        return self._join(self.embedder.features, images)

    def __call__(self, images: Tensor) -> Tensor:
        """Returns the embeddings of all images."""
        return self._join(self.embedder, images)

    def _join(self, network: Any, images: Tensor) -> Tensor:
        if len(images) <= self.size:
            return network(images)
        parts = images.tensor_split(math.ceil(len(images) / self.size))

        def contexts() -> Any:  # of the first and of the second forward pass
            return nullcontext(), self._keep_buffers()

        options: Any = {"use_reentrant": False, "context_fn": contexts}
        if self._compared:
            return torch.cat([checkpoint(network, part, **options) for part in parts])
        first, *others = parts
        with set_checkpoint_early_stop(False):  # both passes run to their end
            embedded = [checkpoint(self._compare_passes(network), first, **options)]
        embedded += [checkpoint(network, part, **options) for part in others]
        return torch.cat(embedded)

    def _compare_passes(self, network: Any) -> Any:
        """Returns a network whose second pass over the same images must repeat the first.

        PyTorch repeats only its random numbers: with others, gradients would be those of different
        embeddings than the loss.
        """
        outputs: list[Tensor] = []

        def embed(images: Tensor) -> Tensor:
            output = network(images)
            outputs.append(output.detach())
            if len(outputs) == 2:
                _check_repeated(*outputs)
                self._compared = True
            return output

        return embed

    @contextmanager
    def _keep_buffers(self) -> Iterator[None]:
        """Restores the running statistics, which the first forward pass has updated already."""
        kept = [(buffer, buffer.clone()) for buffer in self.embedder.buffers()]
        try:
            yield
        finally:
            for buffer, value in kept:
                buffer.copy_(value)


def _check_repeated(first: Tensor, second: Tensor) -> None:
    """Raises UserError if two passes over the same images differ by more than rounding errors."""
    largest = first.abs().max()
    difference = (first - second).abs().max()
    if difference > TOLERANCE * largest:
        raise UserError(
            "data.micro_batch: the network gives other features when it embeds the same images "
            "again; draw its random numbers with torch, not with numpy or random, and keep nothing "
            "between two calls, or train without data.micro_batch"
        )
