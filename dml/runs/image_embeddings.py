"""Embeddings of any images by a network, and the search in them: `dml.embed` and `dml.search`."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from PIL import ImageColor
from torch import Tensor

from dml.config.schema import Config
from dml.config.stored_network import locate_network, parse_network
from dml.core.atomic_io import output_folder
from dml.core.errors import UserError, first_line
from dml.core.missing_paths import describe_missing
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.outputs import check_output
from dml.core.progress import show_progress, show_task
from dml.core.regular_files import is_shell_pipe
from dml.core.row_store import open_store, open_store_folder, remove_store_folder
from dml.data.decode import BACKGROUND as DEFAULT_BACKGROUND
from dml.data.decode import map_in_threads
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex, Subset, describe_images, file_of
from dml.data.image_names import take_images, texts_of
from dml.data.loaders import resolve_eval_batch_size
from dml.data.preparation.image_check import count_transparent, find_undecodable
from dml.data.readers.folder import list_images
from dml.data.readers.image_tree import walk_images
from dml.data.samplers import augmentation_seeds
from dml.data.thumbnails import make_thumbnail
from dml.data.transforms import Views
from dml.models.embedder import Embedder, hash_weights
from dml.retrieval import embedding_file
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.retrieval.file_index import move_index
from dml.retrieval.viewer_columns import (
    ViewerColumns,
    find_neighbors,
    has_viewer_columns,
    score_labels,
)
from dml.runs.appended_images import (
    FileStates,
    Merge,
    check_appendable,
    check_known,
    check_labels,
    check_spelling,
    join_rows,
    merge_rows,
    read_states,
)
from dml.runs.build import Builder
from dml.runs.compressed_rows import (
    COMPRESS,
    check_form,
    check_size,
    compress_rows,
    encode_rows,
)
from dml.runs.figures.run_figures import draw_search_results
from dml.runs.load import compose_network, open_network
from dml.runs.model import Model
from dml.runs.network_options import check_options
from dml.runs.resource_errors import translate_resource_errors
from dml.training.device import autocast, resolve_device, set_precision
from dml.training.process_state import restored_process_state

log = logging.getLogger(__name__)
BACKGROUND = "data.background="  # an option; without it the network's own holds
MAX_PIXELS = "data.max_pixels="  # never that of a run, which may be of somebody else
MOST_IMAGES, MOST_VIEWS = 1_000_000, 10_000  # of a batch, of an image: far above any use
MOST_THUMBNAIL = 1024  # pixels of a side


@restored_process_state()
def embed(
    network: str | Path,
    images: str | Path | Sequence[Any] | np.ndarray,
    output: str | Path | None = None,
    *,
    repeat: int | None = None,
    fold: int | None = None,
    features: bool = False,
    views: int = 0,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int | None = None,
    options: Sequence[str] = (),
    overwrite: bool = False,
    trust: bool = False,
    skip_corrupt: bool = False,
    thumbnails: int = 0,
    append: bool = False,
    compress: str | None = None,
) -> ImageEmbeddings:
    """Embeds images in batches, as `dml evaluate` does; memory does not depend on their number.

    The same call continues one that was interrupted, and its result is the same bit for bit.

    Args:
        network: see `dml.load`.
        images: a folder, a list of paths in a file (see `readers.folder.list_images`) or in
            Python, uint8 pixels N×H×W×3, images (see `ImageIndex.images`), or a dataset
            (`data=cub`), with its splits. Files of a user are rotated upright by their EXIF
            orientation.
        output: a file that ends in `.npz` or `.parquet`; None: a temporary one.
        repeat, fold: see `dml.load`.
        features: the pooled features of the backbone instead of embeddings.
        views: augmentations of each image that are embedded too, as the network was trained.
        dtype: of the file; `float16` has half the size and about three digits.
        batch_size: images per batch; None: by device and image size.
        options: of `dml evaluate`, for a network of timm and for a dataset:
            `["backbone.input_size=64", "data.root=data"]`.
        overwrite: replace any file; by default only one of the same network and images.
        trust: see `dml.load`.
        skip_corrupt: leave out images that cannot be decoded, which are listed; every image is
            decoded before.
        thumbnails: pixels of the longer side of JPEGs that a `.parquet` file carries, with the ten
            nearest neighbors of each image, for viewers of such files
            (`dml.retrieval.viewer_columns`); 0: none.
        append: keep the rows of `output` whose image has not changed, embed new and changed images,
            and drop rows of images that `images` (a folder, a list in a file, or an image) no
            longer has; rows of other folders and lists stay. Without such a file it is made. All
            rows are in memory while it is written.
        compress: form in which embeddings are stored (`dml.core.compression_forms`), such as
            `int8` or `pca128+binary`; fitted on the images of the split train of a dataset, else on
            all images, and by `append` as in the file. The result holds the decoded vectors.

    Raises:
        UserError: network or images cannot be read, an image cannot be decoded, the form does not
            fit the embeddings, or the file cannot be written.
        ConfigError: options without effect.
    """
    check_options(network, images, options)
    request = _Request(
        str(network),
        images,
        repeat,
        fold,
        features,
        views,
        dtype,
        batch_size,
        options,
        trust,
        skip_corrupt,
        compress,
    )
    with _advise_to_skip():
        return _embed(request, output, overwrite, thumbnails, append)


@dataclass(frozen=True)
class _Request:
    """What is embedded and by which model: see the arguments of `embed`."""

    network: str
    images: str | Path | Sequence[Any] | np.ndarray
    repeat: int | None = None
    fold: int | None = None
    features: bool = False
    views: int = 0
    dtype: str = "float32"
    batch_size: int | None = None
    options: Sequence[str] = ()
    trust: bool = False
    skip_corrupt: bool = False
    compress: str | None = None

    def check(self) -> None:
        """Raises UserError if a number is out of its range, or a form has no effect or is none."""
        if self.batch_size is not None and not 1 <= self.batch_size <= MOST_IMAGES:
            raise UserError(f"batch_size: {self.batch_size} is not between 1 and {MOST_IMAGES:,}")
        if not 0 <= self.views <= MOST_VIEWS:
            raise UserError(f"views: {self.views} is not between 0 and {MOST_VIEWS:,}")
        if self.compress is not None:
            check_form(self.compress, self.views, self.dtype)


@dataclass(frozen=True)
class _Images:
    """The index of images, their classes and their splits; None: not known."""

    index: ImageIndex
    labels: np.ndarray | None
    splits: np.ndarray | None


def _embed(
    request: _Request,
    output: str | Path | None = None,
    overwrite: bool = False,
    thumbnails: int = 0,
    append: bool = False,
) -> ImageEmbeddings:
    """See `embed`; the options of a request may be those that a file of embeddings holds."""
    request.check()
    _check_thumbnails(thumbnails, output, request.compress)
    with ExitStack() as stack:
        if output is None:
            if append:
                raise UserError("append: there is no file to append to; give output")
            output = Path(stack.enter_context(TemporaryDirectory()), "embeddings.npz")
        path = Path(output)
        embedding_file.check_format(path)
        if append:
            _check_append(request, path, overwrite, thumbnails)
        if append and path.exists():
            return _append(request, path)
        return _embed_all(request, path, overwrite, thumbnails)


def _embed_all(request: _Request, path: Path, overwrite: bool, thumbnails: int) -> ImageEmbeddings:
    """Embeds all images into a file."""
    images = _read_images(request.images, request.options)
    if images.index.features is not None:
        raise UserError(f"images: {request.images} are stored features; give the images themselves")
    options = _network_options(request, images)
    network = None
    if request.skip_corrupt:
        network = _open_network(request, options)  # before all images are decoded
        images = _leave_out_undecodable(images)
    origin = _describe_origin(request, images.index)
    ours = partial(_is_of, origin, request.network, _names(images.index))
    check_output(path, "output", (), ours, overwrite, hint=_advise_replacing(request, path))
    if network is None:
        network = _open_network(request, options)
    model = _make_model(network, options, images.index)
    if request.compress is not None:
        width = None if request.features else model.embedder.embedding_size
        check_size(request.compress, width, len(model.index.images))
    for note in describe_images(model.index, scored=False):
        log.warning("note: %s", note)
    made_by = _describe(request, options, model, origin)
    states = _read_states(request, model.index)
    _advise_to_append(request, path, made_by, model.index)
    output_folder(path.parent)
    folder = _unfinished_folder(path)
    with translate_resource_errors(), open_store_folder(folder):
        rows = _embed_rows(model, made_by, folder)
        views = rows[:, 1:] if request.views else None
        vectors, compression = rows[:, 0], None
        if request.compress is not None:
            vectors, compression = compress_rows(request.compress, vectors, images.splits)
            made_by = {**made_by, COMPRESS: request.compress}
        embeddings = ImageEmbeddings(
            vectors,
            _names(model.index),
            images.labels,
            made_by,
            views,
            images.splits,
            **states,
            compression=compression,
        )
        viewer = _make_viewer(embeddings, model.index, thumbnails) if thumbnails else None
        embedding_file.write_embeddings(path, embeddings, viewer)
    remove_store_folder(folder)
    return embedding_file.open_embeddings(path)


def _advise_replacing(request: _Request, path: Path) -> str:
    """Returns the options for an output that exists: `--append` too, where it may take images."""
    stored = _read_appendable(request, path)
    if stored is None or stored.made_by.get("network") != request.network:
        return "--overwrite"
    return "--append, which keeps its rows and adds these images, or --overwrite"


def _advise_to_append(
    request: _Request, path: Path, made_by: dict[str, Any], index: ImageIndex
) -> None:
    """Prints a note where a file that is replaced has rows of some of the images already."""
    stored = _read_appendable(request, path)
    if stored is None:
        return
    known = int(np.isin(_names(index), stored.paths).sum())
    new = len(index.images) - known
    if not known or not new:
        return
    try:
        check_appendable(stored, made_by, path)
    except UserError:
        return
    log.warning(
        "note: %s has rows of %s of these images; --append embeds the other %s alone",
        path,
        f"{known:,}",
        f"{new:,}",
    )


def _read_appendable(request: _Request, path: Path) -> ImageEmbeddings | None:
    """Returns a file to which images of a request may be appended; None: there is none."""
    if not path.is_file() or not _is_listed(request.images):
        return None
    try:
        stored = embedding_file.open_embeddings(path, decoded=False)
        check_known(stored, path)
    except UserError:
        return None
    return None if has_viewer_columns(path) else stored


def _check_thumbnails(side: int, output: str | Path | None, compress: str | None) -> None:
    """Raises UserError if thumbnails have no file that takes them, or a side out of its range."""
    if not side:
        return
    if compress is not None:
        raise UserError(
            "compress: viewers of a file with thumbnails read plain embeddings; leave one of "
            "--compress and --thumbnails out"
        )
    if not 1 <= side <= MOST_THUMBNAIL:
        raise UserError(f"thumbnails: {side} is not between 1 and {MOST_THUMBNAIL}")
    if output is None or Path(output).suffix != embedding_file.PARQUET:
        raise UserError(
            f"thumbnails: a {embedding_file.PARQUET} file carries them; choose such an output"
        )


def _make_viewer(embeddings: ImageEmbeddings, index: ImageIndex, side: int) -> ViewerColumns:
    """Returns the columns for viewers; those of neighbors are left out where there are none."""
    source = ImageSource.of(index)

    def thumbnail(row: int) -> bytes:
        return make_thumbnail(source[row], side)

    def thumbnails(rows: range) -> list[bytes]:
        return list(map_in_threads(thumbnail, rows))

    neighbors, scores = None, None
    with show_task("searching neighbors"):
        try:
            neighbors = find_neighbors(embeddings.embeddings)
        except ValueError as error:
            log.warning("note: the file has no neighbors: %s", first_line(error))
    if neighbors is not None and embeddings.labels is not None:
        scores = score_labels(embeddings.labels, neighbors.rows[:, 0])
    return ViewerColumns(list(embeddings.paths), thumbnails, neighbors, scores)


def _read_states(request: _Request, index: ImageIndex) -> dict[str, np.ndarray]:
    """Returns the columns of a file that tell of the images' files; none for other images."""
    if index.files is None or not _is_listed(request.images):
        return {}
    states = read_states(index.files, os.path.realpath(str(request.images)))
    return {"roots": states.roots, "file_sizes": states.sizes, "file_times": states.times}


