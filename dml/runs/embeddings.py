"""Embeddings of a split: their scores, their `.npz` file, and those of several models joined.

Arrays of the file, written by a run or by other software: `embeddings` N×D and `labels` N; for a
query–gallery split also `gallery_embeddings` and `gallery_labels`; `paths` and `gallery_paths`
where the images are files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.models.embedder import NORMALIZERS
from dml.retrieval import concatenate, retrieval_metrics
from dml.runs.protocol import Split


@dataclass(frozen=True)
class SplitEmbeddings:
    """A split's embeddings N×D (at least float32) and dataset-wide labels N, on one device."""

    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None

    def to(self, device: torch.device | str) -> SplitEmbeddings:
        """Returns the same embeddings on a device."""
        parts = (self.query, self.query_labels, self.gallery, self.gallery_labels)
        return SplitEmbeddings(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    @property
    def collapsed(self) -> bool:
        """True if all embeddings are equal, so that scores depend on the order of ties."""
        points = self.query if self.gallery is None else torch.cat([self.query, self.gallery])
        return len(points) > 1 and bool((points == points[0]).all())

    def score(self, recall_at: tuple[int, ...], backend: str = "auto") -> dict[str, float]:
        """Returns the metrics of `dml.retrieval.retrieval_metrics`, whose arguments these are.

        Raises:
            UserError: embeddings that are not finite.
        """
        parts = (self.query, self.query_labels, self.gallery, self.gallery_labels)
        try:
            return retrieval_metrics(*parts, recall_at=recall_at, backend=backend)
        except ValueError as error:
            raise UserError(f"evaluation: {error}") from error


def concatenate_models(
    files: Sequence[Path], normalize: str, device: torch.device
) -> SplitEmbeddings:
    """Returns the normalized embeddings of several models, concatenated and normalized again.

    Args:
        files: the models' embeddings of the same images (`save_embeddings`).
        normalize: `embedder.normalize`; models without a normalizer are joined by L2.
        device: of the result.

    Raises:
        UserError: a file is missing or damaged.
    """
    models = [load_embeddings(file, device) for file in files]
    normalizer = F.normalize if normalize == "none" else NORMALIZERS[normalize]
    joined = replace(models[0], query=concatenate([model.query for model in models], normalizer))
    galleries = [model.gallery for model in models if model.gallery is not None]
    return replace(joined, gallery=concatenate(galleries, normalizer)) if galleries else joined


def save_embeddings(path: Path, embeddings: SplitEmbeddings, split: Split, dtype: str) -> None:
    """Writes a split's embeddings.

    Args:
        path: the `.npz` file.
        embeddings: see `Evaluator.embed`.
        split: the same images, for their paths.
        dtype: `float16` (half the size, about three digits) or `float32`.
    """
    arrays = {}
    matrices = (embeddings.query, embeddings.gallery)
    labels = (embeddings.query_labels, embeddings.gallery_labels)
    for prefix, subset, matrix, numbers in zip(
        ("", "gallery_"), split.subsets, matrices, labels, strict=False
    ):
        images = subset.index.images  # row numbers for images in memory
        names = subset.rows if isinstance(images, np.ndarray) else [images[r] for r in subset.rows]
        arrays[f"{prefix}embeddings"] = matrix.cpu().numpy().astype(dtype)  # type: ignore[union-attr]
        arrays[f"{prefix}labels"] = numbers.cpu().numpy()  # type: ignore[union-attr]
        arrays[f"{prefix}paths"] = np.array([str(name) for name in names])
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
    except Exception as error:  # of many classes, for bytes of any kind
        raise UserError(f"embeddings: {path} is not a .npz file, or is damaged") from error
    if isinstance(file, np.ndarray):
        raise UserError(
            f"embeddings: {path} holds one array and so no labels; "
            f"numpy.savez(file, embeddings=…, labels=…) writes both"
        )
    with file:
        arrays = _read_pair(file, "", path)
        if "gallery_embeddings" in file or "gallery_labels" in file:
            arrays += _read_pair(file, "gallery_", path)
    if len({array.shape[1] for array in arrays[::2]}) > 1:
        raise UserError(f"embeddings: queries and gallery of {path} differ in their dimensions")
    return SplitEmbeddings(*(torch.from_numpy(array).to(device) for array in arrays))


def _read_pair(file: np.lib.npyio.NpzFile, prefix: str, path: str | Path) -> list[np.ndarray]:
    """Reads embeddings as floats and their labels as 64-bit integers."""
    values, labels = f"{prefix}embeddings", f"{prefix}labels"
    matrix, numbers = _read_array(file, values, path), _read_array(file, labels, path)
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.floating):
        raise UserError(
            f"embeddings: '{values}' of {path} must be a matrix of floating-point numbers, "
            f"not {matrix.dtype} of shape {matrix.shape}"
        )
    if numbers.shape != matrix.shape[:1] or not np.issubdtype(numbers.dtype, np.integer):
        raise UserError(
            f"embeddings: '{labels}' of {path} must hold {len(matrix)} integers, not "
            f"{numbers.dtype} of shape {numbers.shape}; numpy.unique(labels, return_inverse=True) "
            f"converts names"
        )
    # PyTorch knows the machine's byte order only, and no type longer than float64
    wide = np.float64 if matrix.dtype.itemsize > 8 else matrix.dtype.newbyteorder("=")
    return [matrix.astype(wide, copy=False), numbers.astype(np.int64)]


def _read_array(file: np.lib.npyio.NpzFile, name: str, path: str | Path) -> np.ndarray:
    if name not in file:
        raise UserError(
            f"embeddings: {path} has no array '{name}', only {', '.join(file.files) or 'none'}"
        )
    try:
        return np.asarray(file[name])
    except Exception as error:  # of zipfile, zlib and numpy
        raise UserError(
            f"embeddings: '{name}' of {path} holds Python objects or is damaged; save numbers"
        ) from error
