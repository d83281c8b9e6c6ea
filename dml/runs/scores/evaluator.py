"""Embeds a split with a network and scores its retrieval."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.data.image_index import Subset
from dml.data.loaders import LoaderOptions, eval_batches
from dml.retrieval import retrieval_metrics
from dml.training.process_group import ALONE, World


@dataclass(frozen=True)
class Split:
    """What is ranked against what.

    Attributes:
        query: the images that ask.
        gallery: the images that are searched; None: the queries themselves, each without itself.
    """

    query: Subset
    gallery: Subset | None = None

    @property
    def subsets(self) -> list[Subset]:
        """Query, then gallery if there is one."""
        return [self.query] if self.gallery is None else [self.query, self.gallery]


@dataclass(frozen=True)
class Embedded:
    """A split's embeddings N×D (at least float32) and dataset-wide labels N, on the device."""

    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None

    @property
    def collapsed(self) -> bool:
        """Whether all embeddings are one point, so that ties alone decide every score."""
        points = self.query if self.gallery is None else torch.cat([self.query, self.gallery])
        return len(points) > 1 and bool((points == points[0]).all())

    def score(self, recall_at: tuple[int, ...]) -> dict[str, float]:
        """The metrics of `dml.retrieval.retrieval_metrics`.

        Raises:
            UserError: embeddings that are not finite.
        """
        try:
            return retrieval_metrics(
                self.query,
                self.query_labels,
                self.gallery,
                self.gallery_labels,
                recall_at=recall_at,
            )
        except ValueError as error:
            raise UserError(f"evaluation: {error}") from error


@dataclass(frozen=True)
class Evaluator:
    """Everything but the network: call it with one to get its metrics.

    Attributes:
        split: what to score on.
        transform: resize and central crop of one uint8 image.
        options: how images are loaded, and the device where the network is.
        batch_size: images at a time.
        world: the processes that each embed their share of the images; all get all embeddings, and
            the first one scores them.
    """

    split: Split
    transform: nn.Module
    options: LoaderOptions
    batch_size: int
    world: World = ALONE

    def __call__(self, embedder: nn.Module) -> dict[str, float]:
        """Metrics of the network as it is."""
        return self.score(self.embed(embedder))

    def score(self, embedded: Embedded) -> dict[str, float]:
        """Metrics of the split's embeddings."""
        return self.world.on_main(lambda: embedded.score(self.split.query.index.recall_at))

    @torch.no_grad()
    def embed(self, embedder: nn.Module) -> Embedded:
        """Embeds query and gallery in evaluation mode; the network's mode is put back."""
        was_training = embedder.training
        embedder.eval()
        parts: list[Tensor] = []
        options = replace(self.options, rank=self.world.rank, world_size=self.world.size)
        for subset in self.split.subsets:
            batches = eval_batches(subset, self.transform, options, self.batch_size)
            own = torch.cat([embedder(images) for images, _ in batches])
            parts.append(self.world.gather(own, len(subset)))
            parts.append(torch.from_numpy(dataset_labels(subset)).to(self.options.device))
        embedder.train(was_training)
        return Embedded(*parts)


def dataset_labels(subset: Subset) -> np.ndarray:
    """Labels of a subset in the numbering of the whole dataset, which query and gallery share."""
    return subset.index.labels[subset.rows]