def _is_listed(images: Any) -> bool:
    """Returns whether images are a folder, a list in a file, or an image: a root to list again."""
    is_path = isinstance(images, str | Path) and not str(images).startswith("data=")
    return is_path and not is_shell_pipe(images)


def _check_append(request: _Request, path: Path, overwrite: bool, thumbnails: int) -> None:
    """Raises UserError if images, options or the file are not for appending."""
    if thumbnails or has_viewer_columns(path):
        raise UserError(
            "append: thumbnails and neighbors are those of all images; embed all of them again, "
            "with --overwrite"
        )
    if overwrite:
        raise UserError("append: --overwrite replaces the file; leave one of them out")
    if not _is_listed(request.images):
        raise UserError(
            "append: images must be a folder, a CSV or text file of paths, or an image, to which "
            "the file's rows can be compared again"
        )


def _append(request: _Request, path: Path) -> ImageEmbeddings:
    """Embeds what is new or has changed, and writes it with the other rows of a file."""
    old = embedding_file.open_embeddings(path, "append", decoded=False)
    check_known(old, path)
    source = Path(str(request.images))
    root = os.path.realpath(source)
    check_spelling(old, source, root)
    images = _list_again(request, old, root)
    if images is not None and request.skip_corrupt:
        images = _leave_out_undecodable(images)
    names, files, labels = np.empty(0, str), [], None
    if images is not None:
        names, labels = _names(images.index), images.labels
        files = list(images.index.files or ())
    states = read_states(files, root)
    merge = merge_rows(old, names.tolist(), states, root)
    if not len(merge.old_rows):
        raise UserError(f"append: no image is left in {source}; {path} stays as it is")
    check_labels(old, labels, merge)
    with translate_resource_errors():
        folder = _unfinished_folder(path)
        with open_store_folder(folder):
            rows, made_by = None, old.made_by
            if images is not None:
                rows, made_by = _embed_changes(request, old, images, merge, states, path)
            made = join_rows(old, merge, rows, names, labels, states, made_by)
            index_changes = old.embeddings, merge.old_rows
            embedding_file.write_embeddings(path, made)
        remove_store_folder(folder)
    log.warning(
        "append: %s added, %s embedded again, %s dropped, %s kept",
        f"{merge.added:,}",
        f"{merge.changed:,}",
        f"{merge.dropped:,}",
        f"{int((merge.old_rows >= 0).sum()):,}",
    )
    written = embedding_file.open_embeddings(path, decoded=False)
    move_index(path, *index_changes, written.embeddings)
    return embedding_file.open_embeddings(path) if written.has_codes else written


