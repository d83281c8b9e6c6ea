"""Fingerprints of datasets: 16 hex digits, the same on every machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.data.boxes import split_box

SAMPLE = 100  # images of a lazy sequence whose pixels are read
SIZES = 1000  # files whose size is read; all of SOP takes minutes on a network file system


def fingerprint(
    name: str,
    images: Sequence[Any] | np.ndarray,
    labels: np.ndarray,
    roles: np.ndarray,
    root: Path | None,
) -> str:
    """Returns a hash of a dataset's images, their order, labels and roles.

    The hash of files depends on their paths relative to `root`, so that the dataset may be moved,
    and on the sizes of up to `SIZES` of them, evenly spaced: a cropped or re-encoded copy has
    another fingerprint. The hash of images in memory depends on their pixels, that of a lazy
    sequence on the pixels of up to `SAMPLE` images.

    Args:
        name: id of the dataset.
        images: N paths, an array N×H×W×3, or a sequence of images.
        labels: N integers.
        roles: N strings.
        root: the folder of the dataset; None: the deepest folder that contains all files. Files
            outside of it are hashed by absolute path.

    Raises:
        UserError: a file is missing.
    """
    content: list[object] = [name, roles.tolist(), labels.tolist()]
    if isinstance(images, np.ndarray):
        content += [images.shape, hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()]
    elif len(images) and not isinstance(images[0], Path):
        from dml.data.decode import load_image  # late: loads torch

        sample = (load_image(images[row]).numpy() for row in _spread(len(images), SAMPLE))
        content += [len(images), *(hashlib.sha256(i.tobytes()).hexdigest() for i in sample)]
    else:
        content += [_relative_names(root, images), _sample_sizes(images)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def hash_listing(files: Sequence[Path], *settings: object) -> str:
    """Returns a hash of `settings` and of the paths, sizes and modification times of files.

    Raises:
        UserError: a file is missing.
    """
    stats = [(os.path.abspath(file), _stat(file)) for file in files]
    listing = [(path, status.st_size, status.st_mtime_ns) for path, status in stats]
    return hashlib.sha256(json.dumps([*settings, listing]).encode()).hexdigest()[:16]


def _relative_names(root: Path | None, files: Sequence[Path]) -> list[str]:
    names = [os.fspath(file) for file in files]
    if root is None:
        root = Path(os.path.commonpath([os.path.dirname(name) for name in names] or ["."]))
    top = os.path.join(os.path.abspath(root), "")
    return [os.path.abspath(name).removeprefix(top) for name in names]


def _sample_sizes(files: Sequence[Path]) -> list[int]:
    return [_stat(files[row]).st_size for row in _spread(len(files), SIZES)]


def _spread(count: int, most: int) -> list[int]:
    return np.linspace(0, count - 1, min(most, count)).astype(int).tolist()


def _stat(file: Path) -> os.stat_result:
    try:
        return os.stat(split_box(file)[0])
    except OSError as error:
        raise UserError(f"data: cannot read {file}: {error.strerror}") from error
