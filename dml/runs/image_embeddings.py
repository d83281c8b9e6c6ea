"""Embeddings of any images by a network: `dml.embed`, and the file that it writes.

Arrays of the `.npz` file: `embeddings` N×D, `paths` N, `labels` N (names of classes, if they are
known) and `made_by`, a JSON text with the network and the settings.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dml.config.schema import check_device
from dml.core.atomic_io import output_folder, replace_file
from dml.core.errors import UserError, first_line
from dml.core.locks import try_lock
from dml.core.npz_files import map_array
from dml.core.progress import show_progress
from dml.data import loaders
from dml.data.folder import list_images
from dml.data.image_check import exclude_undecodable
from dml.data.image_index import ImageIndex, Subset
from dml.runs.build import Builder
from dml.runs.job import translate_resource_errors
from dml.runs.load import open_network
from dml.training.device import autocast, resolve_device, set_precision


class ImageEmbeddings(NamedTuple):
    """Embeddings of images.

    Attributes:
        embeddings: N×D; on the disk, of which only the parts that are used are read.
        paths: N; row numbers for images without files.
        labels: N names of classes; None if they are not known.
        made_by: the network and the settings; empty for files of other software.
    """

    embeddings: np.ndarray
    paths: np.ndarray
    labels: np.ndarray | None
    made_by: dict[str, Any]


def embed(
    network: str | Path,
    images: str | Path | Sequence[str | Path] | np.ndarray,
    output: str | Path | None = None,
    *,
    repeat: int | None = None,
    fold: int | None = None,
    features: bool = False,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int | Literal["auto"] = "auto",
    skip_corrupt: bool = False,
    device: str = "auto",
) -> ImageEmbeddings:
    """Embeds images in batches, as `evaluate.py` does, in memory that their number does not change.

    The same call continues one that was interrupted, and its result is the same bit for bit.

    Args:
        network: see `dml.load`.
        images: a folder, a list of paths in a file (see `dml.data.folder.list_images`) or in
            Python, or uint8 pixels N×H×W×3. Files are rotated upright by their EXIF orientation.
        output: the `.npz` file; None: a temporary one.
        repeat, fold: see `dml.load`.
        features: the pooled features of the backbone instead of embeddings.
        dtype: of the file; `float16` has half the size and about three digits.
        batch_size: images per batch; "auto": by device and image size.
        skip_corrupt: leave out images that cannot be decoded; each image is decoded twice.
        device: `auto`, `cpu`, `cuda` or `cuda:<n>`.

    Raises:
        UserError: network or images cannot be read, an image cannot be decoded, the file cannot be
            written, or an embedding is not finite.
    """
    with ExitStack() as stack:
        if output is None:
            output = Path(stack.enter_context(TemporaryDirectory()), "embeddings.npz")
        path, labels = Path(output), dict[str, str]()
        if path.suffix != ".npz" or path.is_dir():
            raise UserError(f"output: {path} must be a file that ends in .npz")
        output_folder(path.parent)
        if not isinstance(images, np.ndarray):
            images, labels = list_images(images)
        rows, roles = np.arange(len(images)), np.full(len(images), "test")
        index = ImageIndex("images", images, rows, roles, apply_orientation=True)
        try:
            place = resolve_device(check_device(device))
        except ValueError as error:
            raise UserError(f"device: {device} {error}") from error
        config, embedder = open_network(network, repeat, fold)
        config = config.on_device(place.type == "cuda")
        pixels = config.transform.size or embedder.input.size
        size = loaders.resolve_eval_batch_size(batch_size, pixels, place)
        weights = hashlib.sha256()
        for name, value in embedder.state_dict().items():
            weights.update(name.encode() + value.numpy().tobytes())
        made_by = {"network": str(network), "repeat": repeat, "fold": fold, "features": features}
        made_by |= {"weights": weights.hexdigest()[:16], "precision": config.precision}
        made_by |= {"dtype": dtype, "batch_size": size, "device": place.type}
        transforms = Builder(config).transforms(embedder)
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
            bytes_per_row = width * np.dtype(dtype).itemsize
            with open(store, "ab") as file:  # complete batches of an interrupted call are kept
                done = file.tell() // (bytes_per_row * size) * size
                file.truncate(done * bytes_per_row)
                rest = Subset(index, np.arange(done, len(index.images)))
                batches = loaders.eval_batches(rest, transforms.test, loading, size)
                try:
                    for inputs, _ in show_progress(batches, "embedding batch", len(batches)):
                        values = forward(inputs).cpu().numpy().astype(dtype)
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
            in_memory = isinstance(index.images, np.ndarray)
            names = [str(i) for i in (range(len(index.images)) if in_memory else index.images)]
            arrays: dict[str, Any] = {
                "embeddings": np.memmap(store, dtype, "r", shape=(len(names), width)),
                "paths": np.array(names),
                "made_by": np.array(json.dumps(made_by)),
            }
            if labels:
                arrays["labels"] = np.array([labels[name] for name in names])
            with replace_file(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, **arrays)
        shutil.rmtree(folder)
        return open_embeddings(path)


def open_embeddings(path: str | Path) -> ImageEmbeddings:
    """Opens a file of `embed`, of `evaluate.py save=`, or of other software with `embeddings`.

    Raises:
        UserError: the file cannot be read, or its arrays do not fit together.
    """
    try:
        embeddings = map_array(Path(path), "embeddings")
        with np.load(path, allow_pickle=False) as file:
            paths = file["paths"] if "paths" in file else np.arange(len(embeddings)).astype(str)
            labels = file["labels"].astype(str) if "labels" in file else None
            made_by = json.loads(str(file["made_by"])) if "made_by" in file else {}
        counts = {len(rows) for rows in (embeddings, paths, labels) if rows is not None}
        if embeddings.ndim != 2 or embeddings.dtype.kind != "f" or len(counts) > 1:
            raise ValueError("embeddings must be a matrix, with a path and a label for each row")
    except Exception as error:  # of many classes, for bytes of any kind
        raise UserError(f"embeddings: {path} cannot be read ({first_line(error)})") from error
    return ImageEmbeddings(embeddings, paths, labels, made_by)
