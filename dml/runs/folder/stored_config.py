"""The config of a run folder, to continue, score or open the run."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import ConfigError, first_line
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import read_config


def load_config(run_folder: str | Path, data_root: str | None = None) -> Config:
    """Returns the config of a run, including the best values of its search; the device is `auto`.

    Args:
        run_folder: a run folder.
        data_root: the place of the images; None: where they were during training.

    Raises:
        ConfigError: the config is absent or damaged.
    """
    cfg = load_cfg(run_folder)
    cfg["device"] = "auto"
    if data_root is not None:
        cfg["data"]["root"] = data_root
        if "root" in cfg["data"]["reader"]:
            cfg["data"]["reader"]["root"] = data_root
    best = RunFolder(run_folder).best
    if cfg.get("search") and best.exists():
        for option, value in _read_yaml(best).items():
            OmegaConf.update(cfg, str(option), value)
    return check(cfg, Config)


def load_cfg(run_folder: str | Path) -> DictConfig:
    """Returns the config of a run as it is stored; see `load_config`."""
    cfg = _read_yaml(RunFolder(run_folder).config)
    cfg["overwrite"] = False  # it applied to the earlier run only
    return cfg


def _read_yaml(path: Path) -> DictConfig:
    try:
        return OmegaConf.create(read_config(path))
    except (ValueError, OmegaConfBaseException) as error:
        raise ConfigError([f"run: {path} cannot be read: {first_line(error)}"]) from error
