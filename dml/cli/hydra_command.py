"""Commands with Hydra configs, `dml train` and `dml evaluate`: composition and sweeps."""

from __future__ import annotations

import copy
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dml.cli.error_lines import describe_in_list, print_error, status_of
from dml.cli.shared_options import add_current_folder
from dml.config.command_line import (
    HELP,
    drop_replaced_arguments,
    quote_paths,
    refuse_empty,
    refuse_mixed_ranges,
    refuse_recipes,
    refuse_repeated,
    refuse_root_without_data,
    refuse_wrong_flags,
    split_flags,
)
from dml.config.presets import TRUST, apply_params, extract_params, split_trust
from dml.core.errors import ConfigError, find_interruption, first_line, refuse_exits
from dml.core.exit_status import ExitStatus
from dml.core.installation import CONFIGS
from dml.core.launcher import export_submitit_ranks, read_sweep_size
from dml.core.locks import Busy, HolderWait, is_locked
from dml.core.plain_text import print_plain
from dml.core.secrets import mask_text, mask_words
from dml.core.tolerant_output import tolerant_output
from dml.core.waits import NoAnswerError

TEST_SCORES = (
    "the sweeper maximizes scores of the test classes; protocol=mlrc, mlrc_ccp, mlrc_features and "
    "holdout have validation classes"
)
TRUSTED = ("resume=", "params=", "run=", "experiment")  # words that name files of others
RERUN = "--experimental-rerun"  # of Hydra
NAMED_JOBS = 3  # per reason of failure
POLL_SECONDS = 5.0  # between two looks at a run of another process


def run_command(
    words: Sequence[str],
    job: Callable[[Any], Any],
    config_name: str,
    describe: Callable[[], str],
    resume: Callable[[str, list[str], bool], Any] | None = None,
    conclude: Callable[[list[Any]], None] | None = None,
) -> int:
    """Runs `job` on the config that Hydra composes, and returns the exit status.

    In a multirun the error of a failed job is printed at once, the other jobs run, and all failures
    are listed at the end.

    Args:
        words: arguments of the command.
        job: called with the composed config, or with each config of a multirun; returns a score and
            any value.
        config_name: the primary config file in `configs/`.
        describe: returns the text of `--help`.
        resume: called with the folder of `resume=<folder>`, the other words, and the value of
            `trust=`: whether the user trusts what the folder names.
        conclude: called with the values after the last job, before failures are listed.
    """
    if any(word in HELP for word in words):
        print(describe(), end="")
        return ExitStatus.FINISHED
    words = quote_paths(words)
    sys.argv[1:] = words  # which Hydra, the log and trackers read
    add_current_folder()
    trust, others = split_trust(words)
    refuse_empty(others)
    if resume is not None:
        folder = _find_resumed(others)
        if folder:
            resume(folder, [word for word in others if word != f"resume={folder}"], trust)
            return ExitStatus.FINISHED
    # `trust` is no option of a training run: a stored config says nothing about it.
    if config_name != "train":
        others = list(words)
    composed, params = _check_words(others, config_name, trust)
    jobs = _Jobs(job, params, trust)
    _compose(composed, config_name, jobs)
    with tolerant_output():
        jobs.run_waiting()
        if conclude is not None:
            conclude([value for value in jobs.values if value is not None])
        jobs.print_failures()
    return jobs.exit_status()


def _check_words(
    words: Sequence[str], config_name: str, trust: bool
) -> tuple[list[str], str | None]:
    """Returns the arguments in the order that Hydra needs, and the value of `params=`.

    Raises:
        ConfigError: arguments that cannot be composed, or that exclude each other.
    """
    from dml.config.explain import explain
    from dml.config.printed_job import find_printed_job, prints_config

    if trust and not any(word.startswith(TRUSTED) for word in words):
        raise ConfigError([f"{TRUST}: has no effect here; it is for resume=, params= and run="])
    flags, others = split_flags(words)
    if any(word.startswith("-") for word in others):
        raise ConfigError(explain(words, config_name))
    _refuse_wrong_words(flags, others, config_name)
    others = drop_replaced_arguments(others)
    params: str | None = None
    if prints_config(flags):
        composed, comment = find_printed_job(flags + others, config_name, trust)
        if comment:
            print_plain(comment, flush=True)
    else:
        composed, params = extract_params(flags + others, config_name, trust)
    flags, others = split_flags(composed)
    return flags + others, params


