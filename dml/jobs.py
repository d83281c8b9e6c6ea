"""All models of a run, or of one trial of a search: those that are not finished yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dml import build
from dml.config import Config
from dml.data.base import ImageIndex, ImageSource
from dml.errors import RunStopped
from dml.job import JobRun
from dml.job_result import read_result
from dml.protocols import Job
from dml.run_folder import RunFolder
from dml.throughput import LoaderHint
from dml.tracking import Records, Tracker
from dml.training.distributed import ALONE, World

Result = dict[str, Any]


@dataclass(frozen=True)
class Shared:
    """What the models of a run have in common.

    Attributes:
        config: of the run.
        identity: see `dml.config.identity`; guards the checkpoints.
        index: the dataset.
        device: where to train.
        source: where pixels come from (`dml.data.loaders.open_source`).
        world: the processes that train each model together.
        hint: one for all models, so that the user is told once.
    """

    config: Config
    identity: dict[str, Any]
    index: ImageIndex
    device: torch.device
    source: ImageSource | None
    world: World = ALONE
    hint: LoaderHint | None = None

    @classmethod
    def of(
        cls, config: Config, identity: dict[str, Any], index: ImageIndex, world: World = ALONE
    ) -> Shared:
        """Opens what the config asks for."""
        device = build.resolve_device(config.device, world)
        source = build.open_source(config, index, device)
        hint = LoaderHint(config, index, device)
        return cls(config, identity, index, device, source, world, hint)

    def with_config(self, config: Config, identity: dict[str, Any]) -> Shared:
        """The same data and device for another config."""
        return replace(self, config=config, identity=identity)

    def job_run(self, job: Job, folder: RunFolder) -> JobRun:
        """One model, built and untrained."""
        here = folder.job(job.name)
        shared = (self.device, self.source, self.world, self.hint)
        return JobRun(self.config, self.identity, job, here, *shared)


def train_all(
    shared: Shared,
    jobs: Sequence[Job],
    folder: RunFolder,
    tracker: Tracker,
    stop: Callable[[], RunStopped | None],
    *,
    test: bool = True,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Trains the jobs that have no result yet; returns the results of all, in order.

    Args:
        shared: config, data, device.
        jobs: what to train.
        folder: where their checkpoints and tables go.
        tracker: gets the rows of the history too, and the results.
        stop: asked after every step.
        test: whether the test images are scored; a search must not look at them.
        on_result: told of every result as it comes.

    Raises:
        RunStopped: asked for; the same call continues.
        UserError: see `JobRun.run`.
    """
    world = shared.world
    records = world.main_only(lambda: _records(jobs, folder, tracker)) or Records.none()
    open_jobs = [job for job in jobs if _result(world, job, folder) is None]
    if shared.config.protocol.workers > 1 and len(open_jobs) > 1:
        from dml.side_by_side import train_side_by_side

        train_side_by_side(shared, open_jobs, folder, records, tracker, stop, test)
    results = []
    for job in jobs:
        result = _result(world, job, folder)
        if result is None:
            result = shared.job_run(job, folder).run(records, tracker, stop, test)
        results.append(result)
        tracker.job_done(result)
        on_result(result)
    records.sort()  # models side by side, stopped and continued in turn, wrote in another order
    return results


def _result(world: World, job: Job, folder: RunFolder) -> Result | None:
    return world.on_main(lambda: read_result(folder.job(job.name)))


def _records(jobs: Sequence[Job], folder: RunFolder, tracker: Tracker) -> Records:
    """The run's tables, with what processes of single jobs left behind if they were stopped."""
    records = Records.of(folder.path)
    for job in jobs:
        adopt_rows(records, job, folder, tracker)
    return records


def adopt_rows(records: Records, job: Job, folder: RunFolder, tracker: Tracker) -> None:
    """Moves the rows that a process of its own wrote for a job into the run's tables.

    The process began with the rows that were there; the tracker is told of the others alone.
    """
    own = own_records(folder, job)
    if not own.history.path.exists():
        return
    told = {row["step"] for row in records.history.of(job.repeat, job.fold)}
    records.adopt(own, (job.repeat, job.fold))
    for row in records.history.of(job.repeat, job.fold):
        step = row.pop("step")
        if step not in told:
            tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
    own.remove()


def own_records(folder: RunFolder, job: Job) -> Records:
    """What a process that trains one job alone writes, beside the checkpoints."""
    return Records.of(folder.job(job.name))
