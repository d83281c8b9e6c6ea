"""Objects of random shape in twelve views: half of the objects are unseen test classes."""

from __future__ import annotations

from pathlib import Path

from dml.data.image_index import ImageIndex
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 5_988
FINGERPRINT = "18377062ac78761c"


def read_shapes(
    root: str | Path,
    images: int = 11_976,
    classes: int = 998,
    fingerprint: str | None = FINGERPRINT,
) -> ImageIndex:
    """Returns the index of the views in `shapes/drawings.csv`, a table that `prepare` writes.

    Args:
        root: the folder that contains `shapes/`.
        images, classes: expected counts.
        fingerprint: 16 digits of the table's hash, which depends on every object; None: any.

    Raises:
        UserError: the dataset is missing or incomplete, or its fingerprint differs.
    """
    dataset = PublishedDataset("shapes", "Shapes", Path(root), images, classes)
    return dataset.read_rendered(("object", "view"), fingerprint)
