"""What a dataset is, in 16 hex digits that are the same on every machine that holds it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dml.core.errors import UserError

SIZES = 1000  # files asked for their size; a network file system takes minutes over all of SOP


def fingerprint(
    name: str,
    images: Sequence[Path] | np.ndarray,
    labels: np.ndarray,
    roles: np.ndarray,
    root: Path | None,
) -> str:
    """Hash of all that decides a result: which images, in which order, with which label and role.

    Files count by their path below `root`, so that the dataset may stand anywhere, and by the sizes
    of up to `SIZES` of them, spread evenly: a cropped or re-encoded copy is another dataset though
    its names are the same. Images in memory count by their pixels.

    Args:
        name: id of the dataset.
        images: N paths, or an array N×H×W×3.
        labels: N integers.
        roles: N strings.
        root: what the paths are relative to; None: the deepest folder that holds them all. A file
            elsewhere counts by its absolute path.

    Raises:
        UserError: a file is gone.
    """
    content: list[object] = [name, roles.tolist(), labels.tolist()]
    if isinstance(images, np.ndarray):
        content += [images.shape, hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()]
    else:
        content += [_below(root, images), _some_sizes(images)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _below(root: Path | None, files: Sequence[Path]) -> list[str]:
    names = [os.fspath(file) for file in files]
    if root is None:
        root = Path(os.path.commonpath([os.path.dirname(name) for name in names] or ["."]))
    top = os.path.join(root, "")
    absolute_top = os.path.join(os.path.abspath(root), "")
    return [
        name[len(top) :]
        if name.startswith(top)
        else os.path.abspath(name).removeprefix(absolute_top)
        for name in names
    ]


def _some_sizes(files: Sequence[Path]) -> list[int]:
    chosen = np.linspace(0, len(files) - 1, min(SIZES, len(files))).astype(int)
    try:
        return [os.stat(files[row]).st_size for row in chosen]
    except OSError as error:
        raise UserError(f"data: cannot read {error.filename}: {error.strerror}") from error
