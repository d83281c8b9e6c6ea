"""CUB-200-2011 as published: classes 1–100 train, 101–200 test (Wah et al., 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.core.errors import UserError
from dml.data.base import ImageIndex
from dml.data.published import checked_index, class_number, preparation, require, table

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
    require(tables, name=NAME, title=TITLE, root=root)
    advice = preparation(NAME, root)
    # The two tables are joined by image number; nothing promises that they share an order.
    paths, class_of = (dict(table(path, columns=2, advice=advice)) for path in tables)
    unlabeled = [number for number in paths if number not in class_of]
    if unlabeled:
        raise UserError(
            f"data.root: {tables[1]} lacks image {unlabeled[0]} and {len(unlabeled) - 1} more; "
            f"{advice}"
        )
    published = np.array([class_number(class_of[one], tables[1], advice=advice) for one in paths])
    return checked_index(
        [folder / "images" / path for path in paths.values()],
        published,
        np.where(published <= classes // 2, "train", "test"),
        name=NAME,
        title=TITLE,
        root=root,
        images=images,
        classes=classes,
    )
