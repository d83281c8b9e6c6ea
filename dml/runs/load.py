"""Trained networks for Python programs: `dml.load`, `dml.load_all` and `dml.export`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import ConfigError, UserError, first_line
from dml.models.embedder import Embedder
from dml.runs.build import Builder
from dml.runs.exported_model import (
    download_model,
    image_transform,
    is_exported,
    load_model,
    save_model,
)
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import read_config
from dml.training.checkpoint_files import read_checkpoint

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def load(
    source: str | Path, repeat: int | None = None, fold: int | None = None, device: str = "cpu"
) -> tuple[Embedder, nn.Module]:
    """Returns a trained network and the transform of its input images.

    Args:
        source: a run folder (`outputs/…/seed<seed>-<digest>`), the folder of an exported model, or
            `<user>/<name>` of a model on the Hugging Face hub.
        repeat, fold: numbers of the model, from 0, in a run with several; without them a warning
            names the one that is returned, the first.
        device: of the network.

    Returns:
        The embedder with the weights of its best evaluation, in evaluation mode (B×3×H×W → B×D),
        and a transform from a PIL image to its 3×H×W input.

    Raises:
        UserError: there is no such run or model.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"load: device={device}, but torch finds no GPU here")
    path = Path(source)
    chosen = repeat is not None or fold is not None
    from_hub = _is_hub_id(source)
    if from_hub or (is_exported(path) and not RunFolder(path).config.exists()):
        if chosen:
            raise UserError(f"load: {source} is one model; leave out repeat and fold")
        embedder, transform = load_model(
            download_model(str(source)) if from_hub else path, trusted=not from_hub
        )
        return embedder.to(device), transform
    config = load_config(path)
    key = (repeat or 0, fold or 0)
    models = list_models(path)
    if not chosen and len(models) > 1:
        warnings.warn(
            f"{path} has {len(models)} models; this is {_name(key)}: choose one with repeat= and "
            f"fold=, or load all with dml.load_all",
            stacklevel=2,
        )
    return _load_job(config, path, key, device)


def load_all(
    run_folder: str | Path, device: str = "cpu"
) -> dict[tuple[int, int], tuple[Embedder, nn.Module]]:
    """Returns all models of a run with their transforms, by repeat and fold; see `load`.

    Raises:
        UserError: the folder is not a run folder, or has no model yet.
    """
    config, models = load_config(run_folder), list_models(run_folder)
    if not models:
        raise UserError(f"load: {run_folder} has no model yet; the command of the run trains it")
    return {key: _load_job(config, run_folder, key, device) for key in models}


def export(
    run_folder: str | Path, folder: str | Path, repeat: int | None = None, fold: int | None = None
) -> Path:
    """Writes a model of a run to a folder that `load` reads without the run.

    `model.safetensors` holds the weights, `config.json` network, head and transform. Uploaded as
    they are to the Hugging Face hub, `load("<user>/<name>")` reads them from there.

    Args:
        run_folder: a run folder.
        folder: is created if necessary; an earlier export in it is replaced.
        repeat, fold: see `load`.

    Returns:
        The folder.

    Raises:
        UserError: the folder is not a run folder, has no such model, or has several and neither
            repeat nor fold says which; the target is a run folder.
    """
    run, target, config = RunFolder(run_folder), Path(folder), load_config(run_folder)
    if RunFolder(target).config.exists():
        raise UserError(f"export: {target} is a run folder; name another folder")
    models = list_models(run.path)
    if repeat is None and fold is None and len(models) > 1:
        raise UserError(
            f"export: {run.path} has {len(models)} models: choose one with repeat= and fold="
        )
    key = (repeat or 0, fold or 0)
    embedder = load_embedder(config, run, _name(key))
    training = {
        "data": config.data.name,
        "loss": config.loss["name"],
        "method": config.method["name"],
        "protocol": config.protocol.name,
        "seed": config.seed,
        "repeat": key[0],
        "fold": key[1],
    }
    save_model(target, config, embedder, training)
    return target


def list_models(run_folder: str | Path) -> list[tuple[int, int]]:
    """Returns repeat and fold of the models in a run folder, in order."""
    files = (Path(run_folder) / "checkpoints").glob("*/best.pt")
    names = (re.fullmatch(r"repeat(\d+)-fold(\d+)", file.parent.name) for file in files)
    return sorted((int(name[1]), int(name[2])) for name in names if name)


def _name(key: tuple[int, int]) -> str:
    return f"repeat{key[0]}-fold{key[1]}"


def _is_hub_id(source: str | Path) -> bool:
    """Returns True for `<user>/<name>` where no folder can be meant."""
    if not isinstance(source, str) or not HUB_ID.fullmatch(source):
        return False
    return not Path(source).exists() and not Path(source).parent.is_dir()


def _load_job(
    config: Config, run_folder: str | Path, key: tuple[int, int], device: str
) -> tuple[Embedder, nn.Module]:
    embedder = load_embedder(config, RunFolder(run_folder), _name(key)).to(device).eval()
    return embedder, image_transform(config, embedder)


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
    if not Path(run_folder).is_dir():
        raise ConfigError([f"run: folder {run_folder} does not exist"])
    if not path.exists():
        raise ConfigError([f"run: {run_folder} is not a run folder: it has no config.yaml"])
    cfg = _read_yaml(path)
    if "protocol" not in cfg:
        raise UserError(
            f"run: {path} is not the config of a run; the command that created the run restores it"
        )
    cfg["overwrite"] = False  # it applied to the earlier run only
    return cfg


def _read_yaml(path: Path) -> DictConfig:
    try:
        return OmegaConf.create(read_config(path))
    except (ValueError, OmegaConfBaseException) as error:
        raise UserError(f"run: {path} cannot be read: {first_line(error)}") from error


def load_embedder(config: Config, folder: RunFolder, job: str) -> Embedder:
    """Returns the network of a run with the weights of its best evaluation."""
    path = folder.job(job) / "best.pt"
    try:
        state = read_checkpoint(path)
    except FileNotFoundError as error:
        existing = sorted(entry.name for entry in (folder.path / "checkpoints").glob("*"))
        if not existing or job in existing:
            raise UserError(
                f"run: {folder.path} ended before its first evaluation and has no trained network"
            ) from error
        raise UserError(f"run: {path} does not exist; there is {', '.join(existing)}") from error
    if "weights" in config.backbone:
        config.backbone["weights"] = "none"  # they are in the checkpoint: no download
    embedder = Builder(config).embedder()
    try:
        embedder.load_state_dict(state["embedder"])
    except Exception as error:  # of many classes: no such entry, another shape, not a state
        line = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"run: {path} does not fit {folder.config}: {line}") from error
    return embedder
