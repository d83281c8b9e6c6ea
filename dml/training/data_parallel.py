"""An embedder whose batch is shared among processes.

A method computes the loss of the whole batch on every process. Only the passes of the network are
shared: each process embeds its part of the images, and all processes get all embeddings.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

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
