"""Command-line manners: errors as one line each, all of them at once, and exit statuses that tell.

Hydra parses and composes; what it raises is caught out here and told in the user's terms.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from dml.config.command_line import reorder_flags
from dml.config.config_groups import CONFIGS
from dml.config.presets import apply_params, extract_params
from dml.core.errors import ConfigError, RunStopped, UserError, first_line, is_out_of_memory
from dml.core.launcher import export_submitit_ranks, read_launch

LONGEST = 800  # characters of a message: a value that it quotes may have any length
# Exit statuses
FINISHED, FAILED, WRONG_COMMAND, INTERRUPTED = 0, 1, 2, 130


def command(
    job: Callable[[Any], Any], config_name: str, resume: Callable[[str], Any] | None = None
) -> int:
    """Runs `job` on the config that Hydra composes from `sys.argv`, and returns the exit status.

    In a multirun a job that fails is told at once, the others go on, and all failures are listed
    at the end.

    Args:
        job: called with each composed config (one, or one per job of a multirun).
        config_name: the primary file in `configs/`.
        resume: called with the folder of `resume=<folder>`, which goes with no other option.
    """
    folders = [word.partition("=")[2] for word in sys.argv[1:] if word.startswith("resume=")]
    if resume is not None and folders:
        return _resume(resume, folders[0])
    return _compose_and_run(job, config_name)


def _resume(resume: Callable[[str], Any], folder: str) -> int:
    """Continues the run in a folder from the config that is stored there."""
    others = [word for word in sys.argv[1:] if word != f"resume={folder}"]
    try:
        if others:
            raise ConfigError(
                [
                    f"resume: the run in {folder} goes on with its own config; leave out "
                    f"{' '.join(others)}"
                ]
            )
        resume(folder)
    except RunStopped as stop:
        return _stopped(stop)
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:
        print_error(error)
        return WRONG_COMMAND if isinstance(error, ConfigError) else FAILED
    return FINISHED


def _compose_and_run(job: Callable[[Any], Any], config_name: str) -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print a trimmed traceback and sys.exit
    import hydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from dml.config.config_groups import choices_for_help
    from dml.config.explain import explain
    from dml.config.overlooked import overlooked

    OmegaConf.register_new_resolver("choices_for_help", choices_for_help, replace=True)
    try:
        words = reorder_flags(sys.argv[1:])
        if unseen := overlooked(words):
            raise ConfigError(unseen)
        words, params = extract_params(words, config_name)
        sys.argv[1:] = reorder_flags(words)
    except ConfigError as mistake:
        print_error(mistake)
        return WRONG_COMMAND
    here = os.getpid()
    failures: list[tuple[list[str], Exception]] = []
    jobs: list[list[str]] = []

    def guarded(cfg: Any) -> Any:
        overrides = _overrides()
        jobs.append(overrides)
        try:
            export_submitit_ranks()
            return job(apply_params(cfg, params, overrides))
        except Exception as error:
            if os.getpid() != here:  # a launcher's own process: let it carry the error home
                raise
            failures.append((overrides, error))
            print_error(error)
            return None

    try:
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(guarded)()
    except RunStopped as stop:
        return _stopped(stop)
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as problem:  # Hydra refuses a command with errors of many classes
        mistakes = explain(sys.argv[1:], config_name)
        if not mistakes and not isinstance(problem, (HydraException, OmegaConfBaseException)):
            print_error(problem)
            return FAILED
        print_error(ConfigError(mistakes or [str(problem).splitlines()[0]]))
        return WRONG_COMMAND
    if len(jobs) > 1 and failures:
        print(f"{len(failures)} of {len(jobs)} runs failed:", file=sys.stderr)
        shared = set(jobs[0]).intersection(*jobs)
        for overrides, error in failures:
            own = [word for word in overrides if word not in shared] or overrides
            first = (str(error).splitlines() or [type(error).__name__])[0]
            print(f"  {' '.join(own)}: {first}", file=sys.stderr)
    if not failures:
        return FINISHED
    only_config = all(isinstance(error, ConfigError) for _, error in failures)
    return WRONG_COMMAND if only_config else FAILED


def _overrides() -> list[str]:
    """Of the job that runs, as they were typed: `seed=${x}` is not looked up."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    words: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return words


def _stopped(stop: RunStopped) -> int:
    if read_launch().rank == 0:
        saved = "saved, the same command continues" if stop.saved else "nothing to save yet"
        print(f"{stop}; {saved}", file=sys.stderr)
    return stop.status


def _interrupted() -> int:
    print(
        "interrupted; the same command continues from the last checkpoint if there is one",
        file=sys.stderr,
    )
    return INTERRUPTED


def shortened(line: str) -> str:
    """Without the middle of what is too long to read."""
    left_out = len(line) - LONGEST
    if left_out <= 0:
        return line
    return f"{line[:300]} … ({left_out} characters) … {line[300 + left_out :]}"


def print_error(error: Exception) -> None:
    """One line per problem for the user's mistakes; a traceback for ours."""
    if isinstance(error, UserError):
        if error.repeated or (isinstance(error, ConfigError) and read_launch().rank > 0):
            return  # another process of torchrun says it
        for line in str(error).splitlines():
            print(f"error: {shortened(line)}", file=sys.stderr)
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "a file"
        print(
            f"error: outputs: cannot write {where}: {error.strerror}; what was saved before is "
            f"intact, make room and run the same command to continue",
            file=sys.stderr,
        )
    elif is_out_of_memory(error):
        print(
            f"error: memory: {shortened(first_line(error))}; smaller data.batch_size, "
            f"data.eval_batch_size, data.workers, transform.size or network need less",
            file=sys.stderr,
        )
    else:
        traceback.print_exception(error)
