"""A file of embeddings to which images are appended."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.core.row_store import hold_store_folder, remove_store_folder
from dml.data.image_names import take_images
from dml.retrieval import embedding_file
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.retrieval.file_index import move_index
from dml.retrieval.viewer_columns import has_viewer_columns
from dml.runs.compressed_rows import COMPRESS, encode_rows
from dml.runs.embed_images.images import (
    Images,
    is_listed,
    leave_out_undecodable,
    list_again,
    names_of,
)
from dml.runs.embed_images.merge import (
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


def check_append(request: Request, path: Path, overwrite: bool, thumbnails: int) -> None:
    """Raises UserError if images, options or the file are not for appending."""
    if thumbnails or has_viewer_columns(path):
        raise UserError(
            "append: thumbnails and neighbors are those of all images; embed all of them again, "
            "with --overwrite"
        )
    if overwrite:
        raise UserError("append: --overwrite replaces the file; leave one of them out")
    if not is_listed(request.images):
        raise UserError(
            "append: images must be a folder, a CSV or text file of paths, or an image, to which "
            "the file's rows can be compared again"
        )


def append_images(request: Request, path: Path) -> ImageEmbeddings:
    """Embeds what is new or has changed, and writes it with the other rows of a file.

    Another call that embeds into this file is refused meanwhile: it would lose these rows.
    """
    folder = unfinished_folder(path)
    with hold_store_folder(folder):
        written = _append(request, path)
    remove_store_folder(folder)
    return embedding_file.open_embeddings(path) if written.has_codes else written


def _append(request: Request, path: Path) -> ImageEmbeddings:
    """Returns the file with what was appended; its folder of rows is held."""
    old = embedding_file.open_embeddings(path, "append", decoded=False)
    check_known(old, path)
    source = Path(str(request.images))
    root = os.path.realpath(source)
    check_spelling(old, source, root)
    images = list_again(request, old, root)
    if images is not None and request.skip_corrupt:
        images = leave_out_undecodable(images)
    names, files, labels = np.empty(0, str), [], None
    if images is not None:
        names, labels = names_of(images.index), images.labels
        files = list(images.index.files or ())
    states = read_states(files, root)
    merge = merge_rows(old, names.tolist(), states, root)
    if not len(merge.old_rows):
        raise UserError(f"append: no image is left in {source}; {path} stays as it is")
    check_labels(old, labels, merge)
    with translate_resource_errors():
        rows, made_by = None, old.made_by
        if images is not None:
            rows, made_by = _embed_changes(request, old, images, merge, states, path)
        made = join_rows(old, merge, rows, names, labels, states, made_by)
        embedding_file.write_embeddings(path, made)
    log.warning(
        "append: %s added, %s embedded again, %s dropped, %s kept",
        f"{merge.added:,}",
        f"{merge.changed:,}",
        f"{merge.dropped:,}",
        f"{int((merge.old_rows >= 0).sum()):,}",
    )
    written = embedding_file.open_embeddings(path, decoded=False)
    move_index(path, old.embeddings, merge.old_rows, written.embeddings)
    return written


def _embed_changes(
    request: Request,
    old: ImageEmbeddings,
    images: Images,
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
    network = open_requested(request, images)
    model = make_model(request, network, changed)
    origin = describe_origin(request, images.index)
    made_by = describe_making(request, images, model, origin)
    compressed = {} if request.compress is None else {COMPRESS: request.compress}
    check_appendable(old, made_by | compressed, path)
    if not len(embedded):
        return None, made_by | compressed
    positions = np.flatnonzero(merge.old_rows < 0)
    rows = embed_rows(model, made_by, unfinished_folder(path), states.content(embedded), positions)
    if old.compression is not None:
        rows = encode_rows(old.compression, rows[:, 0])[:, None]
    return rows, made_by | compressed
