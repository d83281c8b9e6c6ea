"""Trained networks: `dml.load`, `dml.load_all`, and their export by `dml.export`.

A network is in a run folder, or in a folder of `dml.export`, which holds the run's config and one
model.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.transforms import v2

from dml.config.check import check
from dml.config.explain import compose_config
from dml.config.schema import Config, EvaluateConfig
from dml.core.atomic_io import replace_file, write_text
from dml.core.errors import UserError, first_line
from dml.core.metric_names import is_score, metric_label
from dml.models.embedder import Embedder
from dml.models.identity import FeatureNetwork, Identity
from dml.runs.build import Builder
from dml.runs.folder.code_changes import describe_changed_code
from dml.runs.folder.run_folder import RunFolder, load_config
from dml.training.checkpoint_files import read_checkpoint

TIMM = "timm:"  # prefix of an off-the-shelf network
WEIGHTS = "model.safetensors"  # of an exported network
ONNX, CARD = "model.onnx", "README.md"
TOLERANCE = 1e-5  # largest difference of an embedding's values between ONNX Runtime and PyTorch
TEXT = """\
---
license: other  # TODO: the license of the weights; that of the images may limit it
library_name: dml-benchmark
tags: [metric-learning, image-retrieval, feature-extraction]
---
# {c.loss[name]} on {c.data.name}

A network ({c.backbone[name]}) that embeds images in {network.embedding_size} dimensions, trained to
bring a class together. `embedder, transform = dml.load(<this folder>)` loads it.

`{network.input}`

Data {c.data.name}, loss {c.loss[name]}, method {c.method[name]}, protocol {c.protocol.name}, seed
{c.seed}, repeat {repeat}, fold {fold}. {scores}
"""


def load(
    source: str | Path, repeat: int | None = None, fold: int | None = None, device: str = "cpu"
) -> tuple[Embedder, nn.Module]:
    """Returns a trained network and the transform of its input images.

    Args:
        source: a run folder (`outputs/…/seed<seed>-<digest>`), the folder of an exported network,
            or `timm:<model>` for the pooled features of a pretrained network of timm, of length 1.
            A folder names classes that are built: load only folders that you trust.
        repeat, fold: numbers of the model, from 0, if the run has several models; by default the
            first model is returned, with a warning.
        device: of the network.

    Returns:
        The embedder with the weights of its best evaluation, in evaluation mode (B×3×H×W → B×D),
        and a transform from a PIL image of any mode to its 3×H×W input.

    Raises:
        UserError: there is no such run or model.
    """
    config, embedder = open_network(source, repeat, fold)
    transforms = Builder(config).transforms(embedder)
    steps = v2.RGB(), v2.PILToTensor(), transforms.test, transforms.to_input
    return embedder.to(device), nn.Sequential(*steps)


def load_all(
    run_folder: str | Path, device: str = "cpu"
) -> dict[tuple[int, int], tuple[Embedder, nn.Module]]:
    """Returns all models of a run with their transforms, by repeat and fold; see `load`.

    Raises:
        UserError: the folder is not a run folder, or has no models.
    """
    return {(r, f): load(run_folder, r, f, device) for r, f in _list_models(run_folder)}


def open_network(
    source: str | Path,
    repeat: int | None = None,
    fold: int | None = None,
    options: Sequence[str] = ("data=folder",),
) -> tuple[Config, Embedder]:
    """Returns a network on the CPU in evaluation mode, and its config; see `load`.

    `options` are those of `evaluate.py` for a network of timm. A head that was trained on stored
    features stands on the network that made them.
    """
    if str(source).startswith(TIMM):
        model = f"backbone.model='{str(source).removeprefix(TIMM)}'"
        of_timm = compose_network(["backbone=timm", model, *options])
        return of_timm, Builder(of_timm).embedder().eval()
    config = load_config(source)
    _warn_of_changed_code(config, source)
    embedder = load_embedder(config, source, repeat, fold)
    if isinstance(head := embedder.backbone, Identity):
        if head.network is None:
            raise UserError(f"load: the features that {source} was trained on name no network")
        name, *options = shlex.split(head.network)
        config, network = open_network(name, options=options)
        embedder.backbone, embedder.input = FeatureNetwork(network, head), network.input
    return config, embedder


def compose_network(options: Sequence[str]) -> EvaluateConfig:
    """Returns the config of `evaluate.py` with options.

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
    if not path.is_file():
        models, key = _list_models(folder), (repeat or 0, fold or 0)
        if repeat is None and fold is None and len(models) > 1:
            warnings.warn(
                f"{folder} has {len(models)} models; this is the first: choose one with repeat= "
                f"and fold=, or load all with dml.load_all",
                stacklevel=4,
            )
        if key not in models:
            raise UserError(f"load: (repeat, fold) {key} is not in {folder}: {[*models]}")
        path = models[key]
    if "weights" in config.backbone:
        config.backbone["weights"] = "none"  # they are in the file: no download
    embedder = Builder(config).embedder()
    try:
        exported = path.name == WEIGHTS
        embedder.load_state_dict(load_file(path) if exported else read_checkpoint(path)["embedder"])
    except Exception as error:  # of many classes: a damaged file, a missing entry, another shape
        reason = (str(error).splitlines() or [""])[-1].strip()
        raise UserError(f"load: {path} is damaged or of another network: {reason}") from error
    return embedder.eval()


