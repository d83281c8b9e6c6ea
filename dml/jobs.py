"""All models of a run, or of one trial of a search: those that are not finished yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dml import build
from dml.config import Config
from dml.data.base import ImageIndex, ImageSource
from dml.errors import RunStopped
from dml.job import JobRun, read_result
from dml.protocols import Job
from dml.run_folder import RunFolder
from dml.tracking import History, NullHistory, Tracker
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
    """

    config: Config
    identity: dict[str, Any]
    index: ImageIndex
    device: torch.device
    source: ImageSource | None
    world: World = ALONE

    @classmethod
    def of(
        cls, config: Config, identity: dict[str, Any], index: ImageIndex, world: World = ALONE
    ) -> Shared:
        """Opens what the config asks for."""
        device = build.resolve_device(config.device, world)
        return cls(config, identity, index, device, build.open_source(config, index, device), world)

    def with_config(self, config: Config, identity: dict[str, Any]) -> Shared:
        """The same data and device for another config."""
        return replace(self, config=config, identity=identity)

    def job_run(self, job: Job, folder: RunFolder) -> JobRun:
        """One model, built and untrained."""
        here = folder.job(job.name)
        return JobRun(self.config, self.identity, job, here, self.device, self.source, self.world)


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
        folder: where their checkpoints and the history go.
        tracker: gets the rows of the history too, and the results.
        stop: asked after every step.
        test: whether the test images are scored; a search must not look at them.
        on_result: told of every result as it comes.

    Raises:
        RunStopped: asked for; the same call continues.
        UserError: see `JobRun.run`.
    """
    world = shared.world
    history = world.main_only(lambda: _history(jobs, folder, tracker)) or NullHistory()
    open_jobs = [job for job in jobs if _result(world, job, folder) is None]
    if shared.config.protocol.workers > 1 and len(open_jobs) > 1:
        from dml.side_by_side import train_side_by_side

        train_side_by_side(shared, open_jobs, folder, history, tracker, stop, test)
    results = []
    for job in jobs:
        result = _result(world, job, folder)
        if result is None:
            result = shared.job_run(job, folder).run(history, tracker, stop, test)
        results.append(result)
        tracker.job_done(result)
        on_result(result)
    history.sort()  # models side by side, stopped and continued in turn, wrote in another order
    return results


def _result(world: World, job: Job, folder: RunFolder) -> Result | None:
    return world.on_main(lambda: read_result(folder.job(job.name)))


def _history(jobs: Sequence[Job], folder: RunFolder, tracker: Tracker) -> History:
    """The run's history, with what processes of single jobs left behind if they were stopped."""
    history = History(folder.history)
    for job in jobs:
        adopt_rows(history, job, folder, tracker)
    return history


def adopt_rows(history: History, job: Job, folder: RunFolder, tracker: Tracker) -> None:
    """Moves the rows that a process of its own wrote for a job into the run's history.

    The process began with the rows that were there; the tracker is told of the others alone.
    """
    path = own_history(folder, job)
    if not path.exists():
        return
    told = {row["step"] for row in history.of(job.repeat, job.fold)}
    history.adopt(History(path), (job.repeat, job.fold))
    for row in history.of(job.repeat, job.fold):
        step = row.pop("step")
        if step not in told:
            tracker.log({**row, "repeat": job.repeat, "fold": job.fold}, int(step))
    path.unlink()


def own_history(folder: RunFolder, job: Job) -> Path:
    """Where a process that trains one job alone writes its history."""
    return folder.job(job.name) / "history.csv"
