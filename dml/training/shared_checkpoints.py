"""Checkpoints that one process writes and reads for all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dml.training.checkpoint import Checkpoints
from dml.training.process_group import World


class SharedCheckpoints(Checkpoints):
    """The checkpoints of a job that several processes train; the same files as of one process.

    Every process calls every method; what is an error on the first one is one on all of them.

    Args:
        folder, identity: see `Checkpoints`.
        world: the processes; only the first one needs to see the folder.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any], world: World) -> None:
        super().__init__(folder, identity)
        self.world = world

    def save(self, state: dict[str, Any]) -> None:
        """Makes `state` the last checkpoint and the last one the previous."""
        self.world.on_main(partial(super().save, state))

    def save_best(self, state: dict[str, Any]) -> None:
        """Makes `state` the best checkpoint."""
        self.world.on_main(partial(super().save_best, state))

    def load(self, needed: Iterable[str] = ()) -> tuple[dict[str, Any], str] | None:
        """The newest readable state and a note for the user; None where there is none."""
        return self.world.on_main(partial(super().load, needed))

    def load_best(self) -> dict[str, Any]:
        """The state of the best evaluation."""
        return self.world.on_main(super().load_best)
