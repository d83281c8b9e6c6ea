"""Search for images that cannot be decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.core.errors import UserError
from dml.core.progress import show_progress
from dml.data.decode import load_image
from dml.data.image_index import ImageIndex
from dml.data.threads import map_in_threads


def find_undecodable(index: ImageIndex) -> list[str]:
    """One line per image of the index that cannot be decoded."""
    if isinstance(index.images, np.ndarray):
        return []

    def problem(path: Path) -> str | None:
        try:
            load_image(path)
        except UserError as error:
            return str(error)
        return None

    problems = show_progress(map_in_threads(problem, index.images), "decoding", len(index.images))
    return [line for line in problems if line]


def check_images(index: ImageIndex) -> None:
    """Decodes every image.

    Raises:
        UserError: with a line per image that cannot be decoded, and their number.
    """
    problems = find_undecodable(index)
    if problems:
        count = f"{index.name}: {len(problems)} images are damaged; get them again"
        raise UserError("\n".join([*problems, count]))
