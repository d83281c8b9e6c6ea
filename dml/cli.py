"""Command-line manners: errors as one line each, all of them at once, and exit statuses that tell.

Hydra parses and composes; what it raises is caught out here and told in the user's terms.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dml.config import CONFIGS
from dml.errors import ConfigError, RunStopped, UserError, nearest
from dml.params import applied, taken

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
        _tell(error)
        return WRONG_COMMAND if isinstance(error, ConfigError) else FAILED
    return FINISHED


def _compose_and_run(job: Callable[[Any], Any], config_name: str) -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print a trimmed traceback and sys.exit
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        sys.argv[1:], params = taken(sys.argv[1:], config_name)
    except ConfigError as mistake:
        _tell(mistake)
        return WRONG_COMMAND
    here = os.getpid()
    failures: list[tuple[str, Exception]] = []
    done = 0

    def guarded(cfg: Any) -> Any:
        nonlocal done
        done += 1
        try:
            return job(applied(cfg, params, HydraConfig.get().overrides.task))
        except Exception as error:
            if os.getpid() != here:  # a launcher's own process: let it carry the error home
                raise
            overrides = " ".join(HydraConfig.get().overrides.task)
            failures.append((overrides, error))
            _tell(error)
            return None

    try:
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(guarded)()
    except RunStopped as stop:
        return _stopped(stop)
    except KeyboardInterrupt:
        return _interrupted()
    except (HydraException, OmegaConfBaseException) as problem:
        _tell(ConfigError(_explain(problem, config_name)))
        return WRONG_COMMAND
    if done > 1 and failures:
        print(f"{len(failures)} of {done} runs failed:", file=sys.stderr)
        for overrides, error in failures:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            print(f"  {overrides}: {first}", file=sys.stderr)
    if not failures:
        return FINISHED
    only_config = all(isinstance(error, ConfigError) for _, error in failures)
    return WRONG_COMMAND if only_config else FAILED


def _stopped(stop: RunStopped) -> int:
    print(f"{stop}; saved, the same command continues", file=sys.stderr)
    return stop.status


def _interrupted() -> int:
    print("interrupted; the same command continues from the last checkpoint", file=sys.stderr)
    return INTERRUPTED


def _tell(error: Exception) -> None:
    """One line per problem for the user's mistakes; a traceback for ours."""
    if isinstance(error, UserError):
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "a file"
        print(
            f"error: outputs: cannot write {where}: {error.strerror}; what was saved before is "
            f"intact, make room and run the same command to continue",
            file=sys.stderr,
        )
    else:
        traceback.print_exception(error)


def _explain(error: Exception, config_name: str) -> list[str]:
    """Every problem of the command's overrides, found by adding them one by one.

    Hydra stops at the first; here an override that does not compose is noted and left out, choices
    of groups first, since they decide which options exist.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from dml.config import Config, EvaluateConfig, check

    GlobalHydra.instance().clear()
    problems: list[str] = []
    given = [word for word in sys.argv[1:] if "=" in word and not word.startswith("-")]
    given += [word for word in sys.argv[1:] if word.startswith("~")]
    groups = {str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir()}
    parser = OverridesParser.create()
    good: list[str] = []
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        for text in sorted(given, key=lambda word: word.split("=")[0] not in groups):
            try:
                override = parser.parse_override(text)
            except HydraException:
                problems.append(f"{text}: not of the form option=value; quote special characters")
                continue
            singles = _alternatives(override, text)
            for single in singles:
                try:
                    compose(config_name, overrides=[*good, single])
                except (HydraException, OmegaConfBaseException) as reason:
                    known = compose(config_name, overrides=good)
                    options = _options(OmegaConf.to_container(known)) + sorted(groups)
                    problems.append(_say(single, options, groups, reason))
                    break
            else:
                good.append(singles[0])
        if problems:
            try:
                schema = EvaluateConfig if config_name == "evaluate" else Config
                check(compose(config_name, overrides=good), schema)
            except ConfigError as more:
                problems += more.problems
    return problems or [str(error).splitlines()[0]]


def _alternatives(override: Any, text: str) -> list[str]:
    """A sweep's values one by one; `text` itself if it is no sweep."""
    if not override.is_sweep_override() or not override.is_discrete_sweep():
        return [text]
    key = text.split("=")[0]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _options(node: Any, path: str = "") -> list[str]:
    """All dotted names of a config."""
    if not isinstance(node, dict):
        return []
    names = [f"{path}{key}" for key in node]
    for key, child in node.items():
        names += _options(child, f"{path}{key}.")
    return names


def _say(text: str, options: Sequence[str], groups: set[str], reason: Exception) -> str:
    """The problem of one override that does not compose."""
    name, _, value = text.partition("=")
    name = name.lstrip("+~")
    inner = re.search(r"Key '([^']+)' is not in struct", f"{reason} {reason.__cause__}")
    if name in options and inner:  # option={inner: …}
        name = f"{name}.{inner[1]}"
    if name in groups:
        choices = sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))
        if value not in choices:
            hint = nearest(value, choices) or f"; one of {' | '.join(choices)}"
            return f"{name}: no '{value}'{hint}"
    if name not in options:
        siblings = list(_siblings(name, options))
        hint = nearest(name, options)
        if not hint and siblings:
            hint = "; here are " + ", ".join(siblings)
        return f"{name}: no such option{hint}"
    return f"{name}: {str(reason).splitlines()[0]}"


def _siblings(name: str, options: Sequence[str]) -> Iterator[str]:
    """The options beside `name` in its node."""
    parent = name.rpartition(".")[0]
    return (option for option in options if parent and option.rpartition(".")[0] == parent)
