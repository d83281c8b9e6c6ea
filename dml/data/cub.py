"""CUB-200-2011 as published: classes 1–100 train, 101–200 test (Wah et al., 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dml.data.base import ImageIndex
from dml.errors import UserError

FOLDER = "CUB_200_2011"


def read_cub(root: str | Path, images: int = 11_788, classes: int = 200) -> ImageIndex:
    """Lists CUB's images from its own `images.txt` and `image_class_labels.txt`.

    Args:
        root: the folder that holds `CUB_200_2011/`.
        images, classes: the counts to check against.

    Raises:
        UserError: the dataset is absent, or not all of it is there.
    """
    folder = Path(root) / FOLDER
    tables = {name: folder / name for name in ("images.txt", "image_class_labels.txt")}
    missing = [str(path) for path in tables.values() if not path.is_file()]
    if missing:
        raise UserError(
            f"data.root: CUB-200-2011 is not under {root} (no {missing[0]}); "
            f"unpack CUB_200_2011.tgz there, or name its place with data.root=<folder>"
        )
    paths = _two_columns(tables["images.txt"])
    class_of = _two_columns(tables["image_class_labels.txt"])
    unlabelled = paths.keys() - class_of.keys()
    if unlabelled:
        raise UserError(
            f"data.root: {tables['image_class_labels.txt']} lacks image "
            f"{min(unlabelled)} and {len(unlabelled) - 1} more; unpack the archive again"
        )
    files = [folder / "images" / name for name in paths.values()]
    found = sum(file.is_file() for file in files)
    published = np.array([int(class_of[number]) for number in paths])
    labels = np.unique(published, return_inverse=True)[1].astype(np.int64)
    count = int(labels.max()) + 1 if len(labels) else 0
    if (len(files), found, count) != (images, images, classes):
        raise UserError(
            f"data.root: {folder} is not complete: found {found} of {images} images "
            f"({len(files)} listed) and {count} of {classes} classes; unpack the archive again"
        )
    return ImageIndex(
        name="cub",
        images=files,
        labels=labels,
        roles=np.where(labels < classes // 2, "train", "test"),
    )


def _two_columns(path: Path) -> dict[str, str]:
    """A file of `id value` lines; ids stay strings, in file order."""
    rows = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines())
    try:
        return {key: value.strip() for key, value in (row for row in rows if row)}
    except ValueError as error:
        raise UserError(
            f"data.root: {path} has a line without two columns; unpack the archive again"
        ) from error