def _embed_changes(
    request: _Request,
    old: ImageEmbeddings,
    images: _Images,
    merge: Merge,
    states: FileStates,
    path: Path,
) -> tuple[np.ndarray | None, dict[str, Any]]:
    """Embeds the images that a file lacks, or that have changed.

    Args:
        old: the file.
        images: all that are listed now.
        merge: how both are merged.
        states: of the files of `images`.
        path: of the file.

    Returns:
        Embeddings N×1×D, or N×1×M codes if the file is compressed; None if nothing has changed.
        And what all rows depend on.

    Raises:
        UserError: the rows of the file were made by another network, or with other options.
    """
    embedded = merge.embedded
    changed = replace(
        images.index,
        images=take_images(images.index.images, embedded),
        labels=images.index.labels[embedded],
        roles=images.index.roles[embedded],
    )
    options = _network_options(request, images)
    network = _open_network(request, options)
    model = _make_model(network, options, changed)
    origin = _describe_origin(request, images.index)
    made_by = _describe(request, options, model, origin)
    compressed = {} if request.compress is None else {COMPRESS: request.compress}
    check_appendable(old, made_by | compressed, path)
    if not len(embedded):
        return None, made_by | compressed
    content = states.sizes[embedded].tolist(), states.times[embedded].tolist()
    positions = np.flatnonzero(merge.old_rows < 0)
    rows = _embed_rows(model, made_by, _unfinished_folder(path), content, positions)
    if old.compression is not None:
        rows = encode_rows(old.compression, rows[:, 0])[:, None]
    return rows, made_by | compressed


