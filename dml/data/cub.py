"""CUB-200-2011 as published: 100 training and 100 test classes (Wah et al., 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "cub", "CUB-200-2011"
TRAIN_IMAGES = 5_864


def read_cub(root: str | Path, images: int = 11_788, classes: int = 200) -> ImageIndex:
    """Returns the index of CUB, read from `images.txt` and `image_class_labels.txt`.

    Args:
        root: the folder that contains `CUB_200_2011/`.
        images, classes: expected counts.

    Raises:
        UserError: the dataset is missing or incomplete.
    """
    folder = Path(root) / "CUB_200_2011"
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes)
    columns = []
    for name, column in (("images.txt", "path"), ("image_class_labels.txt", "label")):
        with dataset.reading(folder / name):
            import pandas as pd

            # The tables are joined by image number; their rows may be in any order.
            table = pd.read_csv(
                folder / name, sep=" ", names=["number", column], index_col="number"
            )
            columns.append(table[column])
    with dataset.reading(folder / "image_class_labels.txt"):
        labels = columns[1].loc[columns[0].index].to_numpy(np.int64)
    roles = np.where(labels <= classes // 2, "train", "test")
    return dataset.build_index([folder / "images" / path for path in columns[0]], labels, roles)
