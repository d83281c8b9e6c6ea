"""Embeddings of any images by a network: `dml.embed`, and the file that it writes.

Arrays of the `.npz` file: `embeddings` N×D, `paths` N, `labels` N (names of classes, if they are
known) and `made_by`, a JSON text with the network and the settings.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dml.config.schema import check_device
from dml.core.atomic_io import output_folder, read_json, replace_file, write_json
from dml.core.errors import UserError, first_line
from dml.core.locks import try_lock
from dml.core.progress import open_display, show_progress
from dml.data.fingerprint import hash_listing
from dml.data.folder import list_images
from dml.data.image_check import exclude_undecodable
from dml.data.image_index import ImageIndex, Subset
from dml.data.loaders import (
    Batches,
    LoaderOptions,
    eval_batches,
    resolve_eval_batch_size,
    resolve_workers,
)
from dml.models.embedder import Embedder
from dml.runs.build import Builder
from dml.runs.console import console
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
        hint = "; --skip-corrupt (skip_corrupt=True) leaves it out"
        if output is None:
            hint = ""
            output = Path(stack.enter_context(TemporaryDirectory()), "embeddings.npz")
        path = _check_output(Path(output))
        index, labels = _list(images)
        try:
            place = resolve_device(check_device(device))
        except ValueError as error:
            raise UserError(f"device: {device} {error}") from error
        config, embedder = open_network(network, repeat, fold)
        config = config.on_device(place.type == "cuda")
        pixels = config.transform.size or embedder.input.size
        size = resolve_eval_batch_size(batch_size, pixels, place)
        made_by = {
            "network": str(network),
            "repeat": repeat,
            "fold": fold,
            "backbone": config.backbone.get("name"),
            "weights": _digest(embedder),
            "features": features,
            "transform": config.transform.model_dump(mode="json"),
            "precision": config.precision,
            "dtype": dtype,
            "batch_size": size,
            "device": place.type,
        }
        transforms = Builder(config).transforms(embedder)
        workers = resolve_workers("auto", index, place)
        loading = LoaderOptions(transforms.to_input, place, workers)
        embedder.to(place)

        def load(start: int) -> Batches:
            rest = Subset(index, np.arange(start, len(index.images)))
            return eval_batches(rest, transforms.test, loading, size)

        def forward(images: Tensor) -> Tensor:
            return embedder.pool(embedder.features(images)) if features else embedder(images)

        set_precision(config.precision, place)
        stack.enter_context(open_display(console))
        folder = path.with_name(f".{path.name}.partial")
        with try_lock(folder / "run.lock"):
            if skip_corrupt:
                index = exclude_undecodable(index, True, folder)
            if not len(index.images):
                raise UserError("images: there is none")
            state = {**made_by, "images": _digest_images(index)}
            try:
                with translate_resource_errors(), autocast(config.precision, place):
                    width = _append_rows(folder, forward, load, state)
            except UserError as error:
                damaged = "cannot decode" in str(error)
                raise UserError(f"{error}{hint * damaged}") from None
            in_memory = isinstance(index.images, np.ndarray)
            names = [str(i) for i in (range(len(index.images)) if in_memory else index.images)]
            arrays: dict[str, Any] = {
                "embeddings": np.memmap(folder / "rows", dtype, "r", shape=(len(names), width)),
                "paths": np.array(names),
                "made_by": np.array(json.dumps(made_by)),
            }
            if labels:
                arrays["labels"] = np.array([labels[name] for name in names])
            with replace_file(path) as temporary, open(temporary, "wb") as file:
                np.savez(file, **arrays)
        shutil.rmtree(folder)
        return open_embeddings(path)


def _check_output(path: Path) -> Path:
    if path.suffix != ".npz" or path.is_dir():
        raise UserError(f"output: {path} must be a file that ends in .npz")
    output_folder(path.parent)
    return path


def _list(
    images: str | Path | Sequence[str | Path] | np.ndarray,
) -> tuple[ImageIndex, dict[str, str]]:
    """Returns the index of the images, and path → name of the class of those that have one."""
    labels: dict[str, str] = {}
    if isinstance(images, (str, Path)):
        files, names = list_images(images)
        labels = dict(zip(map(str, files), names or (), strict=False))
    elif not isinstance(images, np.ndarray):
        files = [Path(file) for file in images]
    listed = images if isinstance(images, np.ndarray) else files
    count = len(listed)
    roles = np.full(count, "test")
    return ImageIndex("images", listed, np.arange(count), roles, apply_orientation=True), labels


def _digest(embedder: Embedder) -> str:
    """Returns 16 hex digits of the weights."""
    digest = hashlib.sha256()
    for name, value in embedder.state_dict().items():
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _digest_images(index: ImageIndex) -> str:
    if isinstance(index.images, np.ndarray):
        return hashlib.sha256(index.images.tobytes()).hexdigest()[:16]
    return hash_listing(index.images)


@torch.inference_mode()
def _append_rows(
    folder: Path,
    forward: Callable[[Tensor], Tensor],
    load: Callable[[int], Batches],
    state: dict[str, Any],
) -> int:
    """Appends the embeddings that are missing in the file `rows` of a folder; returns their width.

    Args:
        folder: of `rows`, and of the settings that its rows were made with.
        forward: images of a batch → embeddings.
        load: number of the first image → batches from there.
        state: the settings; rows that were made with others are replaced.
    """
    rows, settings = folder / "rows", folder / "settings.json"
    stored, size = read_json(settings) or {}, np.dtype(state["dtype"]).itemsize
    width, done, batch_size = stored.pop("width", 0), 0, state["batch_size"]
    if stored == state and rows.exists():
        done = rows.stat().st_size // (width * size * batch_size) * batch_size
    else:
        settings.unlink(missing_ok=True)  # before its rows
        width = 0
    batches = load(done)
    with open(rows, "ab") as file:
        file.truncate(done * width * size)
        for images, _ in show_progress(batches, "embedding batch", len(batches)):
            values = forward(images).float().cpu().numpy().astype(state["dtype"])
            if not np.isfinite(values).all():
                raise UserError(f"{state['network']}: its embeddings are not finite")
            if not width:
                width = values.shape[1]
                write_json(settings, {**state, "width": width})
            file.write(values.tobytes())
            file.flush()
    return width


def open_embeddings(path: str | Path) -> ImageEmbeddings:
    """Opens a file of `embed`, of `evaluate.py save=`, or of other software with `embeddings`.

    Raises:
        UserError: the file cannot be read, or its arrays do not fit together.
    """
    try:
        embeddings = _map_array(Path(path), "embeddings.npy")
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


def _map_array(path: Path, name: str) -> np.ndarray:
    """Returns an array of an `.npz` file, left on the disk unless it is compressed."""
    with zipfile.ZipFile(path) as archive, archive.open(name) as member:
        info = archive.getinfo(name)
        version = np.lib.format.read_magic(member)
        if info.compress_type != zipfile.ZIP_STORED or version != (1, 0):
            return np.load(path, allow_pickle=False)[name.removesuffix(".npy")]
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
        header = member.tell()
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)  # the lengths of two fields of the local header
        lengths = np.frombuffer(file.read(4), dtype="<u2").sum()
    start = info.header_offset + 30 + int(lengths) + header
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.memmap(path, dtype, "c", start, shape, order)
