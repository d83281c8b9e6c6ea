"""In-Shop Clothes Retrieval (DeepFashion) as published, with query and gallery (Liu et al., 2016).

3,997 items for training; 3,985 unseen items with 14,218 query and 12,612 gallery images.
"""

from __future__ import annotations

from pathlib import Path

from dml.data.image_index import ImageIndex
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 25_882


def read_inshop(root: str | Path, images: int = 52_712, classes: int = 7_982) -> ImageIndex:
    """Returns the index of In-Shop, read from `list_eval_partition.txt`.

    Args:
        root: the folder that contains `inshop/`.
        images, classes: expected counts.

    Raises:
        UserError: the dataset is missing, damaged or incomplete.
    """
    folder = Path(root) / "inshop"
    partition = folder / "list_eval_partition.txt"
    recall_at = (1, 10, 20, 30)
    dataset = PublishedDataset(
        "inshop", "In-Shop Clothes Retrieval", Path(root), images, classes, recall_at
    )
    # The first line is the number of images, the second names the columns.
    table = dataset.read_table(partition, sep=r"\s+", header=1, dtype=str)
    with dataset.reading(partition):
        files = [folder / name for name in table["image_name"]]
        return dataset.build_index(files, table["item_id"], table["evaluation_status"])
