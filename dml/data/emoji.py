"""Emoji drawn by independent designers: half of the code points train, the others are unseen."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "emoji", "Emoji"
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
    """Lists the drawings from the table `emoji/drawings.csv` that their preparation wrote.

    Args:
        root: the folder that holds `emoji/`.
        images, classes: the counts to check against.
        fingerprint: 16 digits of the table's hash, which depends on every drawing's SVG; None: any.

    Raises:
        UserError: the dataset is absent, not all of it is there, or it is another one.
    """
    folder = Path(root) / FOLDER
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes)
    table = folder / "drawings.csv"
    with dataset.reading(table):
        rows = pd.read_csv(table, dtype={"label": np.int64, "code": str}, keep_default_na=False)
        places = zip(rows["code"], rows["set"], strict=True)
        files = [folder / "images" / str(code) / f"{name}.png" for code, name in places]
        index = dataset.build_index(files, rows["label"], rows["role"])
    found = hashlib.sha256(table.read_bytes()).hexdigest()[:16]
    if fingerprint not in (None, found):
        raise UserError(
            f"data.root: {table} lists other drawings (fingerprint {found}, the published one is "
            f"{fingerprint}); {dataset.advice}; to use them: data.reader.fingerprint={found}"
        )
    return index
