"""In-Shop Clothes Retrieval (DeepFashion) as published, with query and gallery (Liu et al., 2016).

3,997 items train; of the 3,985 unseen ones, 14,218 images are queries and 12,612 the gallery.
"""

from __future__ import annotations

from pathlib import Path

from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "inshop", "In-Shop Clothes Retrieval"
TRAIN_IMAGES = 25_882


def read_inshop(root: str | Path, images: int = 52_712, classes: int = 7_982) -> ImageIndex:
    """Lists the images of In-Shop from its own `list_eval_partition.txt`.

    Args:
        root: the folder that holds `inshop/`.
        images, classes: the counts to check against.

    Raises:
        UserError: the dataset is absent, damaged, or not all of it is there.
    """
    folder = Path(root) / "inshop"
    partition = folder / "list_eval_partition.txt"
    recall_at = (1, 10, 20, 30)
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes, recall_at)
    dataset.check_tables(partition)
    # The first line is the number of images, the second names the columns.
    rows = dataset.read_columns(partition, columns=3, header=2)
    files, items, roles = zip(*rows, strict=True) if rows else ((), (), ())
    roles = tuple(role.strip() for role in roles)
    unknown = set(roles) - {"train", "query", "gallery"}
    if unknown:
        raise dataset.damaged(partition, f"evaluation_status {min(unknown)!r} is unknown")
    return dataset.build_index([folder / name for name in files], items, roles)
