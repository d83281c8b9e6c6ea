"""The images of one model of a run, as training, evaluation and methods ask for them."""

from __future__ import annotations

from dataclasses import replace

import torch

from dml.config.schema import Config
from dml.core.errors import UserError
from dml.data.image_dataset import ImageSource
from dml.data.loaders import Batches, LoaderOptions, pool_batches, train_batches
from dml.data.samplers import BatchSchedule, build_schedule
from dml.runs.build import Transforms
from dml.runs.protocols import Job
from dml.runs.scores.evaluator import Evaluator, Split
from dml.training.process_group import ALONE, World


class JobData:
    """Batches of a job's images.

    Args:
        config: of the run.
        job: which images.
        transforms: what they go through.
        seed: of their order and augmentation.
        device: where they are needed.
        source: where pixels come from (`dml.data.cache.open_image_source`).
        world: the processes that share batches.
    """

    def __init__(
        self,
        config: Config,
        job: Job,
        transforms: Transforms,
        seed: int,
        device: torch.device,
        source: ImageSource | None,
        world: World,
    ) -> None:
        self._config, self._job, self._transforms, self._seed = config, job, transforms, seed
        self._world = world
        self._options = LoaderOptions(transforms.to_input, device, config.data.workers, source)

    def evaluator(self, split: Split) -> Evaluator:
        """Scores the network on a split."""
        return Evaluator(
            split,
            self._transforms.test,
            self._options,
            self._config.data.eval_batch_size,
            self._world,
        )

    def batches(self, epochs: int) -> Batches:
        """The augmented training batches of the first epochs, once more, whole on any process."""
        schedule = self.schedule()
        return self.training_batches(schedule, 0, epochs * schedule.steps_per_epoch, ALONE)

    def schedule(self) -> BatchSchedule:
        """Which images make up which batch.

        Raises:
            UserError: batches that these images cannot fill.
        """
        data = self._config.data
        try:
            return build_schedule(
                data.sampler,
                self._job.train.labels,
                batch_size=data.batch_size,
                images_per_class=data.images_per_class,
                seed=self._seed,
                steps_per_epoch=self._config.protocol.steps_per_epoch,
            )
        except ValueError as error:
            raise UserError(f"data.{error}") from error

    def pool(self, images_per_class: int, number: int) -> Batches:
        """Augmented training images for methods that ask for more than batches."""
        return pool_batches(
            self._job.train,
            self._transforms.train,
            self._shared_by(self._world),
            images_per_class=images_per_class,
            seed=self._seed,
            number=number,
            batch_size=self._config.data.eval_batch_size,
        )

    def training_batches(
        self, schedule: BatchSchedule, start: int, stop: int, world: World
    ) -> Batches:
        """The augmented batches of steps `start` to `stop`; a process's share of each."""
        return train_batches(
            self._job.train,
            self._transforms.train,
            self._shared_by(world),
            schedule,
            seed=self._seed,
            start=start,
            stop=stop,
        )

    def _shared_by(self, world: World) -> LoaderOptions:
        return replace(self._options, rank=world.rank, world_size=world.size)
