"""The objects that all models of a run share: config, data, device and processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from dml.config.schema import Config
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.runs import build
from dml.runs.jobs.throughput import LoaderHint
from dml.training.process_group import ALONE, World


@dataclass(frozen=True)
class RunContext:
    """The objects that all models of a run share.

    Attributes:
        config: of the run.
        identity: see `dml.config.identity.identity`; guards the checkpoints.
        index: the dataset.
        device: where to train.
        source: where pixels come from (`dml.data.cache.open_image_source`).
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
    ) -> RunContext:
        """Opens what the config asks for."""
        device = build.resolve_device(config.device, world)
        source = build.open_source(config, index, device)
        hint = LoaderHint(config, index, device)
        return cls(config, identity, index, device, source, world, hint)

    def with_config(self, config: Config, identity: dict[str, Any]) -> RunContext:
        """The same data and device for another config."""
        return replace(self, config=config, identity=identity)
