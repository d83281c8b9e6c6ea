"""A trained network for people who want to use it: `dml.load(run_folder)`."""

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
from dml.runs import build
from dml.runs.folder.run_folder import RunFolder
from dml.training.checkpoint import read


def load(
    run_folder: str | Path, job: str = "repeat0-fold0", device: str = "cpu"
) -> tuple[Embedder, nn.Module]:
    """The best network of a run and the transform that its images go through.

    Args:
        run_folder: `outputs/…/seed<seed>-<digest>`.
        job: which of the run's models.
        device: where to put the network.

    Returns:
        The embedder in evaluation mode (B×3×H×W → B×D), and a transform from a PIL image to its
        3×H×W input.

    Raises:
        UserError: the folder holds no run, or no such model.
    """
    config = load_config(run_folder)
    embedder = load_embedder(config, RunFolder(run_folder), job).to(device).eval()
    transforms = build.build_transforms(config, embedder)
    return embedder, nn.Sequential(ToRGB(), transforms.test, transforms.to_input)


def load_config(run_folder: str | Path) -> Config:
    """The config that a run's networks were trained with; the device is this machine's.

    Where a search came first, its best values are in it.

    Raises:
        UserError: it is absent or damaged.
    """
    cfg = load_cfg(run_folder)
    cfg["device"] = "auto"
    found = RunFolder(run_folder).best
    if cfg.get("search") and found.exists():
        for option, value in _read(found).items():
            OmegaConf.update(cfg, str(option), value)
    return check(cfg, Config)


def load_cfg(run_folder: str | Path) -> DictConfig:
    """The config a run was made with, as it is stored; see `load_config`."""
    path = RunFolder(run_folder).config
    if not path.exists():
        raise ConfigError([f"run: {run_folder} holds no config.yaml, so it is no run folder"])
    cfg = _read(path)
    if "protocol" not in cfg:
        raise UserError(f"run: {path} is no config of a run; the command that made it mends it")
    upgrade(cfg)
    cfg["overwrite"] = False  # it was said once, of the run as it was then
    return cfg


def _read(path: Path) -> DictConfig:
    try:
        cfg = OmegaConf.load(path)
    except (OSError, ValueError, OmegaConfBaseException, yaml.YAMLError) as error:
        raise UserError(f"run: {path} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(cfg, DictConfig):
        raise UserError(f"run: {path} is no file of a run; the command that made it mends it")
    return cfg


def load_embedder(config: Config, folder: RunFolder, job: str) -> Embedder:
    """The network of a run with the weights of its best evaluation."""
    path = folder.job(job) / "best.pt"
    try:
        state = read(path)
    except FileNotFoundError as error:
        there = sorted(entry.name for entry in (folder.path / "checkpoints").glob("*"))
        found = f"; there is {', '.join(there)}" if there else ""
        raise UserError(f"run: {path} is not there{found}") from error
    config.backbone["weights"] = "none"  # they are in the checkpoint: no download
    embedder = build.build_embedder(config)
    try:
        embedder.load_state_dict(state["embedder"])
    except Exception as error:  # no such entry, another shape, no state at all
        line = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"run: {path} does not fit {folder.config}: {line}") from error
    return embedder


class ToRGB(nn.Module):
    """A PIL image of any mode to a uint8 tensor 3×H×W."""

    def forward(self, image: object) -> torch.Tensor:
        """Converts one image."""
        return v2.functional.pil_to_tensor(image.convert("RGB"))  # type: ignore[attr-defined]
