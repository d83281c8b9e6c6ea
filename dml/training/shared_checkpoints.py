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

    Every process calls every method; an error on the first one is raised on all of them, one of
    writing when they next save, wait or load.

    Args:
        folder, identity: see `Checkpoints`.
        world: the processes; only the first one needs access to the folder.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any], world: ProcessGroup) -> None:
        super().__init__(folder, identity)
        self.world = world

    def keep_best(self, state: dict[str, Any]) -> None:
        """Copies `state`, which the next `save` writes as `best.pt`."""
        self.world.broadcast_from_main(partial(super().keep_best, state))

    def save(self, state: dict[str, Any]) -> None:
        """Copies `state` and starts to write it as `last.pt`."""
        self.world.broadcast_from_main(partial(super().save, state))

    def check(self) -> None:
        """Raises the error of files that could not be written, in a run of one process.

        Several would have to talk about it at every step.
        """
        if self.world.size == 1:
            super().check()

    def wait(self) -> None:
        """Waits until everything is written."""
        self.world.broadcast_from_main(super().wait)

    def load(self, needed: Iterable[str] = ()) -> tuple[dict[str, Any], str] | None:
        """The newest readable state and a note for the user; None if there is no checkpoint."""
        return self.world.broadcast_from_main(partial(super().load, needed))

    def load_best(self) -> dict[str, Any]:
        """The state of the best evaluation."""
        return self.world.broadcast_from_main(super().load_best)
