"""The images of a request, with what is known of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.core.regular_files import is_shell_pipe
from dml.data.image_index import ImageIndex
from dml.data.image_names import take_images, texts_of
from dml.data.preparation.image_check import find_undecodable
from dml.data.readers.folder import list_images
from dml.data.readers.image_tree import walk_images
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.runs.build import Builder
from dml.runs.embed_images.request import Request
from dml.runs.load import compose_network

log = logging.getLogger(__name__)
BACKGROUND = "data.background="  # an option; without it the network's own holds
MAX_PIXELS = "data.max_pixels="  # never that of a run, which may be of somebody else


@dataclass(frozen=True)
class Images:
    """The index of images, their classes and their splits; None: not known."""

    index: ImageIndex
    labels: np.ndarray | None
    splits: np.ndarray | None


def read_images(images: str | Path | Sequence[Any] | np.ndarray, options: Sequence[str]) -> Images:
    """Returns the images of `dml.embed`, as its argument `images` says.

    Raises:
        UserError: they cannot be read.
        ConfigError: options of a dataset are wrong.
    """
    if isinstance(images, str) and images.startswith("data="):
        index = Builder(compose_network([images, *options])).index()
        return Images(index, index.labels.astype(str), index.roles.astype(str))
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
    return Images(index, labels, None)


def is_listed(images: Any) -> bool:
    """Returns whether images are a folder, a list in a file, or an image: a root to list again."""
    is_path = isinstance(images, str | Path) and not str(images).startswith("data=")
    return is_path and not is_shell_pipe(images)


def names_of(index: ImageIndex) -> np.ndarray:
    """Returns the paths of images, or their numbers where they are no files."""
    if index.files is None:
        return np.array([*map(str, range(len(index.images)))])
    return np.array([*texts_of(index.files)])


def list_again(request: Request, old: ImageEmbeddings, root: str) -> Images | None:
    """Returns the images of a root; None for a folder that is empty now, of which there are rows.

    Raises:
        UserError: the root cannot be read, or has no image and never had one.
    """
    try:
        return read_images(request.images, request.options)
    except UserError:
        had_rows = old.roots is not None and bool((old.roots == root).any())
        is_empty = os.path.isdir(root) and not walk_images(Path(root))[0]
        if had_rows and is_empty:
            return None
        raise


def leave_out_undecodable(images: Images) -> Images:
    """Returns the images that can be decoded; a warning for each of the others.

    Raises:
        UserError: none can be decoded.
    """
    index = images.index
    problems = find_undecodable(index.files or (), index.max_pixels, index.apply_orientation)
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
    return Images(rest, labels, splits) if problems else images
