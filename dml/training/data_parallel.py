"""A network whose batch is divided among processes, as a method sees it.

A method computes the loss of the whole batch on every process. Only the network's passes are
divided: each process embeds its share of the images, and all get the embeddings of all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from dml.training.process_group import World


class ShardedEmbedder:
    """Stands in for an embedder; whatever is not named here is the embedder's own.

    Args:
        embedder: with `features`, `embed` and `unnormalized`.
        world: the processes.
        whole: what a method needs of the whole batch beside its embeddings, to mix it: "images",
            of which every process then gets all, "features", both or nothing.
    """

    def __init__(self, embedder: nn.Module, world: World, whole: Collection[str]) -> None:
        self.embedder, self.world = embedder, world
        self.whole_images, self.whole_features = "images" in whole, "features" in whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.embedder, name)

    def given(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What the method gets: the labels of the whole batch, and its images if it mixes them."""
        return self.world.gather(images) if self.whole_images else images, self.world.gather(labels)

    def features(self, images: Tensor) -> Tensor:
        """Of the whole batch if the method mixes them, else this process's share."""
        count = len(images)
        features = self.embedder.features(self._own(images))  # type: ignore[operator]
        return self.world.gather(features, self._length(count)) if self.whole_features else features

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings of the whole batch from what `features` returned."""
        embeddings = self.embedder.embed(features)  # type: ignore[operator]
        # Pooling and head are so little work that all processes do all of it.
        return embeddings if self.whole_features else self.world.gather(embeddings)

    def __call__(self, images: Tensor) -> Tensor:
        """Embeddings of the whole batch, or of as many images as a method mixed."""
        return self.world.gather(self.embedder(self._own(images)), self._length(len(images)))

    def unnormalized(self, images: Tensor) -> Tensor:
        """Embeddings of the images of all processes before the normalizer."""
        return self.world.gather_any(self.embedder.unnormalized(images))  # type: ignore[operator]

    def _own(self, images: Tensor) -> Tensor:
        return images[self.world.share(len(images))] if self.whole_images else images

    def _length(self, images: int) -> int | None:
        """For `World.gather`: of how many images this process embedded its share."""
        return images if self.whole_images else None
