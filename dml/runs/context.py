"""The objects that all models of a run share: config, builder, data, device and processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from dml.config.schema import Config
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.runs.build import Builder
from dml.runs.jobs.job_list import FOLDS, Job, create_jobs
from dml.runs.training_status import RunPosition
from dml.training.device import resolve_device
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


def list_jobs(config: Config, index: ImageIndex) -> list[Job]:
    """Returns the models of a run, in order; see `create_jobs`."""
    p, noise = config.protocol, config.data.label_noise
    return create_jobs(p.splits, p.repeats, index, noise, config.seed)


@dataclass(frozen=True)
class RunContext:
    """The objects that all models of a run share.

    Attributes:
        builder: of network, method and optimizer; holds the config.
        identity: see `dml.config.identity.identity`; guards the checkpoints.
        index: the dataset.
        device: of the networks.
        source: cached images (`dml.data.cache.open_image_source`); None: decode at every access.
        world: the processes that train each model together.
        position: of the models among those of the run, or the trials of its search.
    """

    builder: Builder
    identity: dict[str, Any]
    index: ImageIndex
    device: torch.device
    source: ImageSource | None
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
        """Opens the device and the images that the config names.

        Raises:
            UserError: there is no such device, or options of the cache exclude each other.
        """
        device = resolve_device(builder.config.device, world)
        source = builder.source(index)
        protocol = builder.config.protocol
        position = RunPosition(protocol.repeats, FOLDS[protocol.splits])
        return cls(builder, identity, index, device, source, world, position)

    @property
    def config(self) -> Config:
        """The config of the run."""
        return self.builder.config

    def jobs(self) -> list[Job]:
        """The models of the run, in order; see `create_jobs`."""
        return list_jobs(self.config, self.index)

    def with_config(self, config: Config, identity: dict[str, Any]) -> RunContext:
        """Returns a context with another config, and the same data and device."""
        return replace(self, builder=Builder(config), identity=identity)
