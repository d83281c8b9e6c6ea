"""Embeddings in a `.npz` file, written by a run or by other software.

Arrays: `embeddings` N×D and `labels` N; for a query–gallery split also `gallery_embeddings` and
`gallery_labels`; `paths` and `gallery_paths` where the images are files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.data.image_index import Subset
from dml.runs.scores.evaluator import Split, SplitEmbeddings


def save_embeddings(path: Path, embeddings: SplitEmbeddings, split: Split, dtype: str) -> None:
    """Writes a split's embeddings.

    Args:
        path: the `.npz` file.
        embeddings: see `Evaluator.embed`.
        split: the same images, for their paths.
        dtype: `float16` (half the size, about three digits) or `float32`.
    """
    arrays = {
        "embeddings": embeddings.query.cpu().numpy().astype(dtype),
        "labels": embeddings.query_labels.cpu().numpy(),
        "paths": _image_paths(split.query),
    }
    if embeddings.gallery is not None and embeddings.gallery_labels is not None and split.gallery:
        arrays["gallery_embeddings"] = embeddings.gallery.cpu().numpy().astype(dtype)
        arrays["gallery_labels"] = embeddings.gallery_labels.cpu().numpy()
        arrays["gallery_paths"] = _image_paths(split.gallery)
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_embeddings(path: str | Path, device: torch.device) -> SplitEmbeddings:
    """Reads embeddings and labels.

    Raises:
        UserError: there is no such file, or arrays are missing or of the wrong shape or type.
    """
    try:
        file = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"embeddings: {path} does not exist") from error
    except IsADirectoryError as error:
        raise UserError(f"embeddings: {path} is a folder; name the .npz file") from error
    except Exception as error:  # of many classes, for bytes of any kind
        raise UserError(f"embeddings: {path} is not a .npz file, or is damaged") from error
    if isinstance(file, np.ndarray):
        raise UserError(
            f"embeddings: {path} holds one array and so no labels; "
            f"numpy.savez(file, embeddings=…, labels=…) writes both"
        )
    with file:
        query = _read_pair(file, "embeddings", "labels", path)
        if "gallery_embeddings" not in file:
            if "gallery_labels" in file:
                raise UserError(
                    f"embeddings: {path} has 'gallery_labels', but no 'gallery_embeddings'"
                )
            return SplitEmbeddings(*(torch.from_numpy(part).to(device) for part in query))
        gallery = _read_pair(file, "gallery_embeddings", "gallery_labels", path)
    if gallery[0].shape[1] != query[0].shape[1]:
        raise UserError(
            f"embeddings: {path} has queries of {query[0].shape[1]} dimensions and a gallery of "
            f"{gallery[0].shape[1]}"
        )
    return SplitEmbeddings(*(torch.from_numpy(part).to(device) for part in (*query, *gallery)))


def _read_pair(
    file: np.lib.npyio.NpzFile, values: str, labels: str, path: str | Path
) -> tuple[np.ndarray, np.ndarray]:
    """Reads embeddings as floats and their labels as 64-bit integers."""
    matrix, numbers = _read_array(file, values, path), _read_array(file, labels, path)
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.floating):
        raise UserError(
            f"embeddings: '{values}' of {path} must be a matrix of floating-point numbers, "
            f"not {matrix.dtype} of shape {matrix.shape}"
        )
    if numbers.shape != matrix.shape[:1]:
        raise UserError(
            f"embeddings: '{labels}' of {path} must hold {len(matrix)} labels, "
            f"not shape {numbers.shape}"
        )
    if not np.issubdtype(numbers.dtype, np.integer):
        # Names would do for one array, but gallery and query must agree on their numbers.
        raise UserError(
            f"embeddings: '{labels}' of {path} must hold integers, not {numbers.dtype}; "
            f"numpy.unique(labels, return_inverse=True) converts them"
        )
    # PyTorch knows the machine's byte order only, and no type longer than float64
    wide = np.float64 if matrix.dtype.itemsize > 8 else matrix.dtype.newbyteorder("=")
    return matrix.astype(wide, copy=False), numbers.astype(np.int64)


def _read_array(file: np.lib.npyio.NpzFile, name: str, path: str | Path) -> np.ndarray:
    """Reads one array of the file; the content of the others does not matter."""
    if name not in file:
        others = f"only {', '.join(file.files)}" if file.files else "nor any other"
        raise UserError(f"embeddings: {path} has no array '{name}', {others}")
    try:
        array = file[name]
    except ValueError as error:
        raise UserError(
            f"embeddings: '{name}' of {path} holds Python objects or is damaged; save numbers"
        ) from error
    except Exception as error:  # of zipfile, zlib and numpy
        raise UserError(f"embeddings: '{name}' of {path} is damaged") from error
    if not isinstance(array, np.ndarray):  # NumPy returns anything else as bytes
        raise UserError(f"embeddings: '{name}' of {path} is damaged")
    return array


def _image_paths(subset: Subset) -> np.ndarray:
    """Paths of a subset's images; row numbers for images in memory."""
    if isinstance(subset.index.images, np.ndarray):
        return np.array([str(row) for row in subset.rows])
    return np.array([str(subset.index.images[row]) for row in subset.rows])
