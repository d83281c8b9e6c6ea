"""A new file of embeddings of all images."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.atomic_io import output_folder
from dml.core.errors import UserError, first_line
from dml.core.outputs import check_output
from dml.core.progress import show_task
from dml.core.row_store import hold_store_folder, remove_store_folder
from dml.data.decode import map_in_threads
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex, describe_images
from dml.data.thumbnails import make_thumbnail
from dml.retrieval import embedding_file
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.retrieval.viewer_columns import (
    ViewerColumns,
    find_neighbors,
    has_viewer_columns,
    score_labels,
)
from dml.runs.compressed_rows import COMPRESS, check_size, compress_rows
from dml.runs.embed_images.images import is_listed, leave_out_undecodable, names_of, read_images
from dml.runs.embed_images.merge import FileStates, check_appendable, check_known, read_states
from dml.runs.embed_images.network import (
    describe_making,
    describe_origin,
    make_model,
    open_requested,
)
from dml.runs.embed_images.request import Request
from dml.runs.embed_images.rows import embed_rows, unfinished_folder
from dml.runs.resource_errors import translate_resource_errors

log = logging.getLogger(__name__)


def embed_all(request: Request, path: Path, overwrite: bool, thumbnails: int) -> ImageEmbeddings:
    """Embeds all images into a file."""
    images = read_images(request.images, request.options)
    if images.index.features is not None:
        raise UserError(f"images: {request.images} are stored features; give the images themselves")
    network = None
    if request.skip_corrupt:
        network = open_requested(request, images)  # before all images are decoded
        images = leave_out_undecodable(images)
    origin = describe_origin(request, images.index)
    ours = partial(_is_of, origin, request.network, names_of(images.index))
    check_output(path, "output", (), ours, overwrite, hint=_advise_replacing(request, path))
    if network is None:
        network = open_requested(request, images)
    model = make_model(request, network, images.index)
    if request.compress is not None:
        width = None if request.features else model.embedder.embedding_size
        check_size(request.compress, width, len(model.index.images))
    _print_notes(model.index)
    made_by = describe_making(request, images, model, origin)
    states = _read_states(request, model.index)  # before the images are read
    _advise_to_append(request, path, made_by, model.index)
    output_folder(path.parent)
    folder = unfinished_folder(path)
    with translate_resource_errors(), hold_store_folder(folder):
        content = None if states is None else states.content()
        rows = embed_rows(model, made_by, folder, content)
        views = rows[:, 1:] if request.views else None
        vectors, compression = rows[:, 0], None
        if request.compress is not None:
            vectors, compression = compress_rows(request.compress, vectors, images.splits)
            made_by = {**made_by, COMPRESS: request.compress}
        embeddings = ImageEmbeddings(
            vectors,
            names_of(model.index),
            images.labels,
            made_by,
            views,
            images.splits,
            **_describe_files(request, states),
            compression=compression,
        )
        viewer = _make_viewer(embeddings, model.index, thumbnails) if thumbnails else None
        embedding_file.write_embeddings(path, embeddings, viewer)
    remove_store_folder(folder)
    return embedding_file.open_embeddings(path)


def _print_notes(index: ImageIndex) -> None:
    for note in describe_images(index, scored=False):
        log.warning("note: %s", note)


def _advise_replacing(request: Request, path: Path) -> str:
    """Returns the options for an output that exists: `--append` too, where it may take images."""
    stored = _read_appendable(request, path)
    if stored is None or stored.made_by.get("network") != request.network:
        return "--overwrite"
    return "--append, which keeps its rows and adds these images, or --overwrite"


def _advise_to_append(
    request: Request, path: Path, made_by: dict[str, Any], index: ImageIndex
) -> None:
    """Prints a note where a file that is replaced has rows of some of the images already."""
    stored = _read_appendable(request, path)
    if stored is None:
        return
    known = int(np.isin(names_of(index), stored.paths).sum())
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


def _read_appendable(request: Request, path: Path) -> ImageEmbeddings | None:
    """Returns a file to which images of a request may be appended; None: there is none."""
    if not path.is_file() or not is_listed(request.images):
        return None
    try:
        stored = embedding_file.open_embeddings(path, decoded=False)
        check_known(stored, path)
    except UserError:
        return None
    return None if has_viewer_columns(path) else stored


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


def _read_states(request: Request, index: ImageIndex) -> FileStates | None:
    """Returns the states of the images' files; None for other images."""
    if index.files is None:
        return None
    root = os.path.realpath(str(request.images)) if is_listed(request.images) else ""
    return read_states(index.files, root)


def _describe_files(request: Request, states: FileStates | None) -> dict[str, np.ndarray]:
    """Returns the columns of a file by which images are compared when others are appended."""
    if states is None or not is_listed(request.images):
        return {}
    return {"roots": states.roots, "file_sizes": states.sizes, "file_times": states.times}


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