def _unfinished_folder(path: Path) -> Path:
    """Returns the folder of the rows of a file that an interrupted call has embedded."""
    return path.with_name(f".{path.name}.partial")


def _list_again(request: _Request, old: ImageEmbeddings, root: str) -> _Images | None:
    """Returns the images of a root; None for a folder that is empty now, of which there are rows.

    Raises:
        UserError: the root cannot be read, or has no image and never had one.
    """
    try:
        return _read_images(request.images, request.options)
    except UserError:
        had_rows = old.roots is not None and bool((old.roots == root).any())
        is_empty = os.path.isdir(root) and not walk_images(Path(root))[0]
        if had_rows and is_empty:
            return None
        raise


@contextmanager
def _advise_to_skip() -> Iterator[None]:
    """Adds the option that leaves out damaged images to the error of the first."""
    try:
        yield
    except UserError as error:
        if "cannot decode" not in str(error):
            raise
        raise UserError(
            f"{error}; --skip-corrupt leaves out such images, and lists them"
        ) from error


def _leave_out_undecodable(images: _Images) -> _Images:
    """Returns the images that can be decoded; a warning for each of the others.

    Raises:
        UserError: none can be decoded.
    """
    index = images.index
    problems = find_undecodable(index.files or (), index.max_pixels)
    for problem in problems.values():
        log.warning("left out: %s", problem)
    kept = [row for row in range(len(index.images)) if row not in problems]
    if not kept:
        raise UserError("images: none can be decoded")
    if problems:
        log.warning("images: %d of %d are left out", len(problems), len(index.images))
    rest = replace(
        index,
        images=take_images(index.images, np.array(kept)),
        labels=index.labels[kept],
        roles=index.roles[kept],
    )
    labels = None if images.labels is None else images.labels[kept]
    splits = None if images.splits is None else images.splits[kept]
    return _Images(rest, labels, splits) if problems else images


