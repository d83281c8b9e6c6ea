"""Trained networks for Python programs: `dml.load`, `dml.load_all` and `dml.export`.

An exported network is a folder, or a model on the Hugging Face hub, with two files:
`model.safetensors` holds the weights; `config.json` describes network, head and transform, and the
training that the network comes from.
"""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import nn
from torchvision.transforms import v2

from dml.config.check import check
from dml.config.explain import explain
from dml.config.identity import refuse_interpolation
from dml.config.schema import Config, EvaluateConfig, TransformConfig
from dml.core.atomic_io import replace_file, write_json
from dml.core.errors import ConfigError, UserError, first_line
from dml.core.installation import CONFIGS
from dml.models.backbones import InputSpec
from dml.models.embedder import Embedder
from dml.models.identity import FeatureNetwork, Identity
from dml.runs.build import Builder
from dml.runs.folder.run_folder import RunFolder, load_config
from dml.training.checkpoint_files import read_checkpoint

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
TIMM = "timm:"  # prefix of an off-the-shelf network
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def load(
    source: str | Path, repeat: int | None = None, fold: int | None = None, device: str = "cpu"
) -> tuple[Embedder, nn.Module]:
    """Returns a trained network and the transform of its input images.

    Args:
        source: a run folder (`outputs/…/seed<seed>-<digest>`), the folder of an exported model,
            `<user>/<name>` of a model on the Hugging Face hub, or `timm:<model>` for the pooled
            features of a pretrained network of timm, of length 1.
        repeat, fold: numbers of the model, from 0, in a run with several; without them a warning
            names the one that is returned, the first.
        device: of the network.

    Returns:
        The embedder with the weights of its best evaluation, in evaluation mode (B×3×H×W → B×D),
        and a transform from a PIL image to its 3×H×W input.

    Raises:
        UserError: there is no such run or model.
    """
    config, embedder = open_network(source, repeat, fold)
    return embedder.to(device), _image_transform(config, embedder)


def open_network(
    source: str | Path,
    repeat: int | None = None,
    fold: int | None = None,
    options: Sequence[str] = ("data=folder",),
) -> tuple[Config, Embedder]:
    """Returns a network on the CPU in evaluation mode, and its config; see `load`.

    Of an exported model the config has network, head, transform, and the precision of float32.
    `options` are those of `evaluate.py` for a network of timm.
    """
    path = Path(source)
    if str(source).startswith(TIMM):
        model = f"backbone.model='{str(source).removeprefix(TIMM)}'"
        of_timm = compose_network(["backbone=timm", model, *options])
        return of_timm, Builder(of_timm).embedder().eval()
    from_hub = HUB_ID.fullmatch(str(source)) is not None and not path.parent.is_dir()
    if from_hub or ((path / WEIGHTS).is_file() and not RunFolder(path).config.exists()):
        if repeat is not None or fold is not None:
            raise UserError(f"load: {source} is one model; leave out repeat and fold")
        folder = _download(str(source)) if from_hub else path
        return _load_exported(folder, trusted=not from_hub)
    config = load_config(path)
    embedder = load_embedder(config, path, _select_model(path, repeat, fold, stacklevel=4))
    return _from_images(config, embedder)


def _from_images(config: Config, embedder: Embedder) -> tuple[Config, Embedder]:
    """Puts the network that made the features below a head that was trained on them.

    Raises:
        UserError: it is unknown.
    """
    head = embedder.backbone
    if not isinstance(head, Identity):
        return config, embedder
    if head.network is None:
        raise UserError("load: the file of features that the head was trained on names no network")
    name, *options = shlex.split(head.network)
    config, network = open_network(name, options=options)
    embedder.backbone, embedder.input = FeatureNetwork(network, head), network.input
    return config, embedder


def compose_network(options: Sequence[str]) -> EvaluateConfig:
    """Returns the config of `evaluate.py` with options.

    Raises:
        ConfigError: a wrong option.
    """
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose("evaluate", overrides=list(options))
    except Exception as error:  # Hydra refuses overrides with errors of many classes
        raise ConfigError(explain(options, "evaluate") or [first_line(error)]) from error
    return check(cfg, EvaluateConfig)


