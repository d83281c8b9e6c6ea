"""Tiny datasets in the layouts their authors published, for tests of every room.

Each builder makes `classes` × `per_class` JPEG files under `root` and returns `root`. The first
image of every tree is grey and the second a CMYK JPEG, as they occur in the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (40, 30)


def photo(seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """A smooth random picture of width × height pixels, which JPEG keeps nearly as it is."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 5, 3), dtype=np.uint8))
    return coarse.resize(size, Image.Resampling.BICUBIC)


def save(path: Path, seed: int, mode: str = "RGB", size: tuple[int, int] = SIZE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    photo(seed, size).convert(mode).save(path, quality=95)
    return path


def truncate(path: Path) -> Path:
    """Cuts an image file off in the middle, as an interrupted copy would."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def cub_tree(root: Path, classes: int = 4, per_class: int = 3) -> Path:
    folder = root / "CUB_200_2011"
    images, labels = [], []
    for number, (label, item, mode) in enumerate(_items(classes, per_class), start=1):
        name = f"{label + 1:03d}.Bird_{label}/Bird_{label}_{item:04d}.jpg"
        save(folder / "images" / name, number, mode)
        images.append(f"{number} {name}\n")
        labels.append(f"{number} {label + 1}\n")
    (folder / "images.txt").write_text("".join(images))
    (folder / "image_class_labels.txt").write_text("".join(labels))
    return root


def cars_box(row: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of an image's box, from 0, without the last row and column."""
    return row % 12, 2, 20 + row % 12, 25


def cars_tree(root: Path, classes: int = 4, per_class: int = 3) -> Path:
    from scipy.io import savemat

    folder = root / "cars196"
    corners = [(f"bbox_{name}", "O") for name in ("x1", "y1", "x2", "y2")]
    fields = [("relative_im_path", "O"), *corners, ("class", "O"), ("test", "O")]
    rows = np.zeros((1, classes * per_class), dtype=fields)
    for number, (label, _, mode) in enumerate(_items(classes, per_class)):
        name = f"car_ims/{number + 1:06d}.jpg"
        save(folder / name, number, mode)
        left, top, right, bottom = cars_box(number)  # the table counts from 1, ends included
        rows[0, number] = (name, left + 1, top + 1, right, bottom, label + 1, number % 2)
    savemat(folder / "cars_annos.mat", {"annotations": rows})
    return root


def sop_tree(root: Path, classes: int = 4, per_class: int = 3) -> Path:
    folder = root / "Stanford_Online_Products"
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for number, (label, item, mode) in enumerate(_items(classes, per_class), start=1):
        name = f"bicycle_final/{label}_{item}.JPG"
        save(folder / name, number, mode)
        part = "train" if label < classes // 2 else "test"
        lines[part].append(f"{number} {label + 1} 1 {name}\n")
    for part, rows in lines.items():
        header = "image_id class_id super_class_id path\n"
        (folder / f"Ebay_{part}.txt").write_text(header + "".join(rows))
    return root


def inshop_tree(root: Path, classes: int = 4, per_class: int = 3) -> Path:
    """Of each unseen class, the first image is a query and the others are in the gallery."""
    folder = root / "inshop"
    lines = []
    for number, (label, item, mode) in enumerate(_items(classes, per_class)):
        name = f"img/WOMEN/Dresses/id_{label + 1:08d}/{item:02d}_front.jpg"
        save(folder / name, number, mode)
        unseen = "query" if item == 0 else "gallery"
        role = "train" if label < classes // 2 else unseen
        lines.append(f"{name:<70} id_{label + 1:08d} {role}\n")
    header = f"{len(lines)}\nimage_name item_id evaluation_status\n"
    (folder / "list_eval_partition.txt").write_text(header + "".join(lines))
    return root


def class_folders(root: Path, classes: int = 4, per_class: int = 3) -> Path:
    for number, (label, item, mode) in enumerate(_items(classes, per_class)):
        save(root / f"class_{label}" / f"{item}.jpg", number, mode)
    return root


def inat_tree(root: Path, classes: int = 4, per_class: int = 3) -> Path:
    """Species are in two super categories, and two of them have the same number."""
    folder = root / "inat"
    lines: dict[str, list[str]] = {"train": [], "test": []}
    for number, (label, item, mode) in enumerate(_items(classes, per_class)):
        category = f"{('Aves', 'Fungi')[label // 2]}/{label % 2}"
        name = f"train_val2018/{category}/{label:02d}{item:02d}.jpg"
        save(folder / name, number, mode)
        lines["train" if label < classes // 2 else "test"].append(f"{name}\n")
    splits = folder / "Inat_dataset_splits"
    splits.mkdir()
    for role, names in lines.items():
        (splits / f"Inaturalist_{role}_set1.txt").write_text("".join(names))
    return root


TREES = {
    "cub": cub_tree,
    "cars": cars_tree,
    "sop": sop_tree,
    "inshop": inshop_tree,
    "inat": inat_tree,
}


def _items(classes: int, per_class: int) -> Iterator[tuple[int, int, str]]:
    modes = iter(["L", "CMYK"])
    for label in range(classes):
        for item in range(per_class):
            yield label, item, next(modes, "RGB")
