"""Detection and exclusion of images that cannot be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from dml.core.atomic_io import read_json, write_json
from dml.core.errors import UserError
from dml.core.progress import show_progress
from dml.core.signals import raise_on_signals
from dml.data.decode import load_image, map_in_threads
from dml.data.image_index import ImageIndex, hash_listing


def find_undecodable(images: Sequence[Path] | np.ndarray) -> dict[int, str]:
    """Returns row → error message for every image that cannot be decoded."""

    def find_problem(path: Path) -> str | None:
        try:
            load_image(path)
        except UserError as error:
            return str(error)
        return None

    problems = show_progress(map_in_threads(find_problem, images), "decoding image", len(images))
    return {row: problem for row, problem in enumerate(problems) if problem}


def check_images(index: ImageIndex) -> None:
    """Checks that every image can be decoded.

    Raises:
        UserError: an image cannot be decoded; the message has a line per image.
    """
    problems = find_undecodable(index.images)
    if problems:
        count = f"{index.name}: {len(problems)} images are damaged; replace them"
        raise UserError("\n".join([*problems.values(), count]))


def exclude_undecodable(index: ImageIndex, skip: bool, folder: Path) -> ImageIndex:
    """Returns the index without images that cannot be decoded.

    Every image is decoded once; later calls read the result from a file in `folder`, if that is
    writable, until a file of the dataset changes.

    Args:
        index: the dataset.
        skip: exclude these images; False: raise an error.
        folder: the folder of the stored result.

    Raises:
        UserError: an image cannot be decoded and `skip` is False; a line per image.
        KeyboardInterrupt, RunStopped: at a signal while decoding.
    """
    if index.files is None:
        return index
    path = folder / f"checked-{hash_listing(index.files)}.json"
    stored = None
    with suppress(OSError, UserError):
        stored = read_json(path)
    if stored is None:
        with raise_on_signals():
            stored = {str(row): line for row, line in find_undecodable(index.files).items()}
        with suppress(OSError):
            write_json(path, stored)
    if not stored:
        return index
    if not skip:
        advice = (
            f"data: {len(stored)} of {len(index.images)} images of {index.name} cannot be "
            f"decoded; replace them, or set data.skip_corrupt=true to leave them out"
        )
        raise UserError("\n".join([*stored.values(), advice]))
    kept = np.setdiff1d(np.arange(len(index.images)), [int(row) for row in stored])
    return replace(
        index,
        images=[index.images[row] for row in kept],
        labels=np.unique(index.labels[kept], return_inverse=True)[1].astype(np.int64),
        roles=index.roles[kept],
        skipped=len(stored),
    )
