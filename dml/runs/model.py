"""A network on its device, and the way of images into it: transforms, loaders, precision."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Literal

import torch

from dml.core.errors import UserError
from dml.core.option_values import has_seen_classes
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.loaders import LoaderOptions, resolve_eval_batch_size, resolve_workers
from dml.data.protocol import Split
from dml.models.embedder import NORMALIZERS, Embedder
from dml.retrieval import class_mean_accuracy, neighbor_accuracy
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.identification import Identification, identify
from dml.runs.build import Builder
from dml.runs.embeddings import Evaluator
from dml.training.device import autocast
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


class Model:
    """A network that embeds images as the config of its builder says.

    Args:
        builder: of the config.
        embedder: the network, on its device.
        index: the dataset whose images are embedded.
        device: that of the network.
        source: cached images; None: decode at every access.
        world: the processes, each of which embeds a part of the images.
        processes: number of processes on this machine that load images at the same time.

    Attributes:
        transforms: of an image on its way into the network.
    """

    def __init__(
        self,
        builder: Builder,
        embedder: Embedder,
        index: ImageIndex,
        device: torch.device,
        source: ImageSource | None = None,
        world: ProcessGroup = SINGLE_PROCESS,
        processes: int = 1,
    ) -> None:
        self.config, self.embedder, self.device = builder.config, embedder, device
        self.index, self.source, self.world = index, source, world
        self._processes = processes
        self.transforms = builder.transforms(embedder)
        self.metrics = builder.metrics
        # The loading processes of an evaluator wait for the next evaluation.
        self.evaluator = lru_cache(maxsize=None)(self._create_evaluator)

    @cached_property
    def loading(self) -> LoaderOptions:
        """Loader options of this process's part of each batch."""
        return self.loading_with(self.config.data.workers)

    def loading_with(self, workers: int | Literal["auto"]) -> LoaderOptions:
        """Returns loader options with another number of loading processes."""
        return LoaderOptions(
            self.transforms.to_input,
            self.device,
            resolve_workers(workers, self.index, self.device, self._processes),
            self.source,
            rank=self.world.rank,
            world_size=self.world.size,
        )

    @property
    def pixels(self) -> int | None:
        """Side of an image in the network; None for images of any size."""
        return self.config.transform.size or self.embedder.input.size

    @cached_property
    def eval_batch_size(self) -> int:
        """Number of images of a batch without training."""
        size = self.config.data.eval_batch_size
        return resolve_eval_batch_size(size, self.pixels, self.device)

    def embed(self, split: Split, everywhere: bool = True) -> SplitEmbeddings:
        """Returns the embeddings of a split by the current weights; see `Evaluator.embed`."""
        with autocast(self.config.precision, self.device):
            return self.evaluator(split).embed(self.embedder, everywhere)

    def embed_references(self, training: Split) -> SplitEmbeddings | None:
        """Returns the embeddings of training images on the first process.

        None: the protocol tests unseen classes.
        """
        if not has_seen_classes(self.config.protocol.splits) or not len(training.query):
            return None
        return self.embed(training, everywhere=False)

    def accuracies(
        self, embeddings: SplitEmbeddings, references: SplitEmbeddings | None
    ) -> dict[str, float]:
        """Returns the accuracies (`ACCURACIES`) of queries by training images; none without these.

        Raises:
            UserError: embeddings are not finite.
        """
        if references is None:
            return {}
        parts = (*embeddings[:2], *references[:2])
        normalize = NORMALIZERS[self.embedder.normalize]
        neighbors = self.config.protocol.neighbors

        def score() -> dict[str, float]:
            try:
                return {
                    "accuracy_class_mean": class_mean_accuracy(*parts, normalize=normalize),
                    "accuracy_neighbors": neighbor_accuracy(*parts, neighbors=neighbors),
                }
            except ValueError as error:
                raise UserError(f"evaluation: {error}") from error

        return self.world.broadcast_from_main(score)

    def identify(self, embeddings: SplitEmbeddings, references: SplitEmbeddings) -> Identification:
        """Returns the classes of queries by training images, as `accuracies` counts them.

        Raises:
            UserError: embeddings are not finite.
        """
        normalize = NORMALIZERS[self.embedder.normalize]
        return identify(embeddings, references, normalize, self.config.protocol.neighbors)

    def _create_evaluator(self, split: Split) -> Evaluator:
        """Returns the evaluator of a network on a split."""
        return Evaluator(
            split,
            self.transforms.test,
            self.loading,
            self.eval_batch_size,
            self.world,
            self.config.evaluation.backend,
            self.metrics,
            self.config.protocol.select_metric,
        )
