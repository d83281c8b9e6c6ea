"""CUB-200-2011 as published: classes 1–100 train, 101–200 test (Wah et al., 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "cub", "CUB-200-2011"
TRAIN_IMAGES = 5_864


def read_cub(root: str | Path, images: int = 11_788, classes: int = 200) -> ImageIndex:
    """Lists CUB's images from its own `images.txt` and `image_class_labels.txt`.

    Args:
        root: the folder that holds `CUB_200_2011/`.
        images, classes: the counts to check against.

    Raises:
        UserError: the dataset is absent, or not all of it is there.
    """
    folder = Path(root) / "CUB_200_2011"
    tables = folder / "images.txt", folder / "image_class_labels.txt"
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes)
    dataset.check_tables(*tables)
    # The two tables are joined by image number; they need not share an order.
    paths, class_of = (dict(dataset.read_columns(path, columns=2)) for path in tables)
    unlabeled = [number for number in paths if number not in class_of]
    if unlabeled:
        raise dataset.damaged(
            tables[1], f"image {unlabeled[0]} and {len(unlabeled) - 1} more are missing"
        )
    labels = np.array([dataset.parse_class(class_of[number], tables[1]) for number in paths])
    return dataset.build_index(
        [folder / "images" / path for path in paths.values()],
        labels,
        np.where(labels <= classes // 2, "train", "test"),
    )
