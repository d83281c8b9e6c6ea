"""Embeds a split with a network and scores its retrieval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.core.progress import show_progress, show_task
from dml.data.image_index import Subset
from dml.data.loaders import Batches, LoaderOptions, eval_batches
from dml.retrieval import retrieval_metrics
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


@dataclass(frozen=True)
class Split:
    """Queries and the gallery that they are ranked against.

    Attributes:
        query: the query images.
        gallery: the images to retrieve; None: the queries, each without itself.
    """

    query: Subset
    gallery: Subset | None = None

    @property
    def subsets(self) -> list[Subset]:
        """Query, then gallery if there is one."""
        return [self.query] if self.gallery is None else [self.query, self.gallery]


@dataclass(frozen=True)
class SplitEmbeddings:
    """A split's embeddings N×D (at least float32) and dataset-wide labels N, on the device."""

    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None

    @property
    def collapsed(self) -> bool:
        """True if all embeddings are equal, so that scores depend on the order of ties."""
        points = self.query if self.gallery is None else torch.cat([self.query, self.gallery])
        return len(points) > 1 and bool((points == points[0]).all())

    def score(self, recall_at: tuple[int, ...], backend: str = "auto") -> dict[str, float]:
        """The metrics of `dml.retrieval.retrieval_metrics`, whose arguments these are.

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
                backend=backend,
            )
        except ValueError as error:
            raise UserError(f"evaluation: {error}") from error


@dataclass(frozen=True)
class Evaluator:
    """Embeds and scores a split; called with a network, returns its metrics.

    Attributes:
        split: queries and gallery.
        transform: resize and central crop of one uint8 image.
        options: loader options; their device is that of the network.
        batch_size: images per batch.
        world: the processes, each of which embeds a part of the images; all get all embeddings,
            and the first one scores them.
        backend: search of the neighbors, as for `retrieval_metrics`.
    """

    split: Split
    transform: nn.Module
    options: LoaderOptions
    batch_size: int
    world: ProcessGroup = SINGLE_PROCESS
    backend: str = "auto"

    def __call__(self, embedder: nn.Module) -> dict[str, float]:
        """Returns the metrics of the network."""
        return self.score(self.embed(embedder))

    def score(self, embeddings: SplitEmbeddings) -> dict[str, float]:
        """Returns the metrics of the split's embeddings."""
        with show_task("scoring"):
            return self.world.broadcast_from_main(
                lambda: embeddings.score(self.split.query.index.recall_at, self.backend)
            )

    @cached_property
    def _batches(self) -> list[Batches]:
        """The batches of each subset, whose workers wait for the next evaluation."""
        options = replace(self.options, rank=self.world.rank, world_size=self.world.size)
        return [
            eval_batches(subset, self.transform, options, self.batch_size)
            for subset in self.split.subsets
        ]

    @torch.no_grad()
    def embed(self, embedder: nn.Module) -> SplitEmbeddings:
        """Embeds query and gallery in evaluation mode, and restores the mode of the network."""
        was_training = embedder.training
        embedder.eval()
        parts: list[Tensor] = []
        for subset, batches in zip(self.split.subsets, self._batches, strict=True):
            shown = show_progress(batches, "embedding batch", len(batches))
            local = torch.cat([embedder(images) for images, _ in shown])
            parts.append(self.world.gather(local, len(subset)))
            parts.append(torch.from_numpy(dataset_labels(subset)).to(self.options.device))
        embedder.train(was_training)
        return SplitEmbeddings(*parts)


def dataset_labels(subset: Subset) -> np.ndarray:
    """Labels of a subset in the numbering of the whole dataset, which query and gallery share."""
    return subset.index.labels[subset.rows]
