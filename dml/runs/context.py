"""The objects that all models of a run share: config, builder, data, device and processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

from dml.config.schema import Config
from dml.core.launcher import read_launch
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.loaders import resolve_workers
from dml.runs.build import Builder
from dml.runs.protocol import FOLDS, Job, list_jobs
from dml.runs.training_status import RunPosition
from dml.training.device import resolve_device
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


def loading_processes(config: Config, index: ImageIndex, device: torch.device) -> int:
    """Returns the number of loading processes of each training process of a run."""
    training_processes = max(read_launch().local_size, config.protocol.workers)
    return resolve_workers(config.data.workers, index, device, training_processes)


@dataclass(frozen=True)
class RunContext:
    """The objects that all models of a run share.

    Attributes:
        builder: of network, method and optimizer; holds the config.
        identity: see `dml.config.identity.identity`; guards the checkpoints.
        index: the dataset.
        device: of the networks.
        open_source: returns the cached images (`dml.data.cache.open_image_source`), which are made
            by the first call; None: decode at every access.
        world: the processes that train each model together.
        position: of the models among those of the run, or the trials of its search.
    """

    builder: Builder
    identity: dict[str, Any]
    index: ImageIndex
    device: torch.device
    open_source: Callable[[], ImageSource | None]
    world: ProcessGroup
    position: RunPosition

    @classmethod
    def open(
        cls,
        builder: Builder,
        identity: dict[str, Any],
        index: ImageIndex,
        world: ProcessGroup = SINGLE_PROCESS,
    ) -> RunContext:
        """Opens the device that the config names.

        Raises:
            UserError: there is no such device.
        """
        config = builder.config
        device = resolve_device(config.device, world)
        source = cache(partial(builder.source, index))
        position = RunPosition(config.protocol.repeats, FOLDS[config.protocol.splits])
        return cls(builder, identity, index, device, source, world, position)

    @property
    def config(self) -> Config:
        """The config of the run."""
        return self.builder.config

    def jobs(self) -> list[Job]:
        """Returns the models of the run, in order."""
        return list_jobs(self.config, self.index)
