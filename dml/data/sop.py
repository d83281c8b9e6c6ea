"""Stanford Online Products as published: 11,318 products train, 11,316 test (Song et al., 2016)."""

from __future__ import annotations

from pathlib import Path

from dml.data.base import ImageIndex
from dml.data.published import checked_index, class_number, preparation, require, table

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
    parts = {role: folder / f"Ebay_{role}.txt" for role in ("train", "test")}
    require(list(parts.values()), name=NAME, title=TITLE, root=root)
    advice = preparation(NAME, root)
    rows = [
        (folder / path, class_number(label, file, advice=advice), role)
        for role, file in parts.items()
        for _, label, _, path in table(file, columns=4, header=1, advice=advice)
    ]
    files, published, roles = zip(*rows, strict=True) if rows else ((), (), ())
    return checked_index(
        files,
        published,
        roles,
        name=NAME,
        title=TITLE,
        root=root,
        images=images,
        classes=classes,
        recall_at=(1, 10, 100, 1000),
    )
