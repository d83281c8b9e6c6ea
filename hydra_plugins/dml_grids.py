"""The sweeper of `configs/hydra/sweeper/grids.yaml`; Hydra finds plugins only in this package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import Override

from dml.config.grids import expand_grids


class GridSweeper(BasicSweeper):
    """Hydra's own sweeper, with `grids` beside `params`."""

    def __init__(
        self,
        max_batch_size: int | None,
        params: dict[str, str] | None = None,
        grids: Sequence[str] | None = None,
    ) -> None:
        super().__init__(max_batch_size, params)
        self.grids = grids
        self._given: list[str] = []

    def sweep(self, arguments: list[str]) -> Any:
        """Runs all jobs."""
        self._given = arguments
        return super().sweep(arguments)

    def split_arguments(  # type: ignore[override]  # static in Hydra, but this one needs `self`
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """Returns the jobs in batches for the launcher."""
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        jobs = expand_grids(self.params, self.grids, self._given, loader)
        return [list(batch) for batch in self.split_overrides_to_chunks(jobs, max_batch_size)]