def _refuse_wrong_words(flags: Sequence[str], others: Sequence[str], config_name: str) -> None:
    """Checks flags and options before Hydra sees them.

    Raises:
        ConfigError: they exclude each other, are given twice, or would run code of a file.
    """
    if any(flag.partition("=")[0] == RERUN for flag in flags):
        raise ConfigError([f"{RERUN}: it reads a pickle, which runs code; use resume=<run folder>"])
    refuse_wrong_flags(flags, others)
    refuse_repeated(others)
    refuse_mixed_ranges(others)
    refuse_recipes(others)
    if config_name == "train":
        refuse_root_without_data(others)


def _compose(words: Sequence[str], config_name: str, jobs: _Jobs) -> None:
    """Lets Hydra compose the config of each job and run it.

    Raises:
        ConfigError: Hydra refuses the arguments; a line for each problem.
    """
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print a shortened traceback and sys.exit
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from dml.config.explain import explain
    from dml.config.grids import GridEnded

    sys.argv[1:] = words
    decorate = hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)
    try:
        decorate(jobs.run)()
    except GridEnded as grid:  # in processes of a launcher
        jobs.overrides, jobs.failures, jobs.values = grid.jobs, grid.failures, grid.values
    except Exception as problem:  # Hydra rejects commands with errors of many classes
        problems = explain(words, config_name)
        rejections = (HydraException, OmegaConfBaseException, ValueError)  # two modes at once
        if not problems and not isinstance(problem, rejections):
            raise
        raise ConfigError(problems or [first_line(problem.__cause__ or problem)]) from problem


def _find_resumed(words: Sequence[str]) -> str:
    """Returns the folder of the argument `resume=<folder>`; empty if there is none."""
    for word in words:
        if word.startswith("resume="):
            folder = word.removeprefix("resume=")
            if not os.path.isfile(os.path.join(folder, "config.yaml")):
                advice = "or continue an unfinished run by its own command"
                problem = f"'{folder}' is not a run folder; write resume=<run folder>, {advice}"
                raise ConfigError([f"resume: {problem}"])
            return folder
    return ""


@dataclass(frozen=True)
class _Waiting:
    """A run that another process trains.

    Attributes:
        cfg: its composed config.
        hydra: Hydra's config of its job.
        lock: of its folder.
    """

    cfg: Any
    hydra: Any
    lock: Path

    def wait(self) -> None:
        """Waits until no process holds the lock.

        Raises:
            NoAnswerError: the process that holds it is silent for too long.
        """
        keeper = HolderWait()
        time.sleep(POLL_SECONDS)  # also where another machine's lock cannot be seen
        while is_locked(self.lock):
            keeper.check([self.lock])
            time.sleep(POLL_SECONDS)


