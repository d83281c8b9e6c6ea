"""Loss and gradients of a batch that is shared among processes.

A method computes the loss of the whole batch on every process. Only the passes of the network are
shared: each process embeds its part of the images, and all processes get all embeddings. Gradients
are averaged by torch's DistributedDataParallel, BatchNorm statistics by its SyncBatchNorm.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from dml.core.errors import UserError
from dml.training.interfaces import Method
from dml.training.process_group import ProcessGroup, translate_connection_errors


class ShardedEmbedder:
    """Replaces an embedder in the calls of a method; other attributes are the embedder's.

    Args:
        embedder: with `features`, `embed` and `unnormalized`.
        world: the processes.
        whole: what a method needs of the whole batch in addition to its embeddings: "images", which
            every process then gets, "features", both or nothing.
    """

    def __init__(self, embedder: Any, world: ProcessGroup, whole: Collection[str]) -> None:
        self.embedder, self.world = embedder, world
        self.whole_images, self.whole_features = "images" in whole, "features" in whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def gather_inputs(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Labels of the whole batch, and its images if the method mixes them."""
        return self.world.gather(images) if self.whole_images else images, self.world.gather(labels)

    def features(self, images: Tensor) -> Tensor:
        """Features of the whole batch if the method mixes them, else of this process's part."""
        features = self.embedder.features(self._local(images))
        if not self.whole_features:
            return features
        return self.world.gather(features, self._total(images))

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings of the whole batch from what `features` returned."""
        embeddings = self.embedder.embed(features)
        # Pooling and head cost so little that every process computes them for the whole batch.
        return embeddings if self.whole_features else self.world.gather(embeddings)

    def __call__(self, images: Tensor) -> Tensor:
        """Embeddings of the whole batch, or of the images that a method mixed."""
        return self.world.gather(self.embedder(self._local(images)), self._total(images))

    def unnormalized(self, images: Tensor) -> Tensor:
        """Embeddings of the images of all processes before the normalizer."""
        return self.world.gather_variable(self.embedder.unnormalized(images))

    def _local(self, images: Tensor) -> Tensor:
        return images[self.world.local_slice(len(images))] if self.whole_images else images

    def _total(self, images: Tensor) -> int | None:
        """The number of images of which this process embedded its part, for `gather`."""
        return len(images) if self.whole_images else None


class BatchLoss(nn.Module):
    """The loss of the whole batch, as one module with all parameters that are trained."""

    def __init__(self, embedder: nn.Module, method: Method, world: ProcessGroup) -> None:
        super().__init__()
        self.embedder, self.method = embedder, method
        self._sharded = ShardedEmbedder(embedder, world, method.whole)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss from this process's images and labels, and values to log."""
        images, labels = self._sharded.gather_inputs(images, labels)
        return self.method(self._sharded, images, labels)


class DataParallelLoss:
    """The loss of the whole batch, with a backward pass that averages gradients over processes.

    DistributedDataParallel wraps network, method and loss together, since methods call parts of the
    network, repeatedly and with mixed inputs. Nothing else sees the wrapped module, so that names
    in checkpoints stay the same.

    Args:
        embedder: see `ShardedEmbedder`.
        method: computes the loss.
        world: the processes.
    """

    def __init__(self, embedder: nn.Module, method: Method, world: ProcessGroup) -> None:
        self.module = BatchLoss(embedder, method, world)
        self._trainable: list[bool] = []
        self._wrapped: nn.Module = self.module

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss from this process's images and labels, and values to log."""
        trainable = [p.requires_grad for p in self.module.parameters()]
        if trainable != self._trainable:  # warm-up begins or ends
            self._trainable = trainable
            self._wrapped = _distribute(self.module) if any(trainable) else self.module
        return self._wrapped(images, labels)

    def backward(self, loss: Tensor) -> None:
        """Gives every process the gradients that a single process would have.

        Raises:
            ConnectionLost: another process ended.
        """
        with translate_connection_errors(in_backward=True):
            loss.backward()


def _distribute(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings(), translate_connection_errors():
        # torch 2.15 renames the argument, which earlier versions need.
        warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
        # Buffers are the same everywhere: statistics of BatchNorm are those of all images. A batch
        # may leave proxies or unused layers without a gradient.
        return DistributedDataParallel(module, broadcast_buffers=False, find_unused_parameters=True)


def synchronize_batch_norm(network: nn.Module, device: torch.device) -> None:
    """Makes the BatchNorm layers within `network` use the batch of all processes.

    Parameters and names stay the same.

    Raises:
        UserError: there is such a layer, and no GPU: torch's SyncBatchNorm requires one.
    """
    if device.type != "cuda":
        if any(isinstance(layer, _BatchNorm) for layer in network.modules()):
            raise UserError(
                "torchrun: BatchNorm is synchronized between processes on GPUs only; on CPUs set "
                "embedder.freeze_batch_norm=true, or start one process"
            )
        return
    from timm.layers import convert_sync_batchnorm  # also converts timm's BatchNorm layers

    for name, child in network.named_children():
        network.add_module(name, convert_sync_batchnorm(child))
