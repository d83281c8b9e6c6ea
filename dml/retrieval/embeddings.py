"""Embeddings of queries and gallery: scored, stored, and those of several models joined.

Arrays of the `.npz` file, written by a run or by other software: `embeddings` N×D and `labels` N;
for a query–gallery split also `gallery_embeddings` and `gallery_labels`; `paths` and
`gallery_paths` where the images are files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError, first_line
from dml.retrieval.metrics import concatenate, retrieval_metrics

ARRAYS = ("embeddings", "labels", "gallery_embeddings", "gallery_labels")


class SplitEmbeddings(NamedTuple):
    """A split's embeddings N×D (at least float32) and dataset-wide labels N, on one device."""

    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None

    def to(self, device: torch.device | str) -> SplitEmbeddings:
        """Returns the same embeddings on a device."""
        return SplitEmbeddings(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]

    def as_one_set(self) -> tuple[Tensor, Tensor]:
        """Returns the embeddings and labels of queries and gallery."""
        if self.gallery is None or self.gallery_labels is None:
            return self.query, self.query_labels
        labels = torch.cat([self.query_labels, self.gallery_labels])
        return torch.cat([self.query, self.gallery]), labels

    @property
    def collapsed(self) -> bool:
        """True if all embeddings are equal, so that scores depend on the order of ties."""
        points, _ = self.as_one_set()
        return len(points) > 1 and bool((points == points[0]).all())

    def score(self, recall_at: Sequence[int], backend: str = "auto") -> dict[str, float]:
        """Returns the metrics of `dml.retrieval.retrieval_metrics`, whose arguments these are.

        Raises:
            UserError: embeddings or labels that it refuses, such as embeddings that are not finite.
        """
        try:
            return retrieval_metrics(*self, recall_at=recall_at, backend=backend)
        except ValueError as error:
            raise UserError(f"evaluation: {error}") from error


def concatenate_models(
    files: Sequence[Path], normalize: Callable[[Tensor], Tensor], device: torch.device
) -> SplitEmbeddings:
    """Returns the normalized embeddings of several models, concatenated and normalized again.

    Args:
        files: the models' embeddings of the same images (`save_embeddings`).
        normalize: see `dml.retrieval.concatenate`.
        device: of the result.

    Raises:
        UserError: a file is missing or damaged.
    """
    models = [load_embeddings(file, device) for file in files]
    query = concatenate([model.query for model in models], normalize)
    galleries = [model.gallery for model in models if model.gallery is not None]
    gallery = concatenate(galleries, normalize) if galleries else None
    return models[0]._replace(query=query, gallery=gallery)


def save_embeddings(
    path: Path, embeddings: SplitEmbeddings, names: Sequence[Sequence[str]], dtype: str = "float32"
) -> None:
    """Writes embeddings and labels.

    Args:
        path: the `.npz` file.
        embeddings: of queries and gallery.
        names: of the images, usually their paths: those of the queries, then of the gallery.
        dtype: `float16` (half the size, about three digits) or `float32`.
    """
    values = (part.cpu().numpy() for part in embeddings if part is not None)
    arrays = dict(zip(ARRAYS, values, strict=False))
    for prefix, paths in zip(("", "gallery_"), names, strict=False):
        arrays[f"{prefix}embeddings"] = arrays[f"{prefix}embeddings"].astype(dtype)
        arrays[f"{prefix}paths"] = np.array(paths)
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_embeddings(path: str | Path, device: torch.device) -> SplitEmbeddings:
    """Reads embeddings and labels, whose shapes `SplitEmbeddings.score` checks.

    Classes, which may have names, are numbered in their order.

    Raises:
        UserError: there is no such file, it is damaged, or arrays are missing or not numbers.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            names = ARRAYS if "gallery_embeddings" in file else ARRAYS[:2]
            arrays = [file[name] for name in names]
        classes = np.unique(np.concatenate(arrays[1::2]))
        for number, array in enumerate(arrays):
            # PyTorch knows the machine's byte order only, and no type longer than float64.
            dtype = np.float64 if array.itemsize > 4 else np.float32
            arrays[number] = np.searchsorted(classes, array) if number % 2 else array.astype(dtype)
    except Exception as error:  # of many classes, for bytes of any kind
        reason = "no arrays of numbers" if "pickle" in str(error) else first_line(error)
        raise UserError(
            f"embeddings: {path} cannot be read ({reason}); numpy.savez(file, "
            f"embeddings=…, labels=…) writes a matrix of numbers and a class for each row"
        ) from error
    return SplitEmbeddings(*(torch.from_numpy(array).to(device) for array in arrays))
