"""Cars196 as published: classes 1–98 train, 99–196 test (Krause et al., 2013)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "cars", "Cars196"
TRAIN_IMAGES = 8_054


def read_cars(root: str | Path, images: int = 16_185, classes: int = 196) -> ImageIndex:
    """Lists the images of Cars from its own `cars_annos.mat`.

    The annotations carry a train/test mark of their own, for classification; metric learning
    splits by class instead.

    Args:
        root: the folder that holds `cars196/`.
        images, classes: the counts to check against.

    Raises:
        UserError: the dataset is absent, damaged, or not all of it is there.
    """
    from scipy.io import loadmat  # late: half a second

    folder = Path(root) / "cars196"
    annotations = folder / "cars_annos.mat"
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes)
    with dataset.reading(annotations):
        rows = loadmat(str(annotations), squeeze_me=True)["annotations"]
        files = [folder / str(name) for name in rows["relative_im_path"]]
        labels = rows["class"].astype(np.int64)
    return dataset.build_index(files, labels, np.where(labels <= classes // 2, "train", "test"))
