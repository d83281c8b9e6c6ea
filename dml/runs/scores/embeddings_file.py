"""Embeddings on disk: one `.npz`, scored again without a model, made by us or by other software.

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
from dml.runs.scores.evaluator import Embedded, Split


def save_embeddings(path: Path, embedded: Embedded, split: Split, dtype: str) -> None:
    """Writes a split's embeddings.

    Args:
        path: the `.npz` file.
        embedded: what `Evaluator.embed` returned.
        split: the same images, for their paths.
        dtype: `float16` (half the size, about three digits) or `float32`.
    """
    arrays = {
        "embeddings": embedded.query.cpu().numpy().astype(dtype),
        "labels": embedded.query_labels.cpu().numpy(),
        "paths": _paths(split.query),
    }
    if embedded.gallery is not None and embedded.gallery_labels is not None and split.gallery:
        arrays["gallery_embeddings"] = embedded.gallery.cpu().numpy().astype(dtype)
        arrays["gallery_labels"] = embedded.gallery_labels.cpu().numpy()
        arrays["gallery_paths"] = _paths(split.gallery)
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_embeddings(path: str | Path, device: torch.device) -> Embedded:
    """Reads embeddings and labels.

    Raises:
        UserError: no such file, arrays missing, or of shapes and types that do not fit.
    """
    try:
        file = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"embeddings: {path} is not there") from error
    except IsADirectoryError as error:
        raise UserError(f"embeddings: {path} is a folder; name the .npz file") from error
    except Exception as error:  # of many classes, for bytes of any kind
        raise UserError(f"embeddings: {path} is no .npz file, or a damaged one") from error
    if isinstance(file, np.ndarray):
        raise UserError(
            f"embeddings: {path} holds one array and so no labels; "
            f"numpy.savez(file, embeddings=…, labels=…) writes both"
        )
    with file:
        query = _pair(file, "embeddings", "labels", path)
        if "gallery_embeddings" not in file:
            if "gallery_labels" in file:
                raise UserError(
                    f"embeddings: {path} has 'gallery_labels', but no 'gallery_embeddings'"
                )
            return Embedded(*(torch.from_numpy(part).to(device) for part in query))
        gallery = _pair(file, "gallery_embeddings", "gallery_labels", path)
    if gallery[0].shape[1] != query[0].shape[1]:
        raise UserError(
            f"embeddings: {path} has queries of {query[0].shape[1]} dimensions and a gallery of "
            f"{gallery[0].shape[1]}"
        )
    return Embedded(*(torch.from_numpy(part).to(device) for part in (*query, *gallery)))


def _pair(
    file: np.lib.npyio.NpzFile, values: str, labels: str, path: str | Path
) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings as floats and labels as 64-bit integers, checked against each other."""
    matrix, numbers = _array(file, values, path), _array(file, labels, path)
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
        # Names are fine too: only equality counts. Gallery and query must then agree on numbers.
        raise UserError(
            f"embeddings: '{labels}' of {path} must hold integers, not {numbers.dtype}; "
            f"numpy.unique(labels, return_inverse=True) makes them"
        )
    # PyTorch knows the machine's byte order only, and no type longer than float64
    wide = np.float64 if matrix.dtype.itemsize > 8 else matrix.dtype.newbyteorder("=")
    return matrix.astype(wide, copy=False), numbers.astype(np.int64)


def _array(file: np.lib.npyio.NpzFile, name: str, path: str | Path) -> np.ndarray:
    """One array of the file; the others, whatever they hold, are not read."""
    if name not in file:
        there = f"only {', '.join(file.files)}" if file.files else "nor any other"
        raise UserError(f"embeddings: {path} has no array '{name}', {there}")
    try:
        found = file[name]
    except ValueError as error:
        raise UserError(
            f"embeddings: '{name}' of {path} holds Python objects or is damaged; save numbers"
        ) from error
    except Exception as error:  # of zipfile, zlib and numpy
        raise UserError(f"embeddings: '{name}' of {path} is damaged") from error
    if not isinstance(found, np.ndarray):  # what does not begin as an array comes as bytes
        raise UserError(f"embeddings: '{name}' of {path} is damaged")
    return found


def _paths(subset: Subset) -> np.ndarray:
    """Paths of a subset's images; row numbers for images that are no files."""
    if isinstance(subset.index.images, np.ndarray):
        return np.array([str(row) for row in subset.rows])
    return np.array([str(subset.index.images[row]) for row in subset.rows])
