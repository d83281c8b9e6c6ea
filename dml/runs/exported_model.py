"""Exported networks: a folder, or a model on the Hugging Face hub, with two files.

`model.safetensors` holds the weights; `config.json` describes network, head and transform, and the
training that the network comes from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn
from torchvision.transforms import v2

from dml.config.identity import refuse_interpolation
from dml.config.schema import Config, TransformConfig
from dml.core.atomic_io import replace_file, write_json
from dml.core.errors import UserError, first_line
from dml.core.installation import CONFIGS
from dml.models.backbones import InputSpec
from dml.models.embedder import Embedder
from dml.runs.build import Builder

CONFIG, WEIGHTS = "config.json", "model.safetensors"
NODES = ("backbone", "embedder", "transform")  # of the config of a run


def save_model(
    folder: Path, config: Config, embedder: Embedder, training: Mapping[str, Any]
) -> None:
    """Writes the two files into a folder, in place of those of an earlier export.

    Args:
        folder: is created if necessary.
        config: of the run.
        embedder: the trained network.
        training: what is worth knowing about the run, in JSON's own types.

    Raises:
        OSError: the folder cannot be written.
    """
    from safetensors.torch import save_file

    description = {
        "backbone": config.backbone,
        "embedder": config.embedder,
        "transform": config.transform.model_dump(mode="json"),
        "input": asdict(embedder.input),
        "training": dict(training),
    }
    # Copies: safetensors refuses tensors that share memory.
    weights = embedder.state_dict()
    state = {name: value.cpu().contiguous().clone() for name, value in weights.items()}
    with replace_file(folder / WEIGHTS) as temporary:
        save_file(state, temporary, metadata={"format": "pt"})
    write_json(folder / CONFIG, description)


def is_exported(folder: Path) -> bool:
    """Returns True for the folder of an exported model."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def load_model(folder: Path, trusted: bool = True) -> tuple[Embedder, nn.Module]:
    """Returns the network in a folder, in evaluation mode, and the transform of its input images.

    Args:
        folder: see `save_model`.
        trusted: False allows the networks of this package only: those of others would run code.

    Raises:
        UserError: the files are damaged, of another version, or not trusted.
    """
    try:
        description = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        refuse_interpolation(description)
        nodes = {name: dict(description[name]) for name in NODES}
        config = Config.model_construct(
            backbone=nodes["backbone"],
            embedder=nodes["embedder"],
            transform=TransformConfig.model_validate(nodes["transform"]),
        )
        spec = _input_spec(description["input"])
    except (OSError, KeyError, TypeError, ValueError) as error:  # ValidationError too
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(
            f"load: {folder / CONFIG} does not describe a network of this version ({reason}); "
            f"export the run again"
        ) from error
    if not trusted:
        _check_trusted(config, folder)
    embedder = Builder(config).embedder()
    embedder.input = spec  # as in training, even if the record of the network has changed
    _load_weights(embedder, folder / WEIGHTS)
    return embedder.eval(), image_transform(config, embedder)


def _input_spec(values: Mapping[str, Any]) -> InputSpec:
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return InputSpec(**{**values, **lists})


def _check_trusted(config: Config, folder: Path) -> None:
    """Raises UserError for a network that is not one of `configs/backbone`."""
    files = (OmegaConf.load(path) for path in (CONFIGS / "backbone").glob("*.yaml"))
    known = {OmegaConf.select(file, "_target_") for file in files}
    target = config.backbone.get("_target_")
    values = [*config.backbone.values(), *config.embedder.values()]
    if target not in known or not _is_plain(values) or config.backbone.get("weights") != "none":
        raise UserError(
            f"load: the network '{target}' is not described by this package alone and may run any "
            f"code: read {folder / CONFIG}, and give the path of that folder if you trust it"
        )


def _is_plain(value: Any) -> bool:
    """Returns True for numbers, text, None, and lists of them; a dict may name a class."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _load_weights(embedder: Embedder, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        embedder.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"load: {path} is damaged or of another network: {reason}") from error


def download_model(hub_id: str) -> Path:
    """Returns the folder of a model on the Hugging Face hub, in the hub's cache.

    Args:
        hub_id: `<user>/<name>`.

    Raises:
        UserError: there is no such model, or no connection to the hub.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:  # of many classes: no connection, no such model, no access
        raise UserError(
            f"load: there is no folder {hub_id}, and the Hugging Face hub has no such model or "
            f"cannot be reached ({first_line(error)})"
        ) from error
    if not is_exported(folder):
        raise UserError(f"load: {hub_id} on the Hugging Face hub is no model of dml.export")
    return folder


def image_transform(config: Config, embedder: Embedder) -> nn.Module:
    """Returns the transform from a PIL image of any mode to a network's 3×H×W input."""
    transforms = Builder(config).transforms(embedder)
    return nn.Sequential(ToRGB(), transforms.test, transforms.to_input)


class ToRGB(nn.Module):
    """Converts a PIL image of any mode to a uint8 tensor 3×H×W."""

    def forward(self, image: object) -> torch.Tensor:
        """Converts one image."""
        return v2.functional.pil_to_tensor(image.convert("RGB"))  # type: ignore[attr-defined]
