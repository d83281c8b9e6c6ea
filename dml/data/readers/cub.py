"""CUB-200-2011 as published: 100 training and 100 test classes (Wah et al., 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.readers.published_dataset import PublishedDataset

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
    dataset = PublishedDataset("cub", "CUB-200-2011", Path(root), images, classes)
    # The tables are joined by image number; their rows may be in any order.
    paths, labels = (
        dataset.read_table(folder / name, sep=" ", names=["number", "value"], index_col="number")
        for name in ("images.txt", "image_class_labels.txt")
    )
    with dataset.reading(folder / "image_class_labels.txt"):
        classes_N = labels["value"].loc[paths.index].to_numpy(np.int64)
    roles = np.where(classes_N <= classes // 2, "train", "test")
    files = [folder / "images" / path for path in paths["value"]]
    return dataset.build_index(files, classes_N, roles)
