"""The loss of a batch whose images are spread over the processes of a group.

Gradients are averaged by torch's DistributedDataParallel, BatchNorm statistics by its
SyncBatchNorm.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dml.core.errors import UserError
from dml.core.torch_internals import BatchNorm
from dml.training.empty_loss import connect_to_parameters
from dml.training.interfaces import Method
from dml.training.process_group import ProcessGroup, translate_connection_errors


class ShardedEmbedder:
    """Replaces the embedder in the calls of a method; forwards other attributes to the embedder.

    Args:
        embedder: with `features`, `embed` and `unnormalized`.
        world: the processes.
        whole: tensors of the whole batch that the method needs in addition to the embeddings:
            "images", "features", both or none.
    """

    def __init__(self, embedder: Any, world: ProcessGroup, whole: Collection[str]) -> None:
        self.embedder, self.world = embedder, world
        self.whole_images, self.whole_features = "images" in whole, "features" in whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def gather_inputs(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns all labels of the batch, and all or only the local images, by `whole`."""
        return self.world.gather(images) if self.whole_images else images, self.world.gather(labels)

    def features(self, images: Tensor) -> Tensor:
        """Returns the features of the whole batch or of the local images, by `whole`."""
        features = self.embedder.features(self._local(images))
        if not self.whole_features:
            return features
        return self.world.gather(features, self._total(images))

    def embed(self, features: Tensor) -> Tensor:
        """Returns the embeddings of the whole batch from the result of `features`."""
        embeddings = self.embedder.embed(features)
        # Pooling and head are cheap: every process computes them for the whole batch.
        return embeddings if self.whole_features else self.world.gather(embeddings)

    def __call__(self, images: Tensor) -> Tensor:
        """Returns the embeddings of the whole batch, or of all mixed images."""
        return self.world.gather(self.embedder(self._local(images)), self._total(images))

    def unnormalized(self, images: Tensor) -> Tensor:
        """Returns the embeddings, before normalization, of the images of all processes."""
        return self.world.gather_variable(self.embedder.unnormalized(images))

    def _local(self, images: Tensor) -> Tensor:
        return images[self.world.local_slice(len(images))] if self.whole_images else images

    def _total(self, images: Tensor) -> int | None:
        """Returns the argument `length` of `gather`: the number of images in all processes."""
        return len(images) if self.whole_images else None


class BatchLoss(nn.Module):
    """The loss of the whole batch, as a module with all trained parameters."""

    def __init__(self, embedder: nn.Module, method: Method, world: ProcessGroup) -> None:
        super().__init__()
        self.embedder = embedder.get_submodule("")  # the network itself, if it embeds micro-batches
        self.method = method
        self._sharded = ShardedEmbedder(embedder, world, method.whole)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss for the local images and labels, and values to log."""
        images, labels = self._sharded.gather_inputs(images, labels)
        loss, logs = self.method(self._sharded, images, labels)
        return connect_to_parameters(loss, logs, self.parameters())


class DataParallelLoss:
    """The loss of the whole batch, whose backward pass averages gradients over processes.

    DistributedDataParallel wraps network, method and loss together, because methods call parts of
    the network several times and with mixed inputs. The wrapper is used only here, so that names in
    checkpoints do not change.

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
        """Returns the loss for the local images and labels, and values to log."""
        trainable = [p.requires_grad for p in self.module.parameters()]
        if trainable != self._trainable:  # warm-up begins or ends
            self._trainable = trainable
            self._wrapped = _distribute(self.module) if any(trainable) else self.module
        return self._wrapped(images, labels)


def _distribute(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings(), translate_connection_errors():
        # torch 2.15 renames this argument, which earlier versions require.
        warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
        # Buffers are equal on all processes, since BatchNorm uses all images. In a batch, proxies
        # or unused layers may have no gradient.
        return DistributedDataParallel(module, broadcast_buffers=False, find_unused_parameters=True)


def synchronize_batch_norm(network: nn.Module, device: torch.device) -> None:
    """Converts the BatchNorm layers in `network` to use the batch of all processes, in place.

    Parameters and names do not change.

    Raises:
        UserError: there is a BatchNorm layer but no GPU, which torch's SyncBatchNorm requires.
    """
    if device.type != "cuda":
        if any(isinstance(layer, BatchNorm) for layer in network.modules()):
            raise UserError(
                "torchrun: without GPUs, several processes need embedder.freeze_batch_norm=true"
            )
        return
    from timm.layers import convert_sync_batchnorm  # also converts timm's BatchNorm layers

    for name, child in network.named_children():
        network.add_module(name, convert_sync_batchnorm(child))
