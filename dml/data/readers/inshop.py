"""In-Shop Clothes Retrieval (DeepFashion) as published, with query and gallery (Liu et al., 2016).

3,997 items for training; 3,985 unseen items with 14,218 query and 12,612 gallery images. The
categories are the garments, the folder `Dresses` of `img/WOMEN/Dresses/…`, without the gender, as
in OML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.readers.layouts import ImageTable, Layout, find_part, locate, match_files
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 25_882
TEST_IMAGES = 26_830  # queries and gallery
PARTITION = "list_eval_partition.txt"
STATUSES = ("train", "query", "gallery")
IMAGES = {None: "img", "highres": "img_highres"}  # by resolution


def read_inshop(
    root: str | Path,
    images: int = 52_712,
    classes: int = 7_982,
    resolution: str | None = None,
) -> ImageIndex:
    """Returns the index of In-Shop, read from `list_eval_partition.txt`.

    The folders of the authors' Drive are read as well (`LAYOUTS`).

    Args:
        root: the folder that contains `inshop/`.
        images, classes: expected counts.
        resolution: "highres" reads `img_highres/` instead of `img/`, the images of the papers.

    Raises:
        UserError: the dataset is missing, damaged or incomplete.
    """
    recall_at = (1, 10, 20, 30)
    dataset = PublishedDataset(
        "inshop",
        "In-Shop Clothes Retrieval",
        Path(root),
        images,
        classes,
        recall_at,
        resolution=resolution,
    )
    return dataset.read_layout(LAYOUTS)


def read_any_resolution(root: str | Path, images: int = 52_712, classes: int = 7_982) -> ImageIndex:
    """Returns the index of In-Shop with the images of the papers, or else with the larger ones.

    Raises:
        UserError: as `read_inshop`.
    """
    try:
        return read_inshop(root, images, classes)
    except UserError as error:
        if not str(error).startswith("data.images"):
            raise
    return read_inshop(root, images, classes, "highres")


def _read_published(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_partition(dataset, folder, folder / PARTITION)


def _read_drive(dataset: PublishedDataset, folder: Path) -> ImageTable:
    return _read_partition(dataset, folder, find_part(folder, f"Eval/{PARTITION}"))


def _read_partition(dataset: PublishedDataset, folder: Path, partition: Path) -> ImageTable:
    # The first line is the number of images, the second names the columns.
    table = dataset.read_table(partition, sep=r"\s+", header=1, dtype=str)
    with dataset.reading(partition):
        images = _find_images(dataset, folder)
        # `img/WOMEN/…` below the folder that is read
        names = [name.partition("/")[2] for name in table["image_name"]]
        files = match_files(images, names)
        roles = table["evaluation_status"]
        unknown = sorted(set(roles) - set(STATUSES))
        if unknown:
            raise ValueError(f"roles: unknown {unknown[0]!r}; valid are {', '.join(STATUSES)}")
        garments = _find_garments(names, table["item_id"])
        return ImageTable(files, table["item_id"], roles, categories=garments)


def _find_garments(names: Iterable[str], items: Iterable[str]) -> list[str]:
    """Returns the garment of each image, one for all images of an item: that of most of them.

    Args:
        names: paths `WOMEN/Dresses/id_00000001/01_front.jpg`.
        items: the item of each image.
    """
    items = list(items)
    folders: dict[str, Counter[str]] = {}
    for name, item in zip(names, items, strict=True):
        garment = PurePosixPath(name).parent.parent.name
        folders.setdefault(item, Counter())[garment] += 1
    return [folders[item].most_common(1)[0][0] for item in items]


def _find_images(dataset: PublishedDataset, folder: Path) -> Path:
    """Returns the folder of the images in the resolution that is asked for.

    Raises:
        UserError: there are only images in the other resolution.
    """
    by_resolution = {key: locate(folder, f"Img/{name}") for key, name in IMAGES.items()}
    if not any(by_resolution.values()):  # else `img` would be Drive's folder of both
        by_resolution = {key: locate(folder, name) for key, name in IMAGES.items()}
    images = by_resolution[dataset.resolution]
    if images is not None:
        return images
    if dataset.resolution is not None:
        raise UserError(
            f"data.images: {folder} has no img_highres/, which the authors give after an "
            f"agreement; leave data.images out, or add the folder"
        )
    if by_resolution["highres"] is not None:
        raise UserError(
            f"data.images: {folder} has only img_highres/, other images than those of the papers; "
            f"data.images=highres reads them, or {dataset.advice}"
        )
    return folder / "img"


LAYOUTS = (
    Layout(
        "the published files",
        (PARTITION,),
        _read_published,
        ("inshop", "in-shop", "inshop_copy"),
        home="inshop",
    ),
    Layout(
        "the folders Img/ and Eval/",
        (f"Eval/{PARTITION}", "Img/img|Img/img_highres"),
        _read_drive,
    ),
)
