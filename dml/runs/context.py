"""What the models of a run share, and a model before its training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dml.config.check import change
from dml.config.schema import Config
from dml.core.errors import UserError
from dml.core.launcher import read_launch
from dml.core.progress import show_task
from dml.data.augmentations import CustomTransform, describe_difference
from dml.data.categories import categories_of_classes, image_categories
from dml.data.custom_sampler import OPTION, CustomBatches
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.loaders import Batches, LoaderOptions, pool_batches, train_batches
from dml.data.protocol import Job, Split, create_jobs
from dml.data.samplers import BatchSchedule, build_schedule
from dml.runs.build import Builder
from dml.runs.model import Model
from dml.runs.training_status import Trial
from dml.training.device import resolve_device
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup
from dml.training.train_state import (
    TrainState,
    average_weights,
    random_state,
    set_random_state,
)

SIDE = 64  # of the image on which augmentations are tried, where images keep their size


@dataclass
class RunContext:
    """What the models of a run share.

    Attributes:
        config: of the run; on a GPU with the options that `speed=fast` sets.
        world: the processes that train each model together.
        images: the dataset; None: that of the config, read when it is needed.
        trial: the trial of a search that the models belong to.
        dataset: as its reader gave it, if it was read before.
        prepared: a model that is built already, until it is taken.
        device: of the networks, which the config names.
        builder: of network, method and optimizer.
    """

    config: Config
    world: ProcessGroup = SINGLE_PROCESS
    images: ImageIndex | None = None
    trial: Trial | None = None
    dataset: ImageIndex | None = None
    prepared: JobModel | None = None

    def __post_init__(self) -> None:
        self.device = resolve_device(self.config.device, self.world)
        self.config = self.config.on_device(self.device.type == "cuda")
        self.builder = Builder(self.config)

    def with_values(self, values: dict[str, Any], trial: Trial | None = None) -> RunContext:
        """Returns the context with other values of dotted options, on the same device."""
        config = change(self.config, values).model_copy(update={"device": self.config.device})
        return RunContext(config, self.world, self.index, trial)

    @cached_property
    def index(self) -> ImageIndex:
        """The dataset."""
        if self.images is not None:
            return self.images
        with show_task(f"reading {self.config.data.name}"):
            return self.builder.index(self.dataset)

    @cached_property
    def source(self) -> ImageSource | None:
        """The cached images, which are made at the first access; None: decode at every access."""
        return self.builder.source(self.index)

    @cached_property
    def jobs(self) -> list[Job]:
        """The models of the run, in order."""
        c, p = self.config, self.config.protocol
        return create_jobs(p.splits, p.repeats, self.index, c.data.label_noise, c.seed)

    def check_categories(self, jobs: Iterable[Job]) -> None:
        """Checks that the images of models have the categories that their options need.

        Raises:
            UserError: an image has none, or a model has too few of them.
        """
        for job in jobs:
            if self.config.data.sampler == "category":
                _build_schedule(self.builder, job, seed=0)
            if self.config.evaluation.by is not None and len(job.test.query):
                image_categories(job.test.query, "evaluation.by")

    def take_model(self, job: Job) -> JobModel:
        """Returns the model of a job, and keeps no reference: it is freed after its training."""
        prepared, self.prepared = self.prepared, None
        if prepared is not None and prepared.job.key == job.key:
            return prepared
        return JobModel(self, job)


class JobModel(Model):
    """A model of a run before its training: network, method, and training batches.

    Its weights and batches follow from seed, repeat and fold.

    Args:
        context: shared by the models of the run.
        job: the model.

    Attributes:
        schedule: the rows of each training batch.
        training_split: the training images, to be embedded.
        method: with the loss, on the device.

    Raises:
        ConfigError: an option that network, loss or method rejects.
        UserError: there are not enough images to fill the batches.
    """

    def __init__(self, context: RunContext, job: Job) -> None:
        config, device, world = context.config, context.device, context.world
        seeds = np.random.SeedSequence([config.seed, *job.key]).generate_state(2)
        model_seed, self._batch_seed = map(int, seeds)
        if job.train.index.features is not None and device.type == "cpu":
            torch.set_num_threads(1)  # a step is too small for several, which wait for each other
        self.job = job
        self.schedule = _build_schedule(context.builder, job, self._batch_seed)
        torch.manual_seed(model_seed)
        embedder = context.builder.network(job.train, world, device)
        processes = max(read_launch().local_size, config.protocol.workers)
        super().__init__(
            context.builder, embedder, context.index, device, context.source, world, processes
        )
        self._of_training = self.transforms.train
        self._augmentations = context.builder.augmentations()
        if config.transform.then:
            train = nn.Sequential(self.transforms.train, self._augmentations)
            self.transforms = self.transforms._replace(train=train)
        classes, size = job.train.num_classes, embedder.embedding_size
        self.method = context.builder.method(classes, size).to(device)
        self._builder = context.builder
        self._random = world.broadcast_from_main(lambda: random_state(device))
        self.training_split = Split(job.train)

    def check_custom_parts(self) -> Iterator[str]:
        """Tries the augmentations, transforms, sampler and metrics that the user has chosen.

        Yields:
            Notes, as on a part whose results do not follow from the seed.

        Raises:
            ConfigError: one fails, or returns another form.
        """
        for transform in (self._of_training, self.transforms.test):
            if isinstance(transform, CustomTransform):
                yield from transform.check(self.pixels)
        yield from self._augmentations.check(self.pixels or SIDE)
        if isinstance(self.schedule, CustomBatches) and self.schedule.differs():
            yield describe_difference(OPTION)
        has_gallery, select = self.job.test.gallery is not None, self.config.protocol.select_metric
        for metric in self.metrics:
            yield from metric.check(self.embedder.embedding_size, has_gallery, select)

    def restore_random_state(self) -> None:
        """Sets the state of the random generators to that after building the model."""
        set_random_state(self._random, self.device)

    def create_state(self) -> TrainState:
        """Returns network, method, and a new optimizer and schedule."""
        optimizer, scheduler = self.build_optimizer(self.embedder, self.method)
        average = None
        if self.config.ema is not None:
            average = average_weights(self.embedder, self.config.ema)
        unit = self.config.optim.schedule_unit
        return TrainState(self.embedder, self.method, optimizer, scheduler, unit, average)

    def build_optimizer(
        self, embedder: nn.Module, method: nn.Module
    ) -> tuple[Optimizer, LRScheduler | None]:
        """Returns an optimizer and a schedule of a network and a method, for this training."""
        return self._builder.optimizer(embedder, method, self.schedule.steps_per_epoch)

    def attach_method(self) -> None:
        """Gives the method access to the training images."""
        images = self.job.train, self.transforms.train, self.loading
        sizes = self._batch_seed, self.eval_batch_size
        self.method.attach(partial(pool_batches, *images, *sizes))

    def batches(self, start: int, stop: int) -> Batches:
        """Returns this process's part of the augmented training batches of some steps."""
        return self._batches(self.loading, start, stop)

    def whole_batches(self, epochs: int = 1) -> Batches:
        """Returns the augmented training batches of the first epochs, complete on any process."""
        complete = replace(self.loading, rank=0, world_size=1)
        return self._batches(complete, 0, epochs * self.schedule.steps_per_epoch)

    def _batches(self, options: LoaderOptions, start: int, stop: int) -> Batches:
        return train_batches(
            self.job.train,
            self.transforms.train,
            schedule=self.schedule,
            seed=self._batch_seed,
            options=options,
            start=start,
            stop=stop,
        )

    def embed_training(self) -> tuple[Tensor, Tensor]:
        """Returns embeddings N×D of the training images under the test transform, and labels N."""
        embeddings = self.embed(self.training_split)
        return embeddings.query, torch.from_numpy(self.job.train.labels).to(self.device)


def _build_schedule(builder: Builder, job: Job, seed: int) -> BatchSchedule:
    """Returns the schedule of the training batches.

    Raises:
        UserError: there are not enough images to fill the batches, or no categories for them.
    """
    data, steps_per_epoch = builder.config.data, builder.config.protocol.steps_per_epoch
    if isinstance(data.sampler, dict):
        build, images = builder.sampler(job.train.labels), len(job.train)
        return CustomBatches(build, images, data.batch_size, seed, steps_per_epoch)
    categories = None
    if data.sampler == "category":
        categories = categories_of_classes(job.train, OPTION)
    try:
        return build_schedule(
            data.sampler,
            job.train.labels,
            batch_size=data.batch_size,
            images_per_class=data.images_per_class,
            seed=seed,
            steps_per_epoch=steps_per_epoch,
            categories=categories,
            categories_per_batch=data.categories_per_batch,
        )
    except ValueError as error:
        raise UserError(f"data.{error}") from error
