"""Loads the network of a finished run: `dml.load(run_folder)`."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn
from torchvision.transforms import v2

from dml.config.check import check
from dml.config.schema import Config
from dml.config.versions import upgrade
from dml.core.errors import ConfigError, UserError
from dml.models.embedder import Embedder
from dml.runs.build import Builder
from dml.runs.folder.run_folder import RunFolder
from dml.training.checkpoint_files import read_checkpoint


def load(
    run_folder: str | Path, job: str = "repeat0-fold0", device: str = "cpu"
) -> tuple[Embedder, nn.Module]:
    """Returns the best network of a run and the transform of its input images.

    Args:
        run_folder: `outputs/…/seed<seed>-<digest>`.
        job: name of the model.
        device: of the network.

    Returns:
        The embedder in evaluation mode (B×3×H×W → B×D), and a transform from a PIL image to its
        3×H×W input.

    Raises:
        UserError: the folder is not a run folder, or has no such model.
    """
    config = load_config(run_folder)
    embedder = load_embedder(config, RunFolder(run_folder), job).to(device).eval()
    transforms = Builder(config).transforms(embedder)
    return embedder, nn.Sequential(ToRGB(), transforms.test, transforms.to_input)


def load_config(run_folder: str | Path) -> Config:
    """Returns the config of a run, including the best values of its search; the device is `auto`.

    Raises:
        UserError: the config is absent or damaged.
    """
    cfg = load_cfg(run_folder)
    cfg["device"] = "auto"
    best = RunFolder(run_folder).best
    if cfg.get("search") and best.exists():
        for option, value in _read_yaml(best).items():
            OmegaConf.update(cfg, str(option), value)
    return check(cfg, Config)


def load_cfg(run_folder: str | Path) -> DictConfig:
    """Returns the config of a run as it is stored; see `load_config`."""
    path = RunFolder(run_folder).config
    if not path.exists():
        raise ConfigError([f"run: {run_folder} is not a run folder: it has no config.yaml"])
    cfg = _read_yaml(path)
    if "protocol" not in cfg:
        raise UserError(
            f"run: {path} is not the config of a run; the command that created the run restores it"
        )
    upgrade(cfg)
    cfg["overwrite"] = False  # it applied to the earlier run only
    return cfg


def _read_yaml(path: Path) -> DictConfig:
    try:
        cfg = OmegaConf.load(path)
    except (OSError, ValueError, OmegaConfBaseException, yaml.YAMLError) as error:
        raise UserError(f"run: {path} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(cfg, DictConfig):
        raise UserError(
            f"run: {path} is not a file of a run; the command that created the run restores it"
        )
    return cfg


def load_embedder(config: Config, folder: RunFolder, job: str) -> Embedder:
    """Returns the network of a run with the weights of its best evaluation."""
    path = folder.job(job) / "best.pt"
    try:
        state = read_checkpoint(path)
    except FileNotFoundError as error:
        existing = sorted(entry.name for entry in (folder.path / "checkpoints").glob("*"))
        hint = f"; there is {', '.join(existing)}" if existing else ""
        raise UserError(f"run: {path} does not exist{hint}") from error
    if "weights" in config.backbone:
        config.backbone["weights"] = "none"  # they are in the checkpoint: no download
    embedder = Builder(config).embedder()
    try:
        embedder.load_state_dict(state["embedder"])
    except Exception as error:  # of many classes: no such entry, another shape, not a state
        line = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"run: {path} does not fit {folder.config}: {line}") from error
    return embedder


class ToRGB(nn.Module):
    """Converts a PIL image of any mode to a uint8 tensor 3×H×W."""

    def forward(self, image: object) -> torch.Tensor:
        """Converts one image."""
        return v2.functional.pil_to_tensor(image.convert("RGB"))  # type: ignore[attr-defined]
