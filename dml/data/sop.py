"""Stanford Online Products as published: 11,318 products train, 11,316 test (Song et al., 2016)."""

from __future__ import annotations

from pathlib import Path

from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "sop", "Stanford Online Products"
TRAIN_IMAGES = 59_551


def read_sop(root: str | Path, images: int = 120_053, classes: int = 22_634) -> ImageIndex:
    """Lists the images of SOP from its own `Ebay_train.txt` and `Ebay_test.txt`.

    Args:
        root: the folder that holds `Stanford_Online_Products/`.
        images, classes: the counts to check against.

    Raises:
        UserError: the dataset is absent, or not all of it is there.
    """
    folder = Path(root) / "Stanford_Online_Products"
    recall_at = (1, 10, 100, 1000)
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes, recall_at)
    tables = {role: folder / f"Ebay_{role}.txt" for role in ("train", "test")}
    dataset.check_tables(*tables.values())
    rows = [
        (folder / path, dataset.parse_class(label, table), role)
        for role, table in tables.items()
        for _, label, _, path in dataset.read_columns(table, columns=4, header=1)
    ]
    files, labels, roles = zip(*rows, strict=True) if rows else ((), (), ())
    return dataset.build_index(files, labels, roles)
