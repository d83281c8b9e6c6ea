"""Loss and gradients of a batch that is shared among processes.

A method computes the loss of the whole batch on every process. Only the passes of the network are
shared: each process embeds its part of the images, and all processes get all embeddings. Gradients
are averaged by DistributedDataParallel.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dml.training.collectives import translate_connection_errors
from dml.training.process_group import ProcessGroup


class ShardedEmbedder:
    """Replaces an embedder in the calls of a method; other attributes are the embedder's.

    Args:
        embedder: with `features`, `embed` and `unnormalized`.
        world: the processes.
        whole: what a method needs of the whole batch beside its embeddings: "images", which every
            process then gets, "features", both or nothing.
    """

    def __init__(self, embedder: nn.Module, world: ProcessGroup, whole: Collection[str]) -> None:
        self.embedder, self.world = embedder, world
        self.whole_images, self.whole_features = "images" in whole, "features" in whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def gather_inputs(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Labels of the whole batch, and its images if the method mixes them."""
        return self.world.gather(images) if self.whole_images else images, self.world.gather(labels)

    def features(self, images: Tensor) -> Tensor:
        """Features of the whole batch if the method mixes them, else of this process's part."""
        count = len(images)
        features = self.embedder.features(self._local(images))  # type: ignore[operator]
        return self.world.gather(features, self._total(count)) if self.whole_features else features

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings of the whole batch from what `features` returned."""
        embeddings = self.embedder.embed(features)  # type: ignore[operator]
        # Pooling and head cost so little that every process computes them for the whole batch.
        return embeddings if self.whole_features else self.world.gather(embeddings)

    def __call__(self, images: Tensor) -> Tensor:
        """Embeddings of the whole batch, or of the images that a method mixed."""
        return self.world.gather(self.embedder(self._local(images)), self._total(len(images)))

    def unnormalized(self, images: Tensor) -> Tensor:
        """Embeddings of the images of all processes before the normalizer."""
        return self.world.gather_variable(self.embedder.unnormalized(images))  # type: ignore[operator]

    def _local(self, images: Tensor) -> Tensor:
        return images[self.world.local_slice(len(images))] if self.whole_images else images

    def _total(self, images: int) -> int | None:
        """The number of images of which this process embedded its part, for `gather`."""
        return images if self.whole_images else None


class BatchLoss(nn.Module):
    """The loss of the whole batch, as one module with all parameters that are trained.

    Args:
        embedder: see `ShardedEmbedder`.
        method: see `dml.training.interfaces.Method`.
        world: the processes.
    """

    def __init__(self, embedder: nn.Module, method: nn.Module, world: ProcessGroup) -> None:
        super().__init__()
        self.embedder, self.method = embedder, method
        whole: frozenset[str] = getattr(method, "whole", frozenset())
        self._sharded = ShardedEmbedder(embedder, world, whole)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss from this process's images and labels, and values to log."""
        images, labels = self._sharded.gather_inputs(images, labels)
        return self.method(self._sharded, images, labels)


class DataParallelLoss:
    """The loss of the whole batch, with a backward pass that averages gradients over processes.

    DistributedDataParallel sends gradients in buckets while the backward pass goes on. It wraps
    network, method and loss together, since methods call parts of the network, repeatedly and with
    mixed inputs. Nothing else sees the wrapped module, so that names in checkpoints stay the same.

    It needs a gradient of every parameter at every step. A parameter that once got none (a layer
    that the chosen pooling does not use, proxies that a batch does not reach) is left out from then
    on, and averaged after the backward pass: `find_unused_parameters` would search the graph, and
    make the host wait for the GPU, at every step.

    Args:
        embedder: see `ShardedEmbedder`.
        method: see `dml.training.interfaces.Method`.
        world: the processes.
    """

    def __init__(self, embedder: nn.Module, method: nn.Module, world: ProcessGroup) -> None:
        self.module, self.world = BatchLoss(embedder, method, world), world
        self._parameters = list(self.module.parameters())
        self._trainable: list[bool] = []
        self._left_out: list[nn.Parameter] = []
        self._wrapped: nn.Module | None = None
        self._averaged: list[nn.Parameter] = []  # by the wrapped module

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss from this process's images and labels, and values to log."""
        trainable = [p.requires_grad for p in self._parameters]
        if trainable != self._trainable:  # warm-up begins or ends
            self._trainable, self._wrapped = trainable, None
        if self._wrapped is None:
            self._wrapped = self._wrap()
        return self._wrapped(images, labels)

    def backward(self, loss: Tensor) -> None:
        """Gives every process the gradients that a single process would have (see `collectives`).

        Raises:
            ConnectionLost: another process ended.
        """
        with translate_connection_errors(in_backward=True):
            loss.backward()
        unused = [p for p in self._averaged if p.grad is None]
        if unused:
            # Its bucket waits for it; until all are complete, gradients are those of this process.
            self._left_out += unused
            self._wrapped = None
        self.world.average_gradients(self._parameters if unused else self._left_out)

    def _wrap(self) -> nn.Module:
        left_out = [p for p in self._left_out if p.requires_grad]
        for p in left_out:
            p.requires_grad_(False)  # so that it is not registered
        try:
            self._averaged = [p for p in self._parameters if p.requires_grad]
            return _distribute(self.module) if self._averaged else self.module
        finally:
            for p in left_out:
                p.requires_grad_(True)


def _distribute(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        # torch 2.15 renames the argument, which earlier versions need.
        warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
        # Weights were sent before, and buffers are the same everywhere: statistics of BatchNorm are
        # those of all images. Gradients must not be views of the buckets (`backward`).
        return DistributedDataParallel(
            module, broadcast_buffers=False, init_sync=False, gradient_as_bucket_view=False
        )
