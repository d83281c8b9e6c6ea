"""The command whose config `--cfg` and `--info` print: what is printed is what runs.

Hydra prints what it composes. Values of `params=` and `experiment.params`, and the hashes of the
user's own code, are added to a composed config when its run starts. Here they become words of the
command. The runs of an experiment have no config in common: that of the first one is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from dml.config.command_line import split_flags
from dml.config.explain import compose_config, search_paths
from dml.config.grids import expand_grids
from dml.config.options import format_override
from dml.config.own_code import NODE, record_own_code
from dml.config.presets import apply_params, select_values, split_params
from dml.core.errors import ConfigError
from dml.core.installation import CONFIGS

PRINTING = {"--cfg", "-c", "--info", "-i"}
GRID_SWEEPER = "hydra_plugins.dml_grids.GridSweeper"


class _Rejected(Exception):
    """Hydra does not compose a command, and reports why."""


def prints_config(words: Sequence[str]) -> bool:
    """Returns whether a command prints its config instead of running it."""
    return any(word.partition("=")[0] in PRINTING for word in words)


def find_printed_job(
    words: Sequence[str], config_name: str, trust: bool = False
) -> tuple[list[str], str]:
    """Returns the words of the run whose config a command prints, and a comment on its choice.

    A command that Hydra rejects is returned as it is.

    Args:
        words: arguments of the command line, with `--cfg` or `--info`.
        config_name: the primary config file in `configs/`.
        trust: see `dml.config.presets.load_preset`.

    Raises:
        ConfigError: the values of `params=` do not fit, or no run of the experiment has the values
            of the command line.
    """
    flags, others = split_flags(words)
    params, typed = split_params(others)
    try:
        jobs = _list_jobs(flags, typed, config_name)
        cfg = _compose(config_name, flags + jobs[0])
    except _Rejected:
        return flags + typed, ""
    values = select_values(cfg, params, jobs[0], trust)
    apply_params(cfg, params, jobs[0], trust)  # rejects options that the run does not have
    preset = [format_override(name, value) for name, value in values.items()]
    printed = flags + preset + jobs[0]
    if config_name == "train":
        printed += _own_code(cfg)
    return printed, _describe_choice(jobs, typed)


def _compose(config_name: str, words: Sequence[str]) -> DictConfig:
    try:
        return compose_config(config_name, words)
    except ConfigError as error:
        raise _Rejected from error


def _list_jobs(flags: list[str], typed: list[str], config_name: str) -> list[list[str]]:
    """Returns the overrides of every run of a command.

    Raises:
        _Rejected: Hydra does not compose the command.
        ConfigError: see `expand_grids`.
    """
    paths = search_paths(flags)
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return _expand(typed, paths, config_name)
    except ConfigError:
        raise
    except Exception as error:  # Hydra refuses overrides with errors of many classes
        raise _Rejected from error


def _expand(typed: list[str], paths: list[str], config_name: str) -> list[list[str]]:
    """Returns the overrides of every run; `paths` is the search path as overrides."""
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create(loader).parse_overrides(typed)
    single = [str(word.input_line) for word in parsed if not word.is_sweep_override()]
    cfg = compose(config_name, overrides=paths + single, return_hydra_config=True)
    sweeper: Any = OmegaConf.to_container(cfg.hydra.sweeper, resolve=True)
    if cfg.hydra.mode != RunMode.MULTIRUN or sweeper["_target_"] != GRID_SWEEPER:
        return [typed]
    of_hydra = [word for word in typed if word.lstrip("+~").startswith("hydra")]
    of_jobs = [word for word in typed if word not in of_hydra]
    jobs = expand_grids(sweeper["params"], sweeper["grids"], of_jobs, loader)
    return [of_hydra + job for job in jobs]


def _own_code(cfg: DictConfig) -> list[str]:
    """Returns the word that sets the hashes of the user's own code; none without such code."""
    record_own_code(cfg)
    hashes = [f"{module}:'{digits}'" for module, digits in cfg.get(NODE, {}).items()]
    if not hashes:
        return []
    return [f"+{NODE}={{{','.join(hashes)}}}"]


def _describe_choice(jobs: Sequence[Sequence[str]], typed: Sequence[str]) -> str:
    """Returns a comment that names the printed run of several; empty for a single one."""
    if len(jobs) == 1:
        return ""
    chosen = " ".join(word for word in jobs[0] if word not in typed)
    return f"# run 1 of {len(jobs)}: {chosen}; other values of these options print another run"
