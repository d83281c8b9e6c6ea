"""`params=`: values of a finished search, or of a published table, for options not given.

`params=outputs/…/best.yaml` holds option → value; `params=mlrc` means `configs/params/mlrc.yaml`,
whose rows are loss → dataset → option → value; those of the dataset `default` hold for all others
where the dataset's own say nothing else. A named experiment may choose a table by
`experiment.params`; it needs no row for what the paper leaves open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml.config.config_groups import CONFIGS
from dml.core.errors import ConfigError, nearest


def extract_params(words: Sequence[str], config_name: str) -> tuple[list[str], str | None]:
    """The command line without its `params=`, whose values stand before the user's overrides.

    Returns:
        The words for Hydra, and the value of `params=` if it is left to `apply_params`: a
        multirun looks the values up for each of its jobs.
    """
    chosen = [word.partition("=")[2] for word in words if word.startswith("params=")]
    rest = [word for word in words if not word.startswith("params=")]
    if not chosen or any(word in ("-m", "--multirun") for word in words):
        return rest, chosen[-1] if chosen else None
    if any(word.startswith("experiment=") for word in words):  # a multirun, by its own mode
        return rest, chosen[-1]
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    overrides = [word for word in rest if "=" in word and not word.startswith("-")]
    overrides += [word for word in rest if word.startswith("~") and "=" not in word]
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose(config_name, overrides=overrides)
    except Exception:  # of many classes
        return rest, chosen[-1]  # Hydra itself meets the problem, and tells
    finally:
        GlobalHydra.instance().clear()
    found = values(chosen[-1], cfg.loss.name, cfg.data.name)
    apply_params(cfg, chosen[-1], overrides)  # tells of options that this run does not have
    return [f"{name}={json.dumps(value)}" for name, value in found.items()] + rest, None


def apply_params(cfg: DictConfig, params: str | None, overrides: Iterable[str]) -> DictConfig:
    """The config with the values of `params` for all options that no override names.

    Args:
        cfg: as composed.
        params: what the command line said; None leaves it to `experiment.params`.
        overrides: of the command line, or of a multirun's job.

    Raises:
        ConfigError: no such file or row, or an option that does not exist.
    """
    try:
        table = params or OmegaConf.select(cfg, "experiment.params")
        loss, data = (OmegaConf.select(cfg, f"{node}.name") for node in ("loss", "data"))
    except OmegaConfBaseException:
        return cfg  # whoever checks the config tells
    if not all(isinstance(word, str) for word in (table, loss, data)):
        return cfg  # likewise, unless there is no table
    given = {word.lstrip("+~").partition("=")[0] for word in overrides}
    problems = []
    for name, value in values(table, loss, data, params is not None).items():
        if name in given:
            continue
        try:
            OmegaConf.update(cfg, name, value)
        except OmegaConfBaseException:
            problems.append(f"params: {table} sets {name}, which this run does not have")
    if problems:
        raise ConfigError(problems)
    return cfg


def values(params: str, loss: str, data: str, must: bool = True) -> dict[str, Any]:
    """Option → value for a loss on a dataset.

    Args:
        params: a file, or the name of one in `configs/params/`.
        loss, data: their names.
        must: whether a row that is not there is an error, rather than empty.

    Raises:
        ConfigError: no such file, or no such row in a table.
    """
    content, path = _content(params)
    if not any(isinstance(value, dict) for value in content.values()):
        return {str(name): value for name, value in content.items()}
    rows = content.get(loss, {})
    if must and not {data, "default"} & rows.keys():
        raise ConfigError([_no_row(content, path, loss, data)])
    return {**rows.get("default", {}), **rows.get(data, {})}


def _content(params: str) -> tuple[dict[Any, Any], Path]:
    path = Path(params)
    if not path.is_file():
        path = CONFIGS / "params" / f"{params}.yaml"
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path))
    except FileNotFoundError as error:
        names = sorted(file.stem for file in (CONFIGS / "params").glob("*.yaml"))
        raise ConfigError(
            [f"params: {params} is neither a file nor one of {', '.join(names)}"]
        ) from error
    except Exception as error:  # PyYAML's errors are its own
        line = str(error).splitlines()[0]
        raise ConfigError([f"params: {path} cannot be read: {line}"]) from error
    if not isinstance(content, dict):
        raise ConfigError([f"params: {path} holds no options"])
    return content, path


def _no_row(table: dict[Any, Any], path: Path, loss: str, data: str) -> str:
    if loss not in table:
        hint = nearest(loss, table) or f"; it has {', '.join(table)}"
        return f"params: {path.name} has no values for loss '{loss}'{hint}"
    has = ", ".join(table[loss])
    return f"params: {path.name} has no values for {loss} on '{data}', only on {has}"
