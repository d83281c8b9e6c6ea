"""Emoji drawn by independent designers: half of the code points are unseen test classes."""

from __future__ import annotations

from pathlib import Path

from dml.data.image_index import ImageIndex
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 4_954
FINGERPRINT = "f10fc9f154090f27"


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
    dataset = PublishedDataset("emoji", "Emoji", Path(root), images, classes)
    return dataset.read_rendered(("code", "set"), fingerprint)
