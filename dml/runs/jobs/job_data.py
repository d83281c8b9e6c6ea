"""The images of one model of a run: batches for training, evaluation and methods."""

from __future__ import annotations

from dataclasses import replace

from dml.config.schema import Config
from dml.core.errors import UserError
from dml.data.loaders import Batches, LoaderOptions, pool_batches, train_batches
from dml.data.samplers import BatchSchedule, build_schedule
from dml.runs.build import Transforms
from dml.runs.context import RunContext
from dml.runs.jobs.job_list import Job
from dml.runs.jobs.throughput import loading_processes
from dml.runs.scores.evaluator import Evaluator, Split
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


def schedule_batches(config: Config, job: Job, seed: int = 0) -> BatchSchedule:
    """Returns the rows of every training batch.

    Raises:
        UserError: there are not enough images to fill the batches.
    """
    data = config.data
    try:
        return build_schedule(
            data.sampler,
            job.train.labels,
            batch_size=data.batch_size,
            images_per_class=data.images_per_class,
            seed=seed,
            steps_per_epoch=config.protocol.steps_per_epoch,
        )
    except ValueError as error:
        raise UserError(f"data.{error}") from error


def describe_batches(config: Config) -> str:
    """Returns a line on what a training batch holds."""
    data = config.data
    m = None if data.sampler == "random" else data.images_per_class
    what = "drawn at random" if m is None else f"{data.batch_size // m} groups of {m} of a class"
    return f"batches of {data.batch_size} images, {what} (data.sampler={data.sampler})"


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
        self._job, self._transforms, self._seed = job, transforms, seed
        workers = loading_processes(context.config, context.index, context.device)
        self._options = LoaderOptions(transforms.to_input, context.device, workers, context.source)

    def evaluator(self, split: Split) -> Evaluator:
        """The evaluator of a network on a split."""
        return Evaluator(
            split,
            self._transforms.test,
            self._options,
            self._config.data.eval_batch_size,
            self._world,
            self._config.evaluation.backend,
        )

    def schedule(self) -> BatchSchedule:
        """The rows of every batch.

        Raises:
            UserError: there are not enough images to fill the batches.
        """
        return schedule_batches(self._config, self._job, self._seed)

    def training_batches(
        self, schedule: BatchSchedule, start: int, stop: int, world: ProcessGroup
    ) -> Batches:
        """The augmented batches of steps `start` to `stop`; of each, the part of this process."""
        return train_batches(
            self._job.train,
            self._transforms.train,
            self._options_of(world),
            schedule,
            seed=self._seed,
            start=start,
            stop=stop,
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
            self._options_of(self._world),
            images_per_class=images_per_class,
            seed=self._seed,
            number=number,
            batch_size=self._config.data.eval_batch_size,
        )

    def _options_of(self, world: ProcessGroup) -> LoaderOptions:
        return replace(self._options, rank=world.rank, world_size=world.size)
