"""Stanford Online Products as published: 11,318 training, 11,316 test classes (Song, 2016)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "sop", "Stanford Online Products"
TRAIN_IMAGES = 59_551


def read_sop(root: str | Path, images: int = 120_053, classes: int = 22_634) -> ImageIndex:
    """Returns the index of SOP, read from `Ebay_train.txt` and `Ebay_test.txt`.

    Args:
        root: the folder that contains `Stanford_Online_Products/`.
        images, classes: expected counts.

    Raises:
        UserError: the dataset is missing or incomplete.
    """
    folder = Path(root) / "Stanford_Online_Products"
    recall_at = (1, 10, 100, 1000)
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes, recall_at)
    tables = []
    for role in ("train", "test"):
        path = folder / f"Ebay_{role}.txt"
        with dataset.reading(path):
            import pandas as pd

            columns = {"class_id": np.int64, "path": str}
            table = pd.read_csv(path, sep=" ", usecols=[*columns], dtype=columns)
            tables.append(table.assign(role=role))
    images_of_both = pd.concat(tables)
    files = [folder / path for path in images_of_both["path"]]
    return dataset.build_index(files, images_of_both["class_id"], images_of_both["role"])
