"""The sweeper `hydra/sweeper=grids`; Hydra finds plugins only in this package.

It runs every combination of `params` or, for tables that are not rectangular, of each line of
`grids` with `params`: see `dml/config/grids.py` and the files in `configs/experiment`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import ListConfig, OmegaConf

from dml.config.grids import GridEnded, expand_grids
from dml.core.errors import ConfigError, UserError, first_line
from dml.core.launcher import export_sweep
from dml.core.secrets import mask_options

# Options of `hydra.sweeper`: {data: "cub,cars"} and ["method=plain", "method=ccp loss=c1,c2"].
DEFAULTS: dict[str, Any] = {
    "_target_": "hydra_plugins.dml_grids.GridSweeper",
    "_recursive_": False,  # an escaped ${} in `grids` is left to the config of each job
    "max_batch_size": None,
    "params": {},
    "grids": [],
}
ConfigStore.instance().store("grids", DEFAULTS, group="hydra/sweeper", provider="dml")


class GridSweeper(BasicSweeper):
    """Hydra's own sweeper, with `grids` beside `params`; a failed job does not hide the others."""

    def __init__(
        self,
        max_batch_size: int | None,
        params: dict[str, str] | None = None,
        grids: Sequence[str] | None = None,
    ) -> None:
        super().__init__(max_batch_size, params)
        # Hydra has resolved the list once; an escaped ${} is left to the config of each job.
        self.grids: Any = grids
        if isinstance(grids, ListConfig):
            self.grids = OmegaConf.to_container(grids)
        self._given: list[str] = []

    def setup(self, **context: Any) -> None:
        """Makes the launcher of `hydra/launcher`.

        Raises:
            ConfigError: it needs Slurm, and this machine has none.
        """
        super().setup(**context)
        # Only for `multirun.yaml`, which the sweeper writes: the launcher has the config itself.
        self.config = OmegaConf.create(mask_options(OmegaConf.to_container(self.config)))
        if type(self.launcher).__name__ == "SlurmLauncher" and not shutil.which("srun"):
            raise ConfigError(
                [
                    "hydra/launcher: this machine has no Slurm (srun); start the command on the "
                    "cluster, or leave hydra/launcher out; several jobs at a time on one machine: "
                    "pip install hydra-joblib-launcher, hydra/launcher=joblib"
                ]
            )
        self.launcher: Any = _PatientLauncher(self.launcher)

    def sweep(self, arguments: list[str]) -> Any:
        """Runs all jobs.

        Raises:
            GridEnded: they ran in other processes, which launchers such as joblib start.
        """
        self._given = arguments
        returns = super().sweep(arguments)
        if not self.launcher.is_basic:
            raise GridEnded(self.launcher.jobs, self.launcher.failures, self.launcher.values)
        return returns

    def split_arguments(  # type: ignore[override]  # static in Hydra, but this one needs `self`
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """Returns the jobs in batches for the launcher."""
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        jobs = expand_grids(self.params, self.grids, self._given, loader)
        self.launcher.planned = jobs
        return [list(batch) for batch in self.split_overrides_to_chunks(jobs, max_batch_size)]


class _PatientLauncher:
    """A launcher whose failed jobs are kept; Hydra's sweeper stops at the first one."""

    def __init__(self, launcher: Any) -> None:
        self.launcher = launcher
        self.planned: list[list[str]] = []  # in all batches
        self.jobs: list[list[str]] = []
        self.failures: list[tuple[list[str], Exception]] = []
        self.values: list[Any] = []

    @property
    def is_basic(self) -> bool:
        """True for Hydra's own launcher, whose jobs run in this process."""
        return type(self.launcher).__name__ == "BasicLauncher"

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Runs a batch of jobs.

        Raises:
            UserError: another launcher lost a process, which a scheduler or a lack of memory ended.
        """
        with export_sweep(self.planned, parallel=not self.is_basic):
            try:
                results = self.launcher.launch(job_overrides, initial_job_idx=initial_job_idx)
            except Exception as error:
                if self.is_basic:
                    raise
                lost = f"hydra/launcher: {first_line(error)}; the same command continues"
                raise UserError(lost) from error
        for overrides, result in zip(job_overrides, results, strict=True):
            self.jobs.append(list(overrides))
            if result.status == JobStatus.FAILED:
                self.failures.append((list(overrides), result._return_value))
                result.status, result.return_value = JobStatus.COMPLETED, None
            self.values.append(result.return_value)
        return results
