"""The embeddings of a split by a network, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from dml.core.metric_names import recall_levels
from dml.core.progress import show_progress, show_task
from dml.core.signals import pending_stop
from dml.data.categories import image_categories
from dml.data.loaders import Batches, LoaderOptions, eval_batches
from dml.data.protocol import Split
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.custom_metrics import CustomMetric, score_all
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


@dataclass(frozen=True)
class Evaluator:
    """Embeds a split and scores the embeddings.

    Attributes:
        split: queries and gallery.
        transform: resize and central crop of one uint8 image.
        options: loader options; their device is that of the network, and their part of the images
            that of this process.
        batch_size: images per batch.
        world: the processes, each of which embeds a part of the images; the first one gets all
            embeddings and scores them.
        backend: search of the neighbors, as for `retrieval_metrics`.
        metrics: further metrics of the user.
        select_metric: the metric that selects the best epoch, which is always among the scores.
    """

    split: Split
    transform: nn.Module
    options: LoaderOptions
    batch_size: int
    world: ProcessGroup = SINGLE_PROCESS
    backend: str = "auto"
    metrics: Sequence[CustomMetric] = ()
    select_metric: str = "map_at_r"

    def score(self, embeddings: SplitEmbeddings, is_final: bool = False) -> dict[str, float]:
        """Returns the metrics of the split's embeddings.

        Args:
            embeddings: of the split.
            is_final: whether they are of the best network.
        """
        with show_task("scoring"):
            return self.world.broadcast_from_main(partial(self._score, embeddings, is_final))

    def _score(self, embeddings: SplitEmbeddings, is_final: bool) -> dict[str, float]:
        recall_at = recall_levels(self.split.query.index.recall_at, self.select_metric)
        scores = embeddings.to(self.options.device).score(recall_at, self.backend)
        return scores | score_all(self.metrics, embeddings, is_final)

    def score_categories(self, embeddings: SplitEmbeddings) -> dict[str, dict[str, float]]:
        """Returns the scores of each category (`SplitEmbeddings.score_categories`).

        Raises:
            UserError: a query has no category.
        """
        categories = image_categories(self.split.query, "evaluation.by")
        score = embeddings.to(self.options.device).score_categories
        with show_task("scoring categories"):
            return self.world.broadcast_from_main(partial(score, categories, self.backend))

    @cached_property
    def _batches(self) -> list[Batches]:
        """The batches of each subset, whose workers wait for the next evaluation."""
        return [
            eval_batches(subset, self.transform, self.options, self.batch_size)
            for subset in self.split.subsets
        ]

    @torch.no_grad()
    def embed(self, embedder: nn.Module, everywhere: bool = True) -> SplitEmbeddings:
        """Embeds query and gallery in evaluation mode, and restores the mode of the network.

        Args:
            embedder: the network.
            everywhere: whether all processes get all embeddings; False: the first one alone, and
                the others none (0×D).
        """
        gather = self.world.gather if everywhere else self.world.gather_on_main
        was_training = embedder.training
        embedder.eval()
        parts: list[Tensor] = []
        for subset, batches in zip(self.split.subsets, self._batches, strict=True):
            part = self.world.local_slice(len(subset))
            local = self._embed_part(embedder, batches, part.stop - part.start)
            parts.append(gather(local, len(subset)))
            labels = subset.index.labels[subset.rows]  # of the dataset: both subsets share them
            parts.append(torch.from_numpy(labels).to(self.options.device))
        embedder.train(was_training)
        return SplitEmbeddings(*parts)

    def _embed_part(self, embedder: nn.Module, batches: Batches, count: int) -> Tensor:
        """Returns the embeddings of this process's part of a subset, of so many images."""
        rows: Tensor | None = None
        end = 0
        for images, _ in show_progress(batches, "embedding batch", len(batches)):
            batch = embedder(images)
            if rows is None:  # for all: a list of the batches would double them at the end
                rows = batch.new_empty(count, *batch.shape[1:])
            rows[end : end + len(batch)] = batch
            end += len(batch)
            request = pending_stop() if self.world.size == 1 else None
            if request is not None:  # else the others wait for this part
                raise request
        assert rows is not None
        return rows
