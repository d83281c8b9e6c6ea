"""Trained networks: `dml.load` and `dml.load_all`.

A network is in a run folder, or in a folder of `dml.export`, which holds the run's config and one
model.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, overload

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torchvision.transforms.functional import to_pil_image

from dml.config.check import check
from dml.config.explain import compose_config
from dml.config.schema import LORA, Config, EvaluateConfig
from dml.config.signatures import accepted_parameters, import_target
from dml.config.stored_network import EXPORT, HUB, TIMM, parse_hub_name, parse_line
from dml.core.errors import UserError
from dml.core.hub import find_hub_folder
from dml.data.decode import load_image
from dml.models.embedder import Embedder
from dml.models.identity import FeatureNetwork, Identity
from dml.models.lora import OtherWeightsError
from dml.runs.build import Builder
from dml.runs.folder.code_changes import describe_changed_code
from dml.runs.folder.exported_folder import (
    check_belonging,
)
from dml.runs.folder.run_folder import load_config
from dml.runs.folder.stored_run import WEIGHTS
from dml.runs.load_loss import TrainedLoss, load_loss
from dml.runs.network_options import check_model
from dml.training.checkpoint_files import read_checkpoint
from dml.training.process_state import restored_process_state

MOST_BELOW = 8  # networks, each trained on the features of the next


@overload
def load(
    source: str | Path,
    repeat: int | None = ...,
    fold: int | None = ...,
    device: str = ...,
    *,
    trust: bool = ...,
    loss: Literal[False] = ...,
) -> tuple[Embedder, nn.Module]: ...


@overload
def load(
    source: str | Path,
    repeat: int | None = ...,
    fold: int | None = ...,
    device: str = ...,
    *,
    trust: bool = ...,
    loss: Literal[True],
) -> tuple[Embedder, nn.Module, TrainedLoss]: ...


@restored_process_state()
def load(
    source: str | Path,
    repeat: int | None = None,
    fold: int | None = None,
    device: str = "cpu",
    *,
    trust: bool = False,
    loss: bool = False,
) -> tuple[Embedder, nn.Module] | tuple[Embedder, nn.Module, TrainedLoss]:
    """Returns a trained network and the transform of its input images, and perhaps the loss.

    Args:
        source: a run folder (`outputs/…/seed<seed>-<digest>`), the folder of an exported network,
            `hf:<user>/<name>` or `hf:<user>/<name>@<revision>` for one on the Hugging Face hub, or
            `timm:<model>` for the pooled features of a pretrained network of timm, of length 1.
        repeat, fold: numbers of the model, from 0, if the run has several models; by default the
            first model is returned, with a warning.
        device: of the network.
        trust: a folder names classes that are built. True: any class or function; False: those of
            this package, and losses, optimizers and the like of its libraries.
        loss: return also the loss with its weights of that evaluation. Run folders only; their
            images are read, for the classes.

    Returns:
        The embedder with the weights of its best evaluation, in evaluation mode (B×3×H×W → B×D),
        and a transform from a PIL image of any mode to its 3×H×W input, as `dml.embed` prepares
        files: photos are turned upright by their EXIF orientation, and transparent images composed
        on `data.background` of the run. With `loss=True` third the loss
        (`dml.runs.load_loss.TrainedLoss`): `classes` are the names of its classes, and
        `probabilities(embeddings)` are B×C if it has logits.

    Raises:
        UserError: there is no such run or model, the folder names what needs `trust`, or it has no
            loss.
    """
    is_export = Path(source, WEIGHTS).exists()
    if loss and (is_export or str(source).startswith(TIMM)):
        raise UserError(f"load: {source} holds no loss; loss=True takes the run folder")
    config, embedder = open_network(source, repeat, fold, trust=trust)
    transforms = Builder(config).transforms(embedder)
    steps = ToPixels(config.data.background), transforms.test, transforms.to_input
    network = embedder.to(device), nn.Sequential(*steps)
    if not loss:
        return network
    of_run = load_config(source, trust=trust)  # a head stands on a network with another config
    trained = load_loss(of_run, source, embedder.embedding_size, repeat or 0, fold or 0)
    return *network, trained.to(device)


class ToPixels(nn.Module):
    """Converts an image to uint8 pixels 3×H×W, as `dml.embed` does with files.

    Photos of Pillow are turned upright by their EXIF orientation.

    Args:
        background: color below transparent pixels.
    """

    def __init__(self, background: str) -> None:
        super().__init__()
        self.background = background

    def forward(self, image: Image.Image | Tensor) -> Tensor:
        """Converts an image of Pillow, or a uint8 tensor c×H×W (grey or RGB, also with alpha).

        Raises:
            UserError: the image has pixels of 32 bits.
        """
        if not isinstance(image, Tensor):
            return load_image(image, apply_orientation=True, background=self.background)
        if image.shape[0] == 3:
            return image
        return load_image(to_pil_image(image), background=self.background)


@restored_process_state()
def load_all(
    run_folder: str | Path, device: str = "cpu", *, trust: bool = False
) -> dict[tuple[int, int], tuple[Embedder, nn.Module]]:
    """Returns all models of a run with their transforms, by repeat and fold; see `load`.

    Raises:
        UserError: the folder is not a run folder, or has no models.
    """
    models = {}
    for repeat, fold in _list_models(run_folder):
        models[repeat, fold] = load(run_folder, repeat, fold, device, trust=trust)
    return models


def open_network(
    source: str | Path,
    repeat: int | None = None,
    fold: int | None = None,
    options: Sequence[str] = ("data=folder",),
    trust: bool = False,
    below: int = 0,
) -> tuple[Config, Embedder]:
    """Returns a network on the CPU in evaluation mode, and its config; see `load`.

    `options` are those of `dml evaluate` for a network of timm. A head that was trained on stored
    features stands on the network that made them, `below` so many others.
    """
    if below > MOST_BELOW:
        raise UserError(f"load: {source} stands on more than {MOST_BELOW} networks, or on itself")
    check_model(source, repeat, fold, WEIGHTS)
    if str(source).startswith(TIMM):
        model = f"backbone.model='{str(source).removeprefix(TIMM)}'"
        of_timm = compose_network(["backbone=timm", model, *options])
        torch.manual_seed(of_timm.seed)  # of weights that are not pretrained
        return of_timm, Builder(of_timm).embedder().eval()
    if str(source).startswith(HUB):
        source = find_hub_folder(parse_hub_name(str(source)), EXPORT)
    config = load_config(source, trust=trust)
    warn_of_changed_code(config, source)
    embedder = load_embedder(config, source, repeat, fold)
    head = embedder.backbone
    if isinstance(head, Identity):
        if head.network is None:
            raise UserError(f"load: the features that {source} was trained on name no network")
        name, options = parse_line(head.network, str(source), trust)
        config, network = open_network(name, None, None, options, trust, below + 1)
        embedder.backbone, embedder.input = FeatureNetwork(network, head), network.input
    return config, embedder


def compose_network(options: Sequence[str]) -> EvaluateConfig:
    """Returns the config of `dml evaluate` with options.

    Raises:
        ConfigError: a wrong option.
    """
    return check(compose_config("evaluate", options), EvaluateConfig)


def load_embedder(
    config: Config, folder: str | Path, repeat: int | None = None, fold: int | None = None
) -> Embedder:
    """Returns the network of a run with the weights of its best evaluation, in evaluation mode.

    Raises:
        UserError: the run has no such model, or it does not fit the config.
    """
    path = Path(folder, WEIGHTS)
    is_export = path.exists()
    if not is_export:
        path = _choose_model(folder, repeat, fold)
    has_adapters = config.backbone.get("train") == LORA and not is_export
    embedder = _build_network(config, has_adapters)
    if is_export:
        check_belonging(Path(folder))
    try:
        weights = load_file(path) if is_export else _read_best(path)["embedder"]
        embedder.load_state_dict(weights)
    except OtherWeightsError as error:
        source = config.backbone["weights"]
        raise UserError(f"load: {path}: {error} (backbone.weights={source})") from error
    except UserError:
        raise
    except Exception as error:  # of many classes: a damaged file, a missing entry, another shape
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"load: {path} is damaged or of another network: {reason}") from error
    return embedder.eval()


def _read_best(path: Path) -> dict[str, Any]:
    """Returns the best checkpoint of a run; see `read_checkpoint`."""
    return read_checkpoint(path, "load", "put the file back, or train the run again")


def _build_network(config: Config, has_adapters: bool) -> Embedder:
    """Returns a network for the weights of a file, which of LoRA are the adapters alone."""
    builder = Builder(config)
    if has_adapters:
        builder.fetch_weights()
        embedder = builder.embedder()
        builder.add_adapters(embedder)
        return embedder
    if _takes_weights(config.backbone):
        config.backbone["weights"] = "none"  # they are in the file: no download
    return builder.embedder()


def _choose_model(run_folder: str | Path, repeat: int | None, fold: int | None) -> Path:
    """Returns the weights of a model of a run; the first one, with a warning, if none is chosen.

    Raises:
        UserError: the run has no such model.
    """
    models, key = _list_models(run_folder), (repeat or 0, fold or 0)
    if repeat is None and fold is None and len(models) > 1:
        warnings.warn(
            f"{run_folder} has {len(models)} models; this is the first: choose one with repeat= "
            f"and fold=, or load all with dml.load_all",
            stacklevel=6,
        )
    if key not in models:
        names = ", ".join(map(str, models)) or "none"
        raise UserError(
            f"load: (repeat, fold) {key} is no model of {run_folder}; its models are {names}"
        )
    return models[key]


def _takes_weights(backbone: dict[str, Any]) -> bool:
    """Returns whether a backbone has an option of weights; ours download them by default."""
    target = backbone["_target_"]
    if "weights" in backbone or not target.startswith("dml.models."):
        return "weights" in backbone
    return "weights" in accepted_parameters(import_target(target, "backbone"))


def warn_of_changed_code(config: Config, folder: str | Path) -> None:
    """Warns if code of the user, which a network needs, has changed since its training."""
    changed = describe_changed_code(config.code, folder)
    if changed:
        warnings.warn(changed, stacklevel=4)


def _list_models(run_folder: str | Path) -> dict[tuple[int, int], Path]:
    """Returns (repeat, fold) → weights of the models in a run folder, in order."""
    models = {}
    for file in Path(run_folder, "checkpoints").glob("repeat*-fold*/best.pt"):
        repeat, fold = map(int, re.findall(r"\d+", file.parent.name))
        models[repeat, fold] = file
    if not models:
        raise UserError(f"load: there is no model in {run_folder}")
    return dict(sorted(models.items()))
