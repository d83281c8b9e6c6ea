"""Embeddings of any images by a network: `dml.embed`."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dml.config.schema import check_device
from dml.core.atomic_io import output_folder
from dml.core.errors import UserError
from dml.core.locks import try_lock
from dml.core.progress import show_progress
from dml.data import embedding_file, loaders
from dml.data.embedding_file import ImageEmbeddings
from dml.data.folder import list_images
from dml.data.image_check import exclude_undecodable
from dml.data.image_index import ImageIndex, Subset
from dml.data.samplers import augmentation_seeds
from dml.data.transforms import Views
from dml.runs.build import Builder
from dml.runs.job import translate_resource_errors
from dml.runs.load import compose_network, open_network
from dml.training.device import autocast, resolve_device, set_precision


def embed(
    network: str | Path,
    images: str | Path | Sequence[Any] | np.ndarray,
    output: str | Path | None = None,
    *,
    repeat: int | None = None,
    fold: int | None = None,
    features: bool = False,
    views: int = 0,
    seed: int = 0,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int | Literal["auto"] = "auto",
    skip_corrupt: bool = False,
    device: str = "auto",
    options: Sequence[str] = (),
) -> ImageEmbeddings:
    """Embeds images in batches, as `evaluate.py` does, in memory that their number does not change.

    The same call continues one that was interrupted, and its result is the same bit for bit.

    Args:
        network: see `dml.load`.
        images: a folder, a list of paths in a file (see `dml.data.folder.list_images`) or in
            Python, uint8 pixels N×H×W×3, images (see `ImageIndex.images`), or a dataset
            (`data=cub`), with its splits. Files of a user are rotated upright by their EXIF
            orientation.
        output: a file that ends in `.npz` or `.parquet`; None: a temporary one.
        repeat, fold: see `dml.load`.
        features: the pooled features of the backbone instead of embeddings.
        views: augmentations of each image that are embedded too, as the network was trained.
        seed: of the augmentations.
        dtype: of the file; `float16` has half the size and about three digits.
        batch_size: images per batch; "auto": by device and image size.
        skip_corrupt: leave out images that cannot be decoded; each image is decoded twice.
        device: `auto`, `cpu`, `cuda` or `cuda:<n>`.
        options: of `evaluate.py`, for a network of timm and for a dataset:
            `["backbone.input_size=64", "data.root=data"]`.

    Raises:
        UserError: network or images cannot be read, an image cannot be decoded, the file cannot be
            written, or an embedding is not finite.
    """
    with ExitStack() as stack:
        if output is None:
            output = Path(stack.enter_context(TemporaryDirectory()), "embeddings.npz")
        path = Path(output)
        embedding_file.check_format(path)
        output_folder(path.parent)
        index, labels, splits = _read_images(images, options)
        try:
            place = resolve_device(check_device(device))
        except ValueError as error:
            raise UserError(f"device: {device} {error}") from error
        if splits or not any(option.startswith("data=") for option in options):
            options = [str(images) if splits else "data=folder", *options]
        config, embedder = open_network(network, repeat, fold, options)
        config = config.on_device(place.type == "cuda")
        pixels = config.transform.size or embedder.input.size
        # As for large images: between the small ones of a longer batch, decoded ones leave holes.
        size = loaders.resolve_eval_batch_size(batch_size, max(224, pixels or 0), place)
        weights = hashlib.sha256()
        for name, value in embedder.state_dict().items():
            weights.update(name.encode() + value.numpy().tobytes())
        made_by: dict[str, Any] = {"network": str(network), "repeat": repeat, "fold": fold}
        made_by |= {"options": options, "features": features}
        made_by |= {"weights": weights.hexdigest()[:16], "precision": config.precision}
        made_by |= {"dtype": dtype, "batch_size": size, "device": place.type}
        if views:
            made_by |= {"views": views, "seed": seed, "augmentation": config.transform.augmentation}
        transforms = Builder(config).transforms(embedder)
        transform = Views(transforms.test, transforms.train, views) if views else transforms.test
        workers = loaders.resolve_workers("auto", index, place)
        loading = loaders.LoaderOptions(transforms.to_input, place, workers)
        set_precision(config.precision, place)
        embedder.to(place)

        def forward(inputs: Tensor) -> Tensor:
            if features:
                return embedder.pool(embedder.features(inputs)).float()
            return embedder(inputs)

        folder = path.with_name(f".{path.name}.partial")
        stack.enter_context(translate_resource_errors())
        stack.enter_context(torch.inference_mode())
        with try_lock(folder / "run.lock"), autocast(config.precision, place):
            if skip_corrupt:
                index = exclude_undecodable(index, True, folder)
            state = [made_by, config.transform.model_dump(mode="json"), index.fingerprint()]
            store = folder / hashlib.sha256(json.dumps(state).encode()).hexdigest()
            side = pixels or 64
            width = forward(torch.zeros(1, 3, side, side, device=place)).shape[1]
            bytes_per_row = (1 + views) * width * np.dtype(dtype).itemsize
            with open(store, "ab") as file:  # complete batches of an interrupted call are kept
                done = file.tell() // (bytes_per_row * size) * size
                file.truncate(done * bytes_per_row)
                rest = Subset(index, np.arange(done, len(index.images)))
                seeds = augmentation_seeds(seed, 0, len(index.images))[done:]
                keys = [*enumerate(seeds)] if views else range(len(rest))
                batches = loading.batches(rest, transform, sampler=keys, batch_size=size)
                try:
                    for inputs, _ in show_progress(batches, "embedding batch", len(batches)):
                        parts = inputs.unbind(1) if views else [inputs]
                        made = torch.stack([forward(part) for part in parts], 1)
                        values = made.cpu().numpy().astype(dtype)
                        if not np.isfinite(values).all():
                            raise UserError(
                                f"network: {network} makes embeddings that are not finite"
                            )
                        file.write(values.tobytes())
                        file.flush()
                except UserError as error:
                    hint = "; --skip-corrupt (skip_corrupt=True) leaves it out"
                    damaged = "cannot decode" in str(error)
                    raise UserError(f"{error}{hint * damaged}") from None
            names = _names(index)
            classes = np.array([labels[name] for name in names]) if labels else None
            roles = np.array([splits[name] for name in names]) if splits else None
            rows = np.memmap(store, dtype, "r", shape=(len(names), 1 + views, width))
            columns = np.array(names), classes, made_by, rows[:, 1:] if views else None, roles
            embedding_file.write_embeddings(path, ImageEmbeddings(rows[:, 0], *columns))
        shutil.rmtree(folder)
        return embedding_file.open_embeddings(path)


def _read_images(
    images: str | Path | Sequence[Any] | np.ndarray, options: Sequence[str]
) -> tuple[ImageIndex, dict[str, str], dict[str, str]]:
    """Returns the index of images, and name → class and name → split, empty if they are unknown."""
    if isinstance(images, str) and images.startswith("data="):
        index = Builder(compose_network([images, *options])).index()
        names = _names(index)
        pairs = (map(str, index.labels.tolist()), index.roles.tolist())
        labels, splits = (dict(zip(names, values, strict=True)) for values in pairs)
        return index, labels, splits
    labels = {}
    if isinstance(images, str | Path) or isinstance(next(iter(images), ""), str | Path):
        images, labels = list_images(images)
    rows, roles = np.arange(len(images)), np.full(len(images), "test")
    return ImageIndex("images", images, rows, roles, apply_orientation=True), labels, {}


def _names(index: ImageIndex) -> list[str]:
    """Returns the paths of the images, or row numbers of images without files."""
    return [str(image) for image in (index.files or range(len(index.images)))]
