"""In-Shop Clothes Retrieval (DeepFashion) as published, with query and gallery (Liu et al., 2016).

3,997 items train; of the 3,985 unseen ones, 14,218 images are queries and 12,612 the gallery.
"""

from __future__ import annotations

from pathlib import Path

from dml.core.errors import UserError
from dml.data.base import ImageIndex
from dml.data.published import checked_index, preparation, require, table

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
    require([partition], name=NAME, title=TITLE, root=root)
    # The first line is the number of images, the second names the columns.
    rows = table(partition, columns=3, header=2, advice=preparation(NAME, root))
    files, items, roles = zip(*rows, strict=True) if rows else ((), (), ())
    roles = tuple(role.strip() for role in roles)
    unknown = set(roles) - {"train", "query", "gallery"}
    if unknown:
        raise UserError(
            f"data.root: {partition} is damaged: no evaluation_status {min(unknown)!r}; "
            f"{preparation(NAME, root)}"
        )
    return checked_index(
        [folder / name for name in files],
        items,
        roles,
        name=NAME,
        title=TITLE,
        root=root,
        images=images,
        classes=classes,
        recall_at=(1, 10, 20, 30),
    )
