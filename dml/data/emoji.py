"""Emoji drawn by independent designers: half of the code points are unseen test classes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

TRAIN_IMAGES = 4_954
FINGERPRINT = "f10fc9f154090f27"
FOLDER = "emoji"
COLUMNS = ("label", "role", "code", "name", "group", "set", "drawing", "svg_sha256")


def read_emoji(
    root: str | Path,
    images: int = 9_869,
    classes: int = 1_370,
    fingerprint: str | None = FINGERPRINT,
) -> ImageIndex:
    """Returns the index of the drawings in `emoji/drawings.csv`, a table that `prepare` writes.

    Args:
        root: the folder that contains `emoji/`.
        images, classes: expected counts.
        fingerprint: 16 digits of the table's hash, which depends on every SVG file; None: any.

    Raises:
        UserError: the dataset is missing or incomplete, or its fingerprint differs.
    """
    folder = Path(root) / FOLDER
    dataset = PublishedDataset("emoji", "Emoji", Path(root), images, classes)
    table = folder / "drawings.csv"
    dtypes = {"label": np.int64, "code": str}
    rows = dataset.read_table(table, dtype=dtypes, keep_default_na=False)
    with dataset.reading(table):
        drawings = zip(rows["code"], rows["set"], strict=True)
        files = [folder / "images" / str(code) / f"{name}.png" for code, name in drawings]
        index = dataset.build_index(files, rows["label"], rows["role"])
    actual = hashlib.sha256(table.read_bytes()).hexdigest()[:16]
    if fingerprint not in (None, actual):
        raise UserError(
            f"data.root: {table} lists other drawings (fingerprint {actual}, the published one is "
            f"{fingerprint}); {dataset.advice}; to use them: data.reader.fingerprint={actual}"
        )
    return index
