"""Copies of the tiny published datasets in the layouts that people have.

Each builder takes the published tree (`tests.data.trees`) and makes a copy of its images under
another folder. The bytes of the images are those of the published tree; their names are not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dml.data.image_index import ImageIndex
from tests.data.trees import cars_box

# Of the classes 1, 2 and 99, 100: in ASCII order another one than in that of their numbers.
CARS = (
    "Acura TL Type-S 2008",
    "Acura Integra Type R 2001",
    "Ram C/V Cargo Van Minivan 2012",
    "Rolls-Royce Ghost Sedan 2012",
)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write_table(path: Path, index: ImageIndex, rows: list[int], names: list[str]) -> None:
    """Writes a table of cars: its boxes count from 1, ends included."""
    from scipy.io import savemat

    fields = [(f"bbox_{name}", "O") for name in ("x1", "y1", "x2", "y2")]
    table = np.zeros((1, len(rows)), dtype=[*fields, ("class", "O"), ("fname", "O")])
    for position, (row, name) in enumerate(zip(rows, names, strict=True)):
        left, top, right, bottom = cars_box(row)
        table[0, position] = left + 1, top + 1, right, bottom, index.labels[row] + 1, name
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"annotations": table})


def cars_zip(published: ImageIndex, root: Path) -> Path:
    """`CARS196/` with the table, and the images in a folder of another name."""
    shutil.copytree(published.images[0].parents[1], root / "CARS196")
    (root / "CARS196" / "car_ims").rename(root / "CARS196" / "images")
    return root


def cars_split_folders(published: ImageIndex, root: Path) -> Path:
    """torchvision's tree: `cars_train/`, `cars_test/`, doubled, with names that occur in both."""
    home = root / "stanford_cars"
    tables = {
        "train": home / "devkit/cars_train_annos.mat",
        "test": home / "cars_test_annos_withlabels.mat",
    }
    for part, (split, table) in enumerate(tables.items()):
        rows = list(range(len(published.images)))[part::2][::-1]
        names = [f"{number:05d}.jpg" for number in range(1, len(rows) + 1)]
        for row, name in zip(rows, names, strict=True):
            folder = home / f"cars_{split}" / f"cars_{split}"
            _copy(published.images[row], folder / name.replace(".jpg", ".JPG"))
        _write_table(table, published, rows, names)
    _copy(published.images[0], home / "__MACOSX" / "cars_train" / "._00001.jpg")
    return root


def cars_class_splits(published: ImageIndex, root: Path) -> Path:
    """Kaggle's tree: `car_data/car_data/{train,test}/<class>/`, with the tables beside it."""
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for row, file in enumerate(published.images):
        split = ("train", "test")[row % 2]
        name = f"{len(lines[split]) + 1:05d}.jpg"
        folder = CARS[published.labels[row]].replace("/", "-")
        _copy(file, root / "car_data/car_data" / split / folder / name)
        left, top, right, bottom = cars_box(row)
        box = f"{left + 1},{top + 1},{right},{bottom}"
        lines[split].append(f"{name},{box},{published.labels[row] + 1}\n")
    for split, rows in lines.items():
        (root / f"anno_{split}.csv").write_text("".join(reversed(rows)))
    (root / "names.csv").write_text("\n".join(CARS) + "\n")
    return root


def cars_class_folders(published: ImageIndex, root: Path) -> Path:
    """Dropbox's tree: `cars196/images/<class>/`."""
    for row, file in enumerate(published.images):
        folder = CARS[published.labels[row]].replace("/", "_")
        _copy(file, root / "cars196/images" / folder / f"{row % 3}.jpeg")
    _copy(published.images[0], root / "cars196/images/.thumbs/a.jpg")
    return root


def cub_class_folders(published: ImageIndex, root: Path) -> Path:
    for row, file in enumerate(published.images):
        number = published.labels[row] + 1
        # as text, the last class would be the first
        folder = f"{number if number < 4 else 100}.Bird of {number} grünen"
        _copy(file, root / "cub200/images" / folder / f"{row}.JPG")
    return root


def sop_info_files(published: ImageIndex, root: Path) -> Path:
    """Dropbox's tree: `online_products/{images,Info_Files}/`; the folders have other names."""
    home = root / "online_products"
    for file in published.images:
        _copy(file, home / "images" / "bicycle" / file.with_suffix(".jpg").name)
    for part in ("train", "test"):
        name = f"Ebay_{part}.txt"
        _copy(published.images[0].parents[1] / name, home / "Info_Files" / name)
    return root


def inshop_drive(published: ImageIndex, root: Path) -> Path:
    """The folders of the authors' Drive, whose name has spaces."""
    home = root / "In-shop Clothes Retrieval Benchmark"
    source = published.root / "inshop"
    shutil.copytree(source / "img", home / "Img" / "img")
    _copy(source / "list_eval_partition.txt", home / "Eval" / "list_eval_partition.txt")
    return root


COPIES: dict[str, tuple[str, Callable[[ImageIndex, Path], Path]]] = {
    "cars zip": ("cars", cars_zip),
    "cars split folders": ("cars", cars_split_folders),
    "cars class splits": ("cars", cars_class_splits),
    "cars class folders": ("cars", cars_class_folders),
    "cub class folders": ("cub", cub_class_folders),
    "sop info files": ("sop", sop_info_files),
    "inshop drive": ("inshop", inshop_drive),
}
