"""Stored features: rows of a file of `dml.embed`, which are trained on instead of images."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dml.core.errors import UserError
from dml.core.file_formats import describe_no_arrays
from dml.core.regular_files import check_regular
from dml.core.text_columns import plain_text_columns
from dml.data.image_index import ImageIndex, StoredFeatures, Subset, hash_text
from dml.data.readers.folder import index_table
from dml.retrieval.embedding_file import open_embeddings

ROWS = 4096  # that are looked at together
HASHED = ("embeddings.npy", "views.npy", "labels.npy", "splits.npy")  # not paths: files may move


@plain_text_columns()
def read_features(
    root: str | Path, split_seed: int | None = None, shared_classes: bool = False
) -> ImageIndex:
    """Returns the index of a file of features, with the classes and splits that it names.

    Args:
        root: the `.npz` file.
        split_seed: see `read_folder`; of a file without splits.
        shared_classes: see `read_folder`.

    Raises:
        UserError: the file cannot be read, it names no classes, or they cannot be split.
    """
    path = Path(root)
    if not path.is_file() or path.suffix != ".npz":
        command = "dml embed <network> <images> <file>.npz --features --views 8"
        kind = describe_no_arrays(path)
        reason = f" ({kind})" if kind else ""
        raise UserError(
            f"data.root: no .npz file {path} of features{reason}; to write one: {command}"
        )
    stored = open_embeddings(path, "data.root", decoded=False)
    if stored.compression is not None:
        raise UserError(
            f"data.root: {path} holds vectors as {stored.compression.form.name}; embed the images "
            f"without --compress"
        )
    if stored.labels is None:
        raise UserError(f"data.root: {path} has no labels; embed images whose classes are known")
    _check_finite(path, "embeddings", stored.embeddings)
    if stored.views is not None:
        _check_finite(path, "views", stored.views)
    table = pd.DataFrame({"path": map(Path, stored.paths), "label": stored.labels})
    if stored.splits is not None:
        table["split"], split_seed = stored.splits, None  # classes in the order of the dataset
    features = StoredFeatures(stored.embeddings, stored.views)
    index = index_table(path, table, split_seed, shared_classes)
    # Its paths tell images apart, wherever the images and the current folder are.
    return replace(index, name=path.stem, features=features, root=None)


def _check_finite(path: Path, name: str, features: np.ndarray) -> None:
    """Raises UserError if numbers of a file are NaN or infinite; names its first such row."""
    for start in range(0, len(features), ROWS):
        part = features[start : start + ROWS]
        bad = np.flatnonzero(~np.isfinite(part.reshape(len(part), -1)).all(axis=1))
        if len(bad):
            raise UserError(
                f"data.root: {path}: {name}: row {start + bad[0]} (from 0) is NaN or infinite; "
                f"leave it out, or embed its image again"
            )


def hash_features(path: Path) -> str:
    """Returns a hash of the arrays in a file of features, by their checksums in the archive.

    Other archives of equal arrays have the same hash; empty if the file is no archive.
    """
    check_regular(path)
    if not zipfile.is_zipfile(path):
        return ""
    with zipfile.ZipFile(path) as archive:
        members = sorted((entry.filename, entry.CRC, entry.file_size) for entry in archive.filelist)
    arrays = [member for member in members if member[0] in HASHED]
    return hash_text(str(arrays))


class FeatureDataset(Dataset[tuple[Tensor, int]]):
    """Rows of features of a subset, in batches.

    Keys are `row`, for the plain image, or `(row, draw)`, for a view that the seed `draw` chooses.
    """

    def __init__(self, subset: Subset) -> None:
        assert subset.index.features is not None
        self.subset, self.features = subset, subset.index.features

    def __len__(self) -> int:
        return len(self.subset)

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Returns features B×F in float32 and labels B."""
        plain, views = self.features
        pairs = [key if isinstance(key, tuple) else (key, None) for key in keys]
        positions = np.array([row for row, _ in pairs])
        rows = self.subset.rows[positions]
        if views is None or any(draw is None for _, draw in pairs):
            values = plain[rows]
        else:
            values = views[rows, [draw % views.shape[1] for _, draw in pairs]]
        labels = torch.from_numpy(self.subset.labels[positions])
        return torch.from_numpy(values.astype(np.float32, copy=False)), labels
