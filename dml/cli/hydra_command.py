"""Commands with Hydra configs: composition, one-line errors and exit statuses."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dml.cli.error_lines import print_error, report_errors, status_of
from dml.config.command_line import choices_for_help, refuse_repeated, split_flags
from dml.config.presets import apply_params, extract_params
from dml.core.errors import ConfigError, first_line, refuse_exits
from dml.core.exit_status import ExitStatus
from dml.core.installation import CONFIGS, shell_command
from dml.core.launcher import export_submitit_ranks, read_sweep_size
from dml.core.locks import Busy
from dml.core.secrets import mask_text, mask_words

TEST_SCORES = (
    "the sweeper maximizes scores of the test classes; protocol=mlrc, mlrc_ccp, mlrc_features and "
    "holdout have validation classes"
)
NAMED_JOBS = 3  # per reason of failure
GRID_SWEEPERS = (
    "hydra_plugins.dml_grids.GridSweeper",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
)


@report_errors
def command(
    job: Callable[[Any], Any],
    config_name: str,
    resume: Callable[[str, list[str]], Any] | None = None,
    conclude: Callable[[list[Any]], None] | None = None,
) -> int:
    """Runs `job` on the config that Hydra composes from `sys.argv`, and returns the exit status.

    In a multirun the error of a failed job is printed at once, the other jobs run, and all failures
    are listed at the end.

    Args:
        job: called with the composed config, or with each config of a multirun; returns a score and
            any value.
        config_name: the primary config file in `configs/`.
        resume: called with the folder of `resume=<folder>` and the other words.
        conclude: called with the values after the last job, before failures are listed.
    """
    if (cwd := os.getcwd()) not in sys.path:
        sys.path.append(cwd)  # for the user's classes; installed packages take precedence
    if resume is not None and (folder := _find_resumed()):
        resume(folder, [word for word in sys.argv[1:] if word != f"resume={folder}"])
        return ExitStatus.FINISHED
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print a shortened traceback and sys.exit
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from dml.config.explain import explain
    from dml.config.grids import GridEnded

    OmegaConf.register_new_resolver("choices_for_help", choices_for_help, replace=True)
    flags, others = split_flags(sys.argv[1:])
    if any(word.startswith("-") for word in others):
        raise ConfigError(explain(sys.argv[1:], config_name))
    refuse_repeated(others)
    words, params = extract_params([*flags, *others], config_name)
    sys.argv[1:] = itertools.chain(*split_flags(words))
    jobs = _Jobs(job, params)
    OmegaConf.register_new_resolver("shell_command", shell_command, replace=True)

    try:
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(
            jobs.run
        )()
    except GridEnded as grid:  # in processes of a launcher
        jobs.overrides, jobs.failures, jobs.values = grid.jobs, grid.failures, grid.values
    except Exception as problem:  # Hydra rejects commands with errors of many classes
        problems = explain(sys.argv[1:], config_name)
        rejections = (HydraException, OmegaConfBaseException, ValueError)  # two modes at once
        if not problems and not isinstance(problem, rejections):
            raise
        raise ConfigError(problems or [first_line(problem.__cause__ or problem)]) from problem
    if conclude is not None:
        conclude([value for value in jobs.values if value is not None])
    jobs.print_failures()
    return status_of(*(error for _, error in jobs.failures)) if jobs.failures else 0


def _find_resumed() -> str:
    """Returns the folder of the argument `resume=<folder>`; empty if there is none."""
    folders = [word.partition("=")[2] for word in sys.argv[1:] if word.startswith("resume=")]
    if folders and not os.path.isfile(os.path.join(folders[0], "config.yaml")):
        raise ConfigError(
            [
                f"resume: '{folders[0]}' is not a run folder; write resume=<run folder>, or "
                f"continue an unfinished run by its own command"
            ]
        )
    return folders[0] if folders else ""


@dataclass
class _Jobs:
    """The jobs of a command, started by Hydra one after another.

    Attributes:
        job: called with each composed config.
        params: value of `params=`, applied to each job.
        overrides: overrides of every job so far.
        failures: overrides and error of every failed job.
        values: that the jobs returned.
        process: id of the composing process; some launchers run jobs in other processes.
    """

    job: Callable[[Any], Any]
    params: str | None
    overrides: list[list[str]] = field(default_factory=list)
    failures: list[tuple[list[str], Exception]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def run(self, cfg: Any) -> Any:
        """Runs one job; returns its score to a sweeper that maximizes it, else its value.

        An error is printed and kept, so that the next job can start. A run of a grid that another
        process is training is left to that process.
        """
        overrides = typed_overrides()
        self.overrides.append(overrides)
        try:
            export_submitit_ranks()
            cfg = apply_params(cfg, self.params, overrides)
            if self.params is not None:
                _add_override(f"params={self.params}")
            with refuse_exits():
                score, value = self.job(cfg)
            self.values.append(value)
        except Exception as error:
            if isinstance(error, Busy) and read_sweep_size() > 1 and not _is_maximized():
                print(f"note: {error.holder} trains this run")
                return None
            print_error(error)
            if os.getpid() != self.process:  # the sweeper returns it (`GridEnded`)
                raise
            self.failures.append((overrides, error))
            # Their frames would keep GPU memory and loading processes alive.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            gc.collect()
            return None
        if not _is_maximized():
            return value
        if score is not None and cfg.protocol.selected_on == "test":
            print(f"note: {TEST_SCORES}")
        return score

    def print_failures(self) -> None:
        """Prints the failed jobs of a multirun by reason, named by the overrides that differ."""
        if len(self.overrides) == 1 or not self.failures:
            return
        print(f"{len(self.failures)} of {len(self.overrides)} runs failed:", file=sys.stderr)
        shared = set(self.overrides[0]).intersection(*self.overrides)
        jobs: dict[str, list[str]] = {}
        for overrides, error in self.failures:
            different = [word for word in overrides if word not in shared] or overrides
            job_name = " ".join(mask_words(different))
            jobs.setdefault(first_line(error), []).append(job_name)
        for reason, names in jobs.items():
            more = f"; {len(names) - NAMED_JOBS} more" if len(names) > NAMED_JOBS else ""
            line = f"  {'; '.join(names[:NAMED_JOBS])}{more}: {reason}"
            print(mask_text(line), file=sys.stderr)


def _is_maximized() -> bool:
    """Returns whether the sweeper uses the scores; sweepers of grids do not."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra = HydraConfig.get()
    return hydra.mode == RunMode.MULTIRUN and hydra.sweeper._target_ not in GRID_SWEEPERS


def typed_overrides() -> list[str]:
    """Returns the overrides of the running job as typed, without resolving `seed=${x}`."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    words: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return words


def _add_override(word: str) -> None:
    """Adds an argument that is unknown to Hydra to the overrides of the running job."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import read_write

    hydra: Any = HydraConfig.get()
    if word not in hydra.overrides.task:
        with read_write(hydra):
            hydra.overrides.task.append(word)
