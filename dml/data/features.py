"""Stored features: rows of a file of `dml.embed`, which are trained on instead of images.

Arrays of the `.npz` file: `embeddings` N×F (of the plain images), optionally `views` N×V×F (of
augmented ones), `paths` N, `labels` N (names of classes), `splits` N (roles, such as `train`) and
`made_by`, a JSON text with the network. They are memory-mapped, unless they are compressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dml.core.errors import UserError, first_line
from dml.core.npz_files import map_array
from dml.data.folder import index_table
from dml.data.image_index import ImageIndex, StoredFeatures, Subset

WRITE = "python embed.py <network> <images> <file>.npz --features --views 8"


def read_features(root: str | Path) -> ImageIndex:
    """Returns the index of a file of features, with the classes and splits that it names.

    Without splits the classes are split as those of a user's images (`read_folder`).

    Args:
        root: the `.npz` file.

    Raises:
        UserError: the file cannot be read, its arrays do not fit together, it names no classes, or
            they cannot be split.
    """
    path = Path(root)
    if not path.is_file():
        raise UserError(f"data.root: no file {path} of features; to write one: {WRITE}")
    try:
        plain = map_array(path, "embeddings")
        with np.load(path, allow_pickle=False) as file:
            views = map_array(path, "views") if "views" in file else None
            columns = {"path": "paths", "label": "labels", "split": "splits"}
            table = pd.DataFrame({k: file[v].astype(str) for k, v in columns.items() if v in file})
        shape = plain.shape if views is None else views.shape[::2]
        if not plain.ndim == 2 or plain.dtype.kind != "f" or shape != (len(table), plain.shape[1]):
            raise ValueError("the number of rows differs")
    except Exception as error:  # of many classes, for bytes of any kind
        raise UserError(f"data.root: {path} cannot be read ({first_line(error)})") from error
    if "label" not in table:
        raise UserError(f"data.root: {path} has no labels; embed images whose classes are known")
    table["path"] = [Path(file) for file in table.get("path", table.index.astype(str))]
    index = index_table(path, table)
    return replace(index, name=path.stem, features=StoredFeatures(plain, views))


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
