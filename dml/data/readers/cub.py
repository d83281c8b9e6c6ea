"""CUB-200-2011 as published: 100 training and 100 test classes (Wah et al., 2011)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.readers.layouts import ImageTable, Layout, find_part, list_classes, match_files
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 5_864
TEST_IMAGES = 5_924
FOLDERS = ("cub_200_2011", "cub200_2011", "cub-200-2011", "cub200", "cub", "cub_copy")


def read_cub(
    root: str | Path, images: int = 11_788, classes: int = 200, crop: str | None = None
) -> ImageIndex:
    """Returns the index of CUB, read from `images.txt` and `image_class_labels.txt`.

    Copies that consist of class folders are read as well (`LAYOUTS`).

    Args:
        root: the folder that contains `CUB_200_2011/`.
        images, classes: expected counts.
        crop: "boxes" crops images to the boxes of `bounding_boxes.txt`.

    Raises:
        UserError: the dataset is missing or incomplete, or has no boxes.
    """
    dataset = PublishedDataset("cub", "CUB-200-2011", Path(root), images, classes, crop=crop)
    return dataset.read_layout(LAYOUTS)


def _read_published(dataset: PublishedDataset, folder: Path) -> ImageTable:
    # The tables are joined by image number; their rows may be in any order.
    paths, labels = (
        dataset.read_table(folder / name, sep=" ", names=["number", "value"], index_col="number")
        for name in ("images.txt", "image_class_labels.txt")
    )
    with dataset.reading(folder / "image_class_labels.txt"):
        classes_N = labels["value"].loc[paths.index].to_numpy(np.int64)
    roles = np.where(classes_N <= dataset.classes // 2, "train", "test")
    files = match_files(find_part(folder, "images"), paths["value"].tolist())
    boxes = _read_boxes(dataset, folder, paths.index) if dataset.crop else None
    return ImageTable(files, classes_N, roles, boxes)


def _read_boxes(dataset: PublishedDataset, folder: Path, numbers: object) -> np.ndarray | None:
    """Returns the boxes of the images with some numbers (`ImageTable`); None without their table.

    A row is x, y, width and height in pixels; x and y count from 0, as in all public code that we
    know (the authors do not say).
    """
    path = folder / "bounding_boxes.txt"
    if not path.exists():
        return None
    names = ["number", "x", "y", "width", "height"]
    table = dataset.read_table(path, sep=r"\s+", names=names, index_col="number")
    with dataset.reading(path):
        x, y, width, height = table.reindex(numbers).to_numpy(float).T
    return np.stack([x, y, x + width, y + height], axis=1)


def _read_class_folders(dataset: PublishedDataset, folder: Path) -> ImageTable:
    """Returns the table of `images/<class>/<image>`; names of classes begin with their numbers."""
    by_class = list_classes(find_part(folder, "images"))
    files: list[Path] = []
    labels: list[int] = []
    roles: list[str] = []
    for number, name in enumerate(sorted(by_class, key=_class_number)):
        role = "train" if number < dataset.classes // 2 else "test"
        for file in by_class[name]:
            files.append(file)
            labels.append(number)
            roles.append(role)
    return ImageTable(files, labels, roles)


def _class_number(name: str) -> tuple[int, str]:
    digits = re.match(r"\d*", name)
    return int(digits.group() or 0) if digits else 0, name


LAYOUTS = (
    Layout(
        "the published files",
        ("images.txt", "image_class_labels.txt"),
        _read_published,
        FOLDERS,
        home="CUB_200_2011",
    ),
    Layout("class folders", ("images/*",), _read_class_folders, FOLDERS[1:]),
)
