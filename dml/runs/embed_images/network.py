"""The network of a request, and what its embeddings depend on."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from dml.config.schema import Config
from dml.data.image_index import ImageIndex
from dml.data.loaders import resolve_eval_batch_size
from dml.data.preparation.image_check import count_transparent
from dml.models.embedder import Embedder, hash_weights
from dml.runs.build import Builder
from dml.runs.embed_images.images import BACKGROUND, MAX_PIXELS, Images
from dml.runs.embed_images.request import Request
from dml.runs.load import open_network
from dml.runs.model import Model
from dml.training.device import resolve_device, set_precision


def _network_options(request: Request, images: Images) -> list[str]:
    """Returns the options of a request, with the dataset that the network is composed for."""
    options = list(request.options)
    if images.splits is not None:
        return [str(request.images), *options]
    if any(option.startswith("data=") for option in options):
        return options
    return ["data=folder", *options]


def open_requested(request: Request, images: Images) -> tuple[Config, Embedder]:
    """Returns the network of a request, with its config."""
    options = _network_options(request, images)
    return open_network(request.network, request.repeat, request.fold, options, request.trust)


def make_model(request: Request, network: tuple[Config, Embedder], index: ImageIndex) -> Model:
    """Returns a network on its device, for images with the background of its training."""
    device = resolve_device("auto")
    config, embedder = network
    config = config.on_device(device.type == "cuda")
    if not any(option.startswith(BACKGROUND) for option in request.options):
        index = replace(index, background=config.data.background)  # as in training
    set_precision(config.precision, device)
    return Model(Builder(config), embedder.to(device), count_transparent(index), device)


def describe_making(request: Request, images: Images, model: Model, origin: str) -> dict[str, Any]:
    """Returns what the file says of its making, on which its embeddings depend."""
    # As for large images: between the small ones of a longer batch, decoded ones leave holes.
    pixels = max(224, model.pixels or 0)
    return {
        "network": request.network,
        "repeat": request.repeat,
        "fold": request.fold,
        "weights": hash_weights(model.embedder),
        "options": _network_options(request, images),
        "features": request.features,
        "views": request.views,
        "augmentation": model.config.transform.augmentation,
        "dtype": request.dtype,
        "background": model.index.background,
        "origin": origin,
        "precision": model.config.precision,
        "batch_size": resolve_eval_batch_size(request.batch_size or "auto", pixels, model.device),
        "device": model.device.type,
    }


def describe_origin(request: Request, index: ImageIndex) -> str:
    """Returns a digest of the model and the images, by which a file of both is known.

    Images in Python count by their fingerprint, of the options only those of the data.
    """
    images = request.images
    if not isinstance(images, str | Path):
        images = index.fingerprint()
    content: list[Any] = []
    for name in (request.network, str(images)):
        content.append(os.path.realpath(name) if os.path.exists(name) else name)
    content += [request.repeat or 0, request.fold or 0]
    of_data = [option for option in request.options if option.startswith("data")]
    content.append(sorted(option for option in of_data if not option.startswith(MAX_PIXELS)))
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
