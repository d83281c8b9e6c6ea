"""Stanford Online Products as published: 11,318 training, 11,316 test classes (Song, 2016)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.readers.published_dataset import PublishedDataset

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
    dataset = PublishedDataset(
        "sop", "Stanford Online Products", Path(root), images, classes, recall_at
    )
    columns = {"class_id": np.int64, "path": str}
    files, labels, roles = [], [], []
    for role in ("train", "test"):
        path = folder / f"Ebay_{role}.txt"
        table = dataset.read_table(path, sep=" ", usecols=[*columns], dtype=columns)
        files += [folder / name for name in table["path"]]
        labels += table["class_id"].tolist()
        roles += [role] * len(table)
    return dataset.build_index(files, labels, roles)
