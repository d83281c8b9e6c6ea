"""Presets: `params=` sets options from a finished search or a published table.

`params=outputs/…/best.yaml` holds option → value; `params=mlrc` means `configs/params/mlrc.yaml`,
whose rows are loss → dataset → option → value; the row `default` applies to all datasets, and the
row of a dataset takes precedence over it. Overrides of the command line take precedence over both.
A named experiment may choose a table by `experiment.params`, in which rows may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml.config.command_line import is_multirun, split_flags
from dml.config.identity import refuse_interpolation
from dml.config.options import format_override, set_option
from dml.core.errors import ConfigError, nearest
from dml.core.installation import CONFIGS


def split_params(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the value of `params=`, the last one if there are several, and the other words."""
    values = [word.partition("=")[2] for word in words if word.startswith("params=")]
    others = [word for word in words if not word.startswith("params=")]
    return values[-1] if values else None, others


def extract_params(words: Sequence[str], config_name: str) -> tuple[list[str], str | None]:
    """Replaces `params=` in the command line by its values, placed before the user's overrides.

    Returns:
        The words for Hydra, and the value of `params=` if it is left to `apply_params`: in a
        multirun the values differ from job to job.
    """
    params, others = split_params(words)
    if params is None or is_multirun(words):
        return others, params
    from dml.config.explain import compose_config  # late: it imports Hydra

    _, overrides = split_flags(others)
    try:
        cfg = compose_config(config_name, overrides)
    except ConfigError:
        return others, params  # Hydra will report the same problem
    preset = load_preset(params, cfg.loss.name, cfg.data.name)
    apply_params(cfg, params, overrides)  # rejects options that this run does not have
    values = [format_override(name, value) for name, value in preset.items()]
    return values + others, None


def apply_params(cfg: DictConfig, params: str | None, overrides: Iterable[str]) -> DictConfig:
    """Sets the options of a preset in `cfg`, except options that an override sets.

    Args:
        cfg: the composed config.
        params: value of `params=` on the command line; None means `experiment.params`.
        overrides: overrides of the command line, or of a multirun's job.

    Raises:
        ConfigError: no such file or row, or an option that does not exist.
    """
    table = params or cfg.experiment.params
    problems = []
    for name, value in select_values(cfg, params, overrides).items():
        try:
            set_option(cfg, name, value)
        except OmegaConfBaseException:
            problems.append(f"params: {table} sets {name}, which this run does not have")
    if problems:
        raise ConfigError(problems)
    return cfg


def select_values(cfg: DictConfig, params: str | None, overrides: Iterable[str]) -> dict[str, Any]:
    """Returns what a preset sets in `cfg`, option → value; see `apply_params`."""
    table = params or cfg.experiment.params
    if table is None:
        return {}
    preset = load_preset(table, cfg.loss.name, cfg.data.name, params is not None)
    typed = {word.lstrip("+~").partition("=")[0] for word in overrides}
    return {name: value for name, value in preset.items() if name not in typed}


def load_preset(params: str, loss: str, data: str, required: bool = True) -> dict[str, Any]:
    """Returns a preset, option → value, for a loss on a dataset.

    Args:
        params: a file, or the name of one in `configs/params/`.
        loss, data: names of the loss and of the dataset.
        required: whether a missing row is an error; otherwise a missing row is empty.

    Raises:
        ConfigError: no such file, or no such row in a table.
    """
    path = Path(params) if Path(params).is_file() else CONFIGS / "params" / f"{params}.yaml"
    try:
        content = _parse(path, path.stat().st_mtime_ns)
    except FileNotFoundError as error:
        names = ", ".join(sorted(file.stem for file in (CONFIGS / "params").glob("*.yaml")))
        raise ConfigError([f"params: {params} is neither a file nor one of {names}"]) from error
    except Exception as error:  # PyYAML has its own exception classes
        line = str(error).splitlines()[0]
        raise ConfigError([f"params: {path} cannot be read: {line}"]) from error
    is_table = any(
        isinstance(value, dict) and "." not in str(name) for name, value in content.items()
    )
    if not is_table:
        return {str(name): value for name, value in content.items()}
    rows = content.get(loss, {})
    if required and not {data, "default"} & rows.keys():
        where = f"{loss} on '{data}', only on {', '.join(rows)}" if rows else f"loss '{loss}'"
        hint = "" if rows else nearest(loss, content)
        raise ConfigError([f"params: {path.name} has no values for {where}{hint}"])
    return {**rows.get("default", {}), **rows.get(data, {})}


@cache
def _parse(path: Path, modified: int) -> Any:
    """Reads a file; cached by modification time, since every run of an experiment reads it."""
    content: Any = OmegaConf.to_container(OmegaConf.load(path))
    refuse_interpolation(dict(content))
    return content
