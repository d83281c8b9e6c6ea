"""The images of one model of a run: batches for training, evaluation and methods."""

from __future__ import annotations

from dml.core.errors import UserError
from dml.data.loaders import Batches, pool_batches, train_batches
from dml.data.samplers import BatchSchedule, build_schedule
from dml.runs.build import Transforms
from dml.runs.context import RunContext
from dml.runs.protocols import Job
from dml.runs.scores.evaluator import Evaluator, Split
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


class JobData:
    """Batches of a job's images.

    Args:
        context: shared by the models of the run.
        job: the model.
        transforms: of its images.
        seed: of the order and augmentation of images.
    """

    def __init__(self, context: RunContext, job: Job, transforms: Transforms, seed: int) -> None:
        self._config, self._world = context.config, context.world
        self._device, self._source = context.device, context.source
        self._job, self._transforms, self._seed = job, transforms, seed

    def evaluator(self, split: Split) -> Evaluator:
        """The evaluator of a network on a split."""
        return Evaluator(
            split,
            self._transforms.test,
            self._transforms.to_input,
            batch_size=self._config.data.eval_batch_size,
            workers=self._config.data.workers,
            device=self._device,
            source=self._source,
            world=self._world,
        )

    def schedule(self) -> BatchSchedule:
        """The rows of every batch.

        Raises:
            UserError: there are not enough images to fill the batches.
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

    def training_batches(
        self, schedule: BatchSchedule, start: int, stop: int, world: ProcessGroup
    ) -> Batches:
        """The augmented batches of steps `start` to `stop`; of each, the part of this process."""
        return train_batches(
            self._job.train,
            self._transforms.train,
            self._transforms.to_input,
            schedule,
            seed=self._seed,
            start=start,
            stop=stop,
            workers=self._config.data.workers,
            device=self._device,
            source=self._source,
            rank=world.rank,
            world_size=world.size,
        )

    def batches(self, epochs: int) -> Batches:
        """The augmented training batches of the first epochs, complete on any process."""
        schedule = self.schedule()
        return self.training_batches(schedule, 0, epochs * schedule.steps_per_epoch, SINGLE_PROCESS)

    def pool(self, images_per_class: int, number: int) -> Batches:
        """Augmented training images for methods that need more than batches (`class_pool`)."""
        return pool_batches(
            self._job.train,
            self._transforms.train,
            self._transforms.to_input,
            images_per_class=images_per_class,
            seed=self._seed,
            number=number,
            batch_size=self._config.data.eval_batch_size,
            workers=self._config.data.workers,
            device=self._device,
            source=self._source,
            rank=self._world.rank,
            world_size=self._world.size,
        )