@dataclass
class _Jobs:
    """The jobs of a command, started by Hydra one after another.

    Attributes:
        job: called with each composed config.
        params: value of `params=`, applied to each job.
        trust: value of `trust=`: whether the user trusts the files that the command names.
        overrides: overrides of every job so far.
        failures: overrides and error of every failed job.
        values: that the jobs returned.
        waiting: runs that other processes trained when their turn came.
        process: id of the composing process; some launchers run jobs in other processes.
    """

    job: Callable[[Any], Any]
    params: str | None
    trust: bool = False
    overrides: list[list[str]] = field(default_factory=list)
    failures: list[tuple[list[str], Exception]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def run(self, cfg: Any) -> Any:
        """Runs one job; returns its score to a sweeper that maximizes it, else its value.

        An error is printed and kept, so that the next job can start. A run of a grid that another
        process is training is looked at again when the others have ended (`run_waiting`), or, in a
        process of a launcher, once it is free.
        """
        overrides = typed_overrides()
        self.overrides.append(overrides)
        with tolerant_output():
            return self._run(cfg, overrides)

    def run_waiting(self) -> None:
        """Runs the jobs that waited, each once no other process trains it.

        Finished ones are read; those that their process has left are trained here.
        """
        from hydra.core.hydra_config import HydraConfig

        if self.waiting:
            print_plain(f"waiting for runs of other processes: {len(self.waiting)}", flush=True)
        while self.waiting:
            job = self.waiting.pop(0)
            HydraConfig.instance().cfg = job.hydra
            try:
                job.wait()
            except NoAnswerError as error:
                print_error(error)
                self._keep_failure(error, typed_overrides())
                continue
            self._run(job.cfg, typed_overrides())

    def _run(self, cfg: Any, overrides: list[str]) -> Any:
        composed = copy.deepcopy(cfg)
        try:
            export_submitit_ranks()
            cfg = apply_params(cfg, self.params, overrides, self.trust)
            self._complete_overrides(cfg)
            with refuse_exits():
                score, value = self.job(cfg)
            self.values.append(value)
        except Exception as error:
            interruption = find_interruption(error)
            if interruption is not None:
                raise interruption from None
            if isinstance(error, Busy) and self._can_wait():
                return self._wait_for(error, composed, overrides)
            print_error(error)
            if os.getpid() != self.process:  # the sweeper returns it (`GridEnded`)
                raise
            self._keep_failure(error, overrides)
            return None
        if not _is_maximized():
            return value
        if score is not None and cfg.protocol.selected_on == "test":
            print_plain(f"note: {TEST_SCORES}")
        return score

    def _can_wait(self) -> bool:
        """Returns whether a run that another process trains is looked at again later."""
        in_sweep = read_sweep_size() > 1 or len(self.overrides) > 1  # the first ends with it
        return in_sweep and not _is_maximized()

    def _complete_overrides(self, cfg: Any) -> None:
        """Adds the words that Hydra has not seen: the command that is stored is complete."""
        if self.params is not None:
            _add_override(f"params={self.params}")
        if self.trust and TRUST not in cfg:
            _add_override(f"{TRUST}=true")

    def _keep_failure(self, error: Exception, overrides: list[str]) -> None:
        """Keeps an error without its frames, which hold GPU memory and loading processes."""
        self.failures.append((overrides, error))
        error.__traceback__ = error.__cause__ = error.__context__ = None
        gc.collect()

    def _wait_for(self, busy: Busy, cfg: Any, overrides: list[str]) -> Any:
        """Keeps a run of another process for the end; a process of a launcher waits at once."""
        from hydra.core.hydra_config import HydraConfig

        job = _Waiting(cfg, HydraConfig.instance().cfg, busy.path)
        if os.getpid() == self.process:
            print_plain(f"note: {busy.holder} trains this run; it is looked at again at the end")
            self.waiting.append(job)
            return None
        print_plain(f"note: {busy.holder} trains this run; waiting for it", flush=True)
        job.wait()
        return self._run(cfg, overrides)

    def print_failures(self) -> None:
        """Prints the failed jobs of a multirun by reason, named by the overrides that differ."""
        if len(self.overrides) == 1 or not self.failures:
            return
        print_plain(f"{len(self.failures)} of {len(self.overrides)} runs failed:", file=sys.stderr)
        shared = set(self.overrides[0]).intersection(*self.overrides)
        jobs: dict[str, list[str]] = {}
        for overrides, error in self.failures:
            different = [word for word in overrides if word not in shared] or overrides
            job_name = " ".join(mask_words(different))
            jobs.setdefault(describe_in_list(error), []).append(job_name)
        for reason, names in jobs.items():
            more = f"; {len(names) - NAMED_JOBS} more" if len(names) > NAMED_JOBS else ""
            line = f"  {'; '.join(names[:NAMED_JOBS])}{more}: {reason}"
            print_plain(mask_text(line), file=sys.stderr)

    def exit_status(self) -> int:
        """Returns the exit status of the command."""
        if not self.failures:
            return ExitStatus.FINISHED
        errors = [error for _, error in self.failures]
        return status_of(*errors)


def _is_maximized() -> bool:
    """Returns whether the sweeper uses the scores; sweepers of grids do not."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from dml.config.hydra_internals import BASIC_SWEEPER
    from dml.config.printed_job import GRID_SWEEPER

    hydra = HydraConfig.get()
    is_grid = hydra.sweeper._target_ in (GRID_SWEEPER, BASIC_SWEEPER)
    return hydra.mode == RunMode.MULTIRUN and not is_grid


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
