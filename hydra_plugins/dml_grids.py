"""The sweeper `hydra/sweeper=grids`; Hydra finds plugins only in this package.

It runs every combination of `params` or, for tables that are not rectangular, of each line of
`grids` with `params`: see `dml/config/grids.py` and the files in `configs/experiment`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.sweeper import Sweeper
from omegaconf import ListConfig, OmegaConf

from dml.config.explain import explain
from dml.config.grids import GridEnded, expand_grids
from dml.config.hydra_internals import job_outcome
from dml.core.errors import ConfigError, UserError, first_line
from dml.core.launcher import export_sweep

# Options of `hydra.sweeper`: {data: "cub,cars"} and ["method=plain", "method=ccp loss=c1,c2"].
DEFAULTS: dict[str, Any] = {
    "_target_": "hydra_plugins.dml_grids.GridSweeper",
    "_recursive_": False,  # an escaped ${} in `grids` is left to the config of each job
    "params": {},
    "grids": [],
}
ConfigStore.instance().store("grids", DEFAULTS, group="hydra/sweeper", provider="dml")


def _end_grid(results: Sequence[tuple[list[str], JobReturn]]) -> GridEnded:
    """Returns what the jobs of a grid returned or raised."""
    ended = GridEnded(jobs=[], failures=[], values=[])
    for job, result in results:
        ended.jobs.append(job)
        if result.status == JobStatus.FAILED:
            ended.failures.append((job, job_outcome(result)))
        elif result.status == JobStatus.COMPLETED:
            ended.values.append(job_outcome(result))
    return ended


class GridSweeper(Sweeper):
    """Runs the jobs of `params` and `grids`; a failed job does not stop the others."""

    def __init__(self, params: dict[str, str], grids: ListConfig) -> None:
        # Hydra has resolved the list once; an escaped ${} is left to the config of each job.
        self.params, self.grids = params, cast(list[str], OmegaConf.to_container(grids))

    def setup(self, **context: Any) -> None:
        """Makes the launcher of `hydra/launcher`.

        Raises:
            ConfigError: it needs Slurm, and this machine has none.
        """
        self.hydra_context, self.config = context["hydra_context"], context["config"]
        self.launcher = Plugins.instance().instantiate_launcher(**context)
        if type(self.launcher).__name__ == "SlurmLauncher" and not shutil.which("srun"):
            raise ConfigError(
                [
                    "hydra/launcher: this machine has no Slurm (srun); start the command on the "
                    "cluster, or leave hydra/launcher out; several jobs at a time on one machine: "
                    "pip install hydra-joblib-launcher, hydra/launcher=joblib"
                ]
            )

    def sweep(self, arguments: list[str]) -> None:
        """Runs all jobs.

        Raises:
            GridEnded: they ran in other processes, which launchers such as joblib start.
        """
        assert self.hydra_context
        assert self.launcher
        jobs = expand_grids(self.params, self.grids, arguments, self.hydra_context.config_loader)
        self._check(jobs)
        in_this_process = type(self.launcher).__name__ == "BasicLauncher"
        with export_sweep(jobs, parallel=not in_this_process):
            try:
                returns = self.launcher.launch(jobs, initial_job_idx=0)
                results = list(zip(jobs, returns, strict=True))
            except Exception as error:
                if in_this_process:
                    raise
                # A scheduler or a lack of memory has ended one of its processes.
                lost = f"hydra/launcher: {first_line(error)}; the same command continues"
                raise UserError(lost) from error
        if not in_this_process:
            raise _end_grid(results)

    def _check(self, jobs: list[list[str]]) -> None:
        """Composes every job; names the option that one of them lacks.

        Raises:
            ConfigError: a line of `params` or `grids` is wrong. Mistakes of the command line are
                explained later.
        """
        try:
            self.validate_batch_is_legal(jobs)
        except Exception:  # Hydra refuses overrides with errors of many classes
            assert self.config
            for job in jobs:
                if problems := explain(job, self.config.hydra.job.config_name):
                    raise ConfigError(problems) from None
            raise
