"""Cars196 as published: 98 training and 98 test classes (Krause et al., 2013)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.core.regular_files import read_regular_text
from dml.data.image_index import ImageIndex
from dml.data.readers.cars_classes import order_classes
from dml.data.readers.layouts import ImageTable, Layout, find_part, list_classes, match_files
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 8_054
TEST_IMAGES = 8_131
TEST_TABLE = "cars_test_annos_withlabels.mat"
BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
FOLDERS = ("cars196", "cars", "stanford_cars", "stanford-cars", "car_data", "cars_copy")


def read_cars(
    root: str | Path, images: int = 16_185, classes: int = 196, crop: str | None = None
) -> ImageIndex:
    """Returns the index of Cars196, read from `cars_annos.mat`.

    The train/test flag in the annotations is for classification; metric learning splits by class:
    1–98 train, 99–196 test. Copies as class folders and the folders of classification are read as
    well (`LAYOUTS`).

    Args:
        root: the folder that contains `cars196/`.
        images, classes: expected counts.
        crop: "boxes" crops images to the boxes of the annotations.

    Raises:
        UserError: the dataset is missing, damaged or incomplete, or has no boxes.
    """
    dataset = PublishedDataset("cars", "Cars196", Path(root), images, classes, crop=crop)
    return dataset.read_layout(LAYOUTS)


def _read_published(dataset: PublishedDataset, folder: Path) -> ImageTable:
    annotations = _read_annotations(dataset, folder / "cars_annos.mat", "relative_im_path")
    files = match_files(folder, annotations["file"])
    return _make_table(dataset, files, annotations["class"], annotations["box"])


def _read_split_folders(dataset: PublishedDataset, folder: Path) -> ImageTable:
    """Returns the table of `cars_train/` and `cars_test/`, which are splits of images."""
    tables = (
        ("cars_train", find_part(folder, "devkit/cars_train_annos.mat")),
        ("cars_test", find_part(folder, f"{TEST_TABLE}|devkit/{TEST_TABLE}")),
    )
    files: list[Path] = []
    classes, boxes = [], []
    for name, path in tables:
        annotations = _read_annotations(dataset, path, "fname")
        files += match_files(find_part(folder, name), annotations["file"])
        classes.append(annotations["class"])
        boxes.append(annotations["box"])
    has_boxes = all(part is not None for part in boxes)
    joined = np.concatenate(boxes) if has_boxes else None
    return _make_table(dataset, files, np.concatenate(classes), joined)


def _read_annotations(dataset: PublishedDataset, path: Path, file: str) -> dict[str, Any]:
    """Returns the files, classes and boxes of a table; boxes are None if it has none.

    Args:
        dataset: for messages.
        path: a table of MATLAB.
        file: its field with the name of an image.
    """
    from scipy.io import loadmat  # imported late: it takes half a second

    with dataset.reading(path):
        rows = np.atleast_1d(loadmat(str(path), squeeze_me=True)["annotations"])
        boxes = None
        if set(BOX).issubset(rows.dtype.names or ()):
            boxes = _from_zero(np.stack([rows[name].astype(float) for name in BOX], axis=1))
        return {
            "file": [str(name) for name in rows[file]],
            "class": rows["class"].astype(np.int64),
            "box": boxes,
        }


def _from_zero(corners: np.ndarray) -> np.ndarray:
    """Returns boxes as `ImageTable` has them; the published ones count from 1, ends included."""
    return corners - [1, 1, 0, 0]


def _make_table(
    dataset: PublishedDataset,
    files: Sequence[Path],
    classes: np.ndarray,
    boxes: np.ndarray | None,
    notes: tuple[str, ...] = (),
) -> ImageTable:
    """Returns a table with the split of metric learning, by numbers of classes from 1."""
    roles = np.where(classes <= dataset.classes // 2, "train", "test")
    return ImageTable(files, classes, roles, boxes, notes)


def _read_nested_splits(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_class_folders(dataset, folder, ("car_data/train", "car_data/test"))


def _read_class_splits(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_class_folders(dataset, folder, ("train", "test"))


def _read_classes(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_class_folders(dataset, folder, ("images",))


def _read_class_folders(
    dataset: PublishedDataset, folder: Path, splits: Sequence[str]
) -> ImageTable:
    """Returns the table of folders of class folders, which are merged.

    Args:
        dataset: for messages.
        folder: may have `names.csv`, whose line is the number of a class, and a table of boxes for
            each split, `anno_<split>.csv`.
        splits: parts below it. Files of equal names in two of them are two images.
    """
    rows: list[tuple[str, Path, str]] = []  # class, file, split
    for split in splits:
        for name, images in list_classes(find_part(folder, split)).items():
            rows += [(name, file, split.rpartition("/")[2]) for file in images]
    names = sorted({name for name, _, _ in rows})
    ordered, notes = _order_names(dataset, folder, names)
    numbers = {name: number for number, name in enumerate(ordered, start=1)}
    rows.sort(key=lambda row: numbers[row[0]])
    classes = np.array([numbers[name] for name, _, _ in rows], np.int64)
    boxes = None
    if dataset.crop:
        boxes = _read_boxes(dataset, folder, rows)
    return _make_table(dataset, [file for _, file, _ in rows], classes, boxes, notes)


def _order_names(
    dataset: PublishedDataset, folder: Path, names: Sequence[str]
) -> tuple[Sequence[str], tuple[str, ...]]:
    """Returns the names of classes in the order of their published numbers, and notes."""
    listing = find_part(folder, "names.csv|car_data/names.csv")
    ordered = None
    if listing.is_file():
        with dataset.reading(listing):
            lines = read_regular_text(listing, encoding="utf-8-sig").splitlines()
            ordered = order_classes(names, [line.strip().strip('"') for line in lines])
    if ordered is None:
        ordered = order_classes(names)
    if ordered is not None:
        return ordered, ()
    note = (
        "data: not all class folders have the published names of classes, so that the classes are "
        "in the order of their names: the same split, but other folds of cross-validation"
    )
    return names, (note,)


def _read_boxes(
    dataset: PublishedDataset, folder: Path, rows: Sequence[tuple[str, Path, str]]
) -> np.ndarray | None:
    """Returns the boxes of class folders; None if a split has no table of boxes.

    Args:
        dataset: for messages.
        folder: of the tables.
        rows: class, file and split of the images.

    Raises:
        UserError: a table lists files of a folder in two classes, so that it is of other images.
    """
    known: dict[tuple[str, str], tuple[int, np.ndarray]] = {}
    for split in sorted({split for _, _, split in rows}):
        path = find_part(folder, f"anno_{split}.csv|car_data/anno_{split}.csv")
        if not path.is_file():
            return None
        table = dataset.read_table(path, names=["file", *BOX, "class"], dtype={"file": str})
        with dataset.reading(path):
            corners = _from_zero(table[list(BOX)].to_numpy(float))
            keys = table["file"].str.lower()
            for name, box, number in zip(keys, corners, table["class"], strict=True):
                known[split, name] = int(number), box
    boxes = np.full((len(rows), 4), np.nan)
    numbers: dict[str, int] = {}
    for row, (name, file, split) in enumerate(rows):
        annotation = known.get((split, file.name.lower()))
        if annotation is None:
            continue
        number, boxes[row] = annotation
        if numbers.setdefault(name, number) != number:
            raise UserError(
                f"data.crop: anno_{split}.csv in {folder} has class {number} for {file}, and class "
                f"{numbers[name]} for others in this folder: its boxes are of other images"
            )
    return boxes


LAYOUTS = (
    Layout("the published files", ("cars_annos.mat",), _read_published, FOLDERS, home="cars196"),
    Layout(
        "the folders cars_train/ and cars_test/",
        (
            "cars_train",
            "cars_test",
            "devkit/cars_train_annos.mat",
            f"{TEST_TABLE}|devkit/{TEST_TABLE}",
        ),
        _read_split_folders,
    ),
    Layout("class folders", ("car_data/train", "car_data/test"), _read_nested_splits),
    Layout("class folders", ("train", "test"), _read_class_splits, FOLDERS),
    Layout("class folders", ("images/*",), _read_classes, FOLDERS),
)
