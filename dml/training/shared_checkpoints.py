"""Checkpoints that the first process reads and writes for all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dml.training.checkpoint_files import Checkpoints
from dml.training.process_group import ProcessGroup


class SharedCheckpoints(Checkpoints):
    """The checkpoints of a job that several processes train; the files are those of one process.

    Every process calls every method; an error on the first one is raised on all of them.

    Args:
        folder, identity: see `Checkpoints`.
        world: the processes; only the first one needs access to the folder.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any], world: ProcessGroup) -> None:
        super().__init__(folder, identity)
        self.world = world

    def save(self, state: dict[str, Any]) -> None:
        """Saves `state` as `last.pt`; the former `last.pt` becomes `previous.pt`."""
        self.world.broadcast_from_main(partial(super().save, state))

    def save_best(self, state: dict[str, Any]) -> None:
        """Saves `state` as `best.pt`."""
        self.world.broadcast_from_main(partial(super().save_best, state))

    def load(self, needed: Iterable[str] = ()) -> tuple[dict[str, Any], str] | None:
        """The newest readable state and a note for the user; None if there is no checkpoint."""
        return self.world.broadcast_from_main(partial(super().load, needed))

    def load_best(self) -> dict[str, Any]:
        """The state of the best evaluation."""
        return self.world.broadcast_from_main(super().load_best)