def load_all(
    run_folder: str | Path, device: str = "cpu"
) -> dict[tuple[int, int], tuple[Embedder, nn.Module]]:
    """Returns all models of a run with their transforms, by repeat and fold; see `load`.

    Raises:
        UserError: the folder is not a run folder.
    """
    config, models = load_config(run_folder), {}
    for key in _list_models(run_folder):
        embedder = load_embedder(config, run_folder, "repeat{}-fold{}".format(*key)).to(device)
        models[key] = embedder, _image_transform(config, embedder)
    return models


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
        UserError: the folder is not a run folder, or has no such model.
    """
    from safetensors.torch import save_file

    config, target = load_config(run_folder), Path(folder)
    embedder = load_embedder(config, run_folder, _select_model(run_folder, repeat, fold))
    # Copies: safetensors refuses tensors that share memory.
    weights = {name: value.clone() for name, value in embedder.state_dict().items()}
    with replace_file(target / WEIGHTS) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
    training = {
        "data": config.data.name,
        "loss": config.loss["name"],
        "method": config.method["name"],
        "protocol": config.protocol.name,
        "seed": config.seed,
        "repeat": repeat or 0,
        "fold": fold or 0,
    }
    description = {
        "backbone": config.backbone,
        "embedder": config.embedder,
        "transform": config.transform.model_dump(mode="json"),
        "input": asdict(embedder.input),
        "training": training,
    }
    write_json(target / CONFIG, description)
    return target


def _list_models(run_folder: str | Path) -> list[tuple[int, int]]:
    """Returns repeat and fold of the models in a run folder, in order."""
    files = (Path(run_folder) / "checkpoints").glob("repeat*-fold*/best.pt")
    numbers = (re.findall(r"\d+", file.parent.name) for file in files)
    return sorted((int(repeat), int(fold)) for repeat, fold in numbers)


def _select_model(
    run_folder: str | Path, repeat: int | None, fold: int | None, stacklevel: int = 3
) -> str:
    """Returns the name of a model, and warns if nothing says which of several it is."""
    name, count = f"repeat{repeat or 0}-fold{fold or 0}", len(_list_models(run_folder))
    if repeat is None and fold is None and count > 1:
        warnings.warn(
            f"{run_folder} has {count} models; this is {name}: choose one with repeat= and fold=, "
            f"or load all with dml.load_all",
            stacklevel=stacklevel,
        )
    return name


def load_embedder(config: Config, run_folder: str | Path, job: str) -> Embedder:
    """Returns the network of a run with the weights of its best evaluation.

    Raises:
        UserError: the run has no such model, or it does not fit the config.
    """
    path = RunFolder(run_folder).job(job) / "best.pt"
    if not path.exists():
        names = [f"repeat{repeat}-fold{fold}" for repeat, fold in _list_models(run_folder)]
        raise UserError(f"run: {path} does not exist; there is {', '.join(names) or 'no model'}")
    if "weights" in config.backbone:
        config.backbone["weights"] = "none"  # they are in the checkpoint: no download
    embedder = Builder(config).embedder()
    return _restore(embedder, path, lambda path: read_checkpoint(path)["embedder"])


def _restore(embedder: Embedder, path: Path, read: Callable[[Path], Any]) -> Embedder:
    """Returns the network with the weights of a file, in evaluation mode."""
    try:
        embedder.load_state_dict(read(path))
    except Exception as error:  # of many classes: a damaged file, a missing entry, another shape
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"load: {path} is damaged or of another network: {reason}") from error
    return embedder.eval()


def _load_exported(folder: Path, trusted: bool) -> tuple[Config, Embedder]:
    """Returns the network in a folder, and its backbone, embedder and transform as a config.

    Args:
        folder: see `export`.
        trusted: False allows the networks of this package only: those of others would run code.

    Raises:
        UserError: the files are damaged, of another version, or not trusted.
    """
    from safetensors.torch import load_file

    path = folder / CONFIG
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        refuse_interpolation(description)
        config = Config.model_construct(
            backbone=dict(description["backbone"]),
            embedder=dict(description["embedder"]),
            transform=TransformConfig.model_validate(description["transform"]),
            speed="exact",
            precision="fp32",
        )
        lists = {k: tuple(v) for k, v in description["input"].items() if isinstance(v, list)}
        spec = InputSpec(**{**description["input"], **lists})
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(
            f"load: {path} does not describe a network of this version ({reason}); export it again"
        ) from error
    if not trusted and not _is_of_this_package(config):
        raise UserError(
            f"load: the network '{config.backbone.get('_target_')}' is not described by this "
            f"package alone and may run any code: read {path}, and give the path of that folder if "
            f"you trust it"
        )
    embedder = Builder(config).embedder()
    embedder.input = spec  # as in training, even if the record of the network has changed
    return _from_images(config, _restore(embedder, folder / WEIGHTS, load_file))


def _is_of_this_package(config: Config) -> bool:
    """Returns True for a backbone of `configs/backbone` without weights or classes from elsewhere.

    Any dictionary inside an option could name a class, and is refused.
    """
    options = json.dumps([*config.backbone.values(), *config.embedder.values()])
    files = (OmegaConf.load(path) for path in (CONFIGS / "backbone").glob("*.yaml"))
    known = [OmegaConf.select(file, "_target_") for file in files]
    plain = "{" not in options and config.backbone.get("weights") == "none"
    return plain and config.backbone.get("_target_") in known


def _download(hub_id: str) -> Path:
    """Returns the folder of a model on the Hugging Face hub, in the hub's cache.

    Raises:
        UserError: there is no such model, or no connection to the hub.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:  # of many classes: no connection, no such model, no access
        raise UserError(
            f"load: there is no folder {hub_id}, and the Hugging Face hub has no such model or "
            f"cannot be reached ({first_line(error)})"
        ) from error


def _image_transform(config: Config, embedder: Embedder) -> nn.Module:
    """Returns the transform from a PIL image of any mode to a network's 3×H×W input."""
    transforms = Builder(config).transforms(embedder)
    return nn.Sequential(v2.RGB(), v2.PILToTensor(), transforms.test, transforms.to_input)
