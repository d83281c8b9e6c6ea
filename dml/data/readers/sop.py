"""Stanford Online Products as published: 11,318 training, 11,316 test classes (Song, 2016).

The categories are the twelve super-classes, by the folders of the images: `bicycle_final/…`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np

from dml.data.image_index import ImageIndex
from dml.data.readers.layouts import ImageTable, Layout, find_part, match_files
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 59_551
TEST_IMAGES = 60_502
COPIES = ("online_products", "sop", "sop_copy")


def read_sop(root: str | Path, images: int = 120_053, classes: int = 22_634) -> ImageIndex:
    """Returns the index of SOP, read from `Ebay_train.txt` and `Ebay_test.txt`.

    Copies with other folders are read as well (`LAYOUTS`).

    Args:
        root: the folder that contains `Stanford_Online_Products/`.
        images, classes: expected counts.

    Raises:
        UserError: the dataset is missing or incomplete.
    """
    recall_at = (1, 10, 100, 1000)
    dataset = PublishedDataset(
        "sop", "Stanford Online Products", Path(root), images, classes, recall_at
    )
    return dataset.read_layout(LAYOUTS)


def _read_published(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_tables(dataset, folder, folder)


def _read_info_files(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_tables(dataset, find_part(folder, "Info_Files"), find_part(folder, "images"))


def _read_tables(dataset: PublishedDataset, folder: Path, images: Path) -> ImageTable:
    """Returns the table of images below a folder, whose lists are in another."""
    columns = {"class_id": np.int64, "path": str}
    names, labels, roles = [], [], []
    for role in ("train", "test"):
        path = find_part(folder, f"Ebay_{role}.txt")
        table = dataset.read_table(path, sep=" ", usecols=[*columns], dtype=columns)
        names += table["path"].tolist()
        labels += table["class_id"].tolist()
        roles += [role] * len(table)
    folders = [PurePosixPath(name).parent.name for name in names]
    categories = [folder.removesuffix("_final") for folder in folders]
    return ImageTable(match_files(images, names), labels, roles, categories=categories)


LAYOUTS = (
    Layout(
        "the published files",
        ("Ebay_train.txt", "Ebay_test.txt"),
        _read_published,
        ("stanford_online_products", *COPIES),
        home="Stanford_Online_Products",
    ),
    Layout(
        "images/ and Info_Files/",
        ("Info_Files/Ebay_train.txt", "Info_Files/Ebay_test.txt", "images"),
        _read_info_files,
        COPIES,
    ),
)