def _network_options(request: _Request, images: _Images) -> list[str]:
    """Returns the options of a request, with the dataset that the network is composed for."""
    options = list(request.options)
    if images.splits is not None:
        return [str(request.images), *options]
    if any(option.startswith("data=") for option in options):
        return options
    return ["data=folder", *options]


def _open_network(request: _Request, options: Sequence[str]) -> tuple[Config, Embedder]:
    """Returns the network of a request, with its config."""
    return open_network(request.network, request.repeat, request.fold, options, request.trust)


def _make_model(
    network: tuple[Config, Embedder], options: Sequence[str], index: ImageIndex
) -> Model:
    """Returns a network on its device, for images with the background of its training."""
    device = resolve_device("auto")
    config, embedder = network
    config = config.on_device(device.type == "cuda")
    if not any(option.startswith(BACKGROUND) for option in options):
        index = replace(index, background=config.data.background)  # as in training
    set_precision(config.precision, device)
    return Model(Builder(config), embedder.to(device), count_transparent(index), device)


def _describe(
    request: _Request, options: Sequence[str], model: Model, origin: str
) -> dict[str, Any]:
    """Returns what the file says of its making, on which its embeddings depend."""
    # As for large images: between the small ones of a longer batch, decoded ones leave holes.
    pixels = max(224, model.pixels or 0)
    return {
        "network": request.network,
        "repeat": request.repeat,
        "fold": request.fold,
        "weights": hash_weights(model.embedder),
        "options": options,
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


def _embed_rows(
    model: Model,
    made_by: dict[str, Any],
    folder: Path,
    content: Any = None,
    positions: np.ndarray | None = None,
) -> np.ndarray:
    """Embeds the images of a model batch by batch into a file of `folder`.

    Complete batches of an interrupted call with the same `made_by` are kept.

    Args:
        model: with the images.
        made_by: what the embeddings depend on.
        folder: of the file.
        content: of the images, by which an interrupted call is known, in addition to `made_by`.
        positions: numbers of the images, which seed their views; None: 0, 1, ….

    Returns:
        Embeddings N×(1 + views)×D of the file, which is mapped.
    """
    index, views, size = model.index, made_by["views"], made_by["batch_size"]
    dtype = np.dtype(made_by["dtype"])
    transform = model.transforms.test
    if views:
        transform = Views(transform, model.transforms.train, views)

    def forward(inputs: Tensor) -> Tensor:
        pooled = model.embedder.pool(model.embedder.features(inputs))
        return pooled.float() if made_by["features"] else model.embedder.project(pooled)

    state = [made_by, model.config.transform.model_dump(mode="json"), index.fingerprint()]
    if content is not None:
        state.append(content)
    store = folder / hashlib.sha256(json.dumps(state).encode()).hexdigest()
    side = model.pixels or 64
    with torch.inference_mode(), autocast(model.config.precision, model.device):
        width = forward(torch.zeros(1, 3, side, side, device=model.device)).shape[1]
        bytes_per_row = (1 + views) * width * dtype.itemsize
        with open_store(store) as file:
            done = file.tell() // (bytes_per_row * size) * size
            file.truncate(done * bytes_per_row)
            rest = Subset(index, np.arange(done, len(index.images)))
            keys: Sequence[Any] = range(len(rest))
            if views:
                numbers = np.arange(len(index.images)) if positions is None else positions
                every = augmentation_seeds(0, 0, int(numbers[-1]) + 1)
                seeds = [every[number] for number in numbers[done:]]
                keys = list(enumerate(seeds))
            loading = model.loading_with("auto")
            batches = loading.batches(rest, transform, sampler=keys, batch_size=size)
            for inputs, _ in show_progress(batches, "embedding batch", len(batches)):
                parts = inputs.unbind(1) if views else [inputs]
                embedded = torch.stack([forward(part) for part in parts], 1)
                file.write(embedded.cpu().numpy().astype(dtype).tobytes())
                file.flush()
            return np.memmap(file, dtype, "r", shape=(len(index.images), 1 + views, width))


def _names(index: ImageIndex) -> np.ndarray:
    """Returns the paths of images, or their numbers where they are no files."""
    if index.files is None:
        return np.array([*map(str, range(len(index.images)))])
    return np.array([*texts_of(index.files)])


def _describe_origin(request: _Request, index: ImageIndex) -> str:
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


def _is_of(origin: str, network: str, names: np.ndarray, path: Path) -> bool:
    """Returns whether a file holds embeddings of an origin.

    A file of an earlier version tells no origin: network and names of the images are compared.
    """
    try:
        stored = embedding_file.open_embeddings(path, decoded=False)
    except UserError:
        return False
    made_by = stored.made_by if isinstance(stored.made_by, dict) else {}
    if "origin" in made_by:
        return bool(made_by["origin"] == origin)
    return made_by.get("network") == network and np.array_equal(stored.paths, names)


def _read_images(
    images: str | Path | Sequence[Any] | np.ndarray, options: Sequence[str]
) -> _Images:
    if isinstance(images, str) and images.startswith("data="):
        index = Builder(compose_network([images, *options])).index()
        return _Images(index, index.labels.astype(str), index.roles.astype(str))
    labels = None
    if isinstance(images, str | Path) or isinstance(next(iter(images), ""), str | Path):
        images, classes = list_images(images)
        if classes:
            labels = np.array([classes[str(image)] for image in images])
    rows, roles = np.arange(len(images)), np.full(len(images), "test")
    index = ImageIndex("images", images, rows, roles, apply_orientation=True)
    chosen = [option for option in options if option.startswith((BACKGROUND, MAX_PIXELS))]
    if chosen:
        data = compose_network(["data=folder", *chosen]).data
        index = replace(index, background=data.background, max_pixels=data.max_pixels)
    return _Images(index, labels, None)


def find_background(made_by: dict[str, Any]) -> str:
    """Returns the color below transparent images of a file; the default for what is no color."""
    color = made_by.get("background")
    with suppress(ValueError):
        if isinstance(color, str) and len(ImageColor.getrgb(color)) == 3:
            return color
    return DEFAULT_BACKGROUND


@restored_process_state()
def embed_queries(
    queries: Sequence[str],
    stored: ImageEmbeddings,
    path: str | Path,
    trust: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> np.ndarray:
    """Embeds images that are not in a file by the network that the file names.

    Args:
        queries: the images.
        stored: content of the file.
        path: of the file.
        trust, max_pixels: see `dml.search`.

    Raises:
        UserError: the network is missing or has changed, or an image cannot be read.
    """
    _check_queries(queries)
    made_by = stored.made_by
    if not made_by.get("network"):
        raise UserError("query: the file does not say which network made it; take images of it")
    source = "the file of embeddings"
    network = parse_network(made_by["network"], made_by.get("options", []), source, trust)
    model = made_by.get("repeat"), made_by.get("fold")
    if not all(number is None or isinstance(number, int) for number in model):
        raise UserError(f"network: {source} names no model by its repeat and fold")
    request = _Request(
        locate_network(network.name, path),
        queries,
        *model,
        features=bool(made_by.get("features")),
        options=[*network.options, f"{MAX_PIXELS}{max_pixels}"],
        trust=trust,
    )
    embedded = _embed(request)
    if embedded.made_by["weights"] != made_by.get("weights"):
        raise UserError(f"network: {made_by['network']} has changed since it made the file")
    return embedded.embeddings


def _check_queries(queries: Sequence[str]) -> None:
    """Raises UserError for a query that is a folder, or does not exist."""
    for query in queries:
        file = file_of(query)
        if os.path.isdir(file):
            raise UserError(f"query: {query} is a folder; name images, such as {file}/*")
        if not os.path.lexists(file):
            problem = describe_missing(file, "give an image, or the number of a row")
            raise UserError(f"query: {problem}")


@restored_process_state()
def draw_neighbors(
    names: Sequence[str],
    table: pd.DataFrame,
    path: Path,
    made_by: dict[str, Any],
    origin: str,
    max_pixels: int,
) -> None:
    """Draws queries and their neighbors.

    Args:
        names: files of the queries.
        table: of `dml.search`, with a column `matches`.
        path: of the PNG.
        made_by: of the file of embeddings.
        origin: of the picture, see `check_picture`.
        max_pixels: see `dml.search`.
    """
    draw_search_results(names, table, path, find_background(made_by), origin, max_pixels)
