"""MNIST in the files of its authors, for the two-dimensional demonstration of ccp."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from dml.core.errors import UserError
from dml.core.regular_files import read_regular
from dml.data.image_index import ImageIndex

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def read_mnist(folder: str | Path) -> ImageIndex:
    """Returns the 60,000 training digits, 28×28, as RGB; all have the role `train`.

    Args:
        folder: holds `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, as they are or .gz.

    Raises:
        UserError: a file is missing or damaged.
    """
    grey = _read_idx(Path(folder), IMAGES, dimensions=3)
    labels = _read_idx(Path(folder), LABELS, dimensions=1).astype(np.int64)
    if len(grey) != len(labels):
        raise UserError(f"data.root: {folder} holds {len(grey)} images but {len(labels)} labels")
    return ImageIndex(
        name="mnist",
        images=np.repeat(grey[..., None], 3, axis=3),
        labels=labels,
        roles=np.full(len(labels), "train"),
    )


def _read_idx(folder: Path, name: str, dimensions: int) -> np.ndarray:
    """Reads an IDX file: two zero bytes, 8 for uint8, number of dimensions, sizes, data."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            break
    else:
        raise UserError(f"data.root: neither {name} nor {name}.gz is in {folder}")
    try:
        content = read_regular(path)
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError) as error:
        raise UserError(f"data.root: {path} cannot be read: {error}") from error
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start].ljust(4 * dimensions, b"\0"), ">u4").tolist())
    whole = len(content) == start + int(np.prod(shape))
    if content[:4] != bytes((0, 0, 8, dimensions)) or not whole:
        raise UserError(f"data.root: {path} is not a whole IDX file of {dimensions} dimensions")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