def _warn_of_changed_code(config: Config, folder: str | Path) -> None:
    if changed := describe_changed_code(config.code, folder):
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


def export(
    run_folder: str | Path, folder: str | Path, repeat: int | None = None, fold: int | None = None
) -> Path:
    """Writes a model of a run to a folder that `dml.load` reads without the run.

    `config.yaml` is that of the run, `model.safetensors` holds the weights, and `README.md` is a
    card for the Hugging Face hub with data, loss, protocol, scores and the form of the input.

    Args:
        run_folder: a run folder.
        folder: is created if necessary; an earlier export in it is replaced.
        repeat, fold: see `dml.load`.

    Returns:
        The folder.

    Raises:
        UserError: the folder is not a run folder, or has no such model.
    """
    run, target = RunFolder(run_folder), RunFolder(folder)
    config = load_config(run.path)
    _warn_of_changed_code(config, run.path)
    embedder = load_embedder(config, run.path, repeat, fold)
    for source in (run.config, run.best):
        if source.exists():
            write_text(target.path / source.name, source.read_text(encoding="utf-8"))
    # Copies: safetensors refuses tensors that share memory.
    weights = {name: value.clone() for name, value in embedder.state_dict().items()}
    with replace_file(target.path / WEIGHTS) as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})
    summary = run.read_summary()
    scores = "No scores: it is not finished, or has no test."
    if summary is not None and summary["metrics"]:
        means = {name: 100 * value["mean"] for name, value in summary["metrics"].items()}
        cells = [f"{metric_label(n)} {v:.2f}" for n, v in means.items() if is_score(n)]
        scores = f"Mean of the run's models, percent on {summary['classes_tested']}, best epoch by "
        scores += f"{summary['selected_by']}:\n\n- " + "\n- ".join(cells)
    numbers = {"repeat": repeat or 0, "fold": fold or 0}
    card = TEXT.format(c=config, network=embedder, scores=scores, **numbers)
    write_text(target.path / CARD, card)
    return target.path


def export_onnx(folder: Path) -> float:
    """Writes `model.onnx` beside an exported network, for any number of images in a batch.

    Its input `images` is prepared by the transform of `dml.load`, its output is `embeddings`.

    Returns:
        The largest difference of its embeddings from those of PyTorch.

    Raises:
        UserError: a package is missing, the network has no such form, or the difference is large.
    """
    config, embedder = open_network(folder)
    size, auto = config.transform.size or embedder.input.size, torch.export.Dim.AUTO
    images = torch.rand(3, 3, size or 64, size or 64)
    dims = {0: auto} if size else {0: auto, 2: auto, 3: auto}
    options: dict[str, Any] = {"input_names": ["images"], "output_names": ["embeddings"]}
    options |= {"dynamic_shapes": (dims,), "dynamo": True, "verbose": False}
    try:
        program: Any = torch.onnx.export(embedder, (images[:2],), **options)
        (found,) = program(images)
    except ImportError as error:
        raise UserError(f"onnx: {error}: pip install onnx onnxscript onnxruntime") from error
    except Exception as error:  # of many classes, of torch and of its converter
        raise UserError(f"onnx: this network has no ONNX form: {first_line(error)}") from error
    with torch.inference_mode():
        difference = float((found - embedder(images)).abs().max())
    if not difference <= TOLERANCE:
        raise UserError(f"onnx: differs from PyTorch by {difference:.1e} > {TOLERANCE}")
    with replace_file(folder / ONNX) as temporary:
        program.save(temporary)
    return difference
