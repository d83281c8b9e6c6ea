"""Cars196 as published: 98 training and 98 test classes (Krause et al., 2013)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 8_054


def read_cars(root: str | Path, images: int = 16_185, classes: int = 196) -> ImageIndex:
    """Returns the index of Cars196, read from `cars_annos.mat`.

    The train/test flag in the annotations is for classification; metric learning splits by class:
    1–98 train, 99–196 test.

    Args:
        root: the folder that contains `cars196/`.
        images, classes: expected counts.

    Raises:
        UserError: the dataset is missing, damaged or incomplete.
    """
    from scipy.io import loadmat  # imported late: it takes half a second

    folder = Path(root) / "cars196"
    annotations = folder / "cars_annos.mat"
    dataset = PublishedDataset("cars", "Cars196", Path(root), images, classes)
    with dataset.reading(annotations):
        rows = loadmat(str(annotations), squeeze_me=True)["annotations"]
        files = [folder / str(name) for name in rows["relative_im_path"]]
        labels = rows["class"].astype(np.int64)
    return dataset.build_index(files, labels, np.where(labels <= classes // 2, "train", "test"))
