"""iNaturalist-2018 with the split of Smooth-AP's authors for retrieval (Brown et al., 2020).

325,846 training and 136,093 test images of different species, 8,142 in all.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.readers.layouts import ImageTable, Layout, find_part, match_files
from dml.data.readers.published_dataset import PublishedDataset

TRAIN_IMAGES = 325_846
TEST_IMAGES = 136_093
IMAGES = 461_939
IMAGE_FOLDER = "train_val2018"
SPLITS = {
    "train": "Inat_dataset_splits/Inaturalist_train_set1.txt|Inaturalist_train_set1.txt",
    "test": "Inat_dataset_splits/Inaturalist_test_set1.txt|Inaturalist_test_set1.txt",
}


def read_inat(root: str | Path, images: int = IMAGES, classes: int = 8_142) -> ImageIndex:
    """Returns the index of iNaturalist-2018: a class is a folder `<super category>/<category>`.

    The categories of the index are the super categories.

    Args:
        root: the folder that contains `inat/`.
        images, classes: expected counts.

    Raises:
        UserError: the dataset is missing, damaged or incomplete, or its split is not the published
            one.
    """
    recall_at = (1, 4, 16, 32)
    dataset = PublishedDataset("inat", "iNaturalist-2018", Path(root), images, classes, recall_at)
    return dataset.read_layout(LAYOUTS)


def _read_splits(dataset: PublishedDataset, folder: Path) -> ImageTable:
    """Returns the table of images that the two files of the split list, a path a line."""
    names: list[str] = []
    labels: list[str] = []
    roles: list[str] = []
    categories: list[str] = []
    for role, part in SPLITS.items():
        path = find_part(folder, part)
        with dataset.reading(path):
            lines = path.read_text(encoding="utf-8").split()
            for line in lines:
                super_category, category, image = PurePosixPath(line).parts[-3:]
                names.append(f"{super_category}/{category}/{image}")
                labels.append(f"{super_category}/{category}")
                roles.append(role)
                categories.append(super_category)
    if dataset.images == len(roles) == IMAGES:
        _check_split(dataset, roles.count("train"))
    files = match_files(find_part(folder, IMAGE_FOLDER), names)
    return ImageTable(files, labels, roles, categories=categories)


def _check_split(dataset: PublishedDataset, training: int) -> None:
    """Raises UserError unless the published number of all images is listed for training."""
    if training != TRAIN_IMAGES:
        raise UserError(
            f"data.root: the split of {dataset.title} under {dataset.root} lists {training:,} "
            f"training images instead of {TRAIN_IMAGES:,}; {dataset.advice}"
        )


LAYOUTS = (
    Layout("the published files", (*SPLITS.values(), IMAGE_FOLDER), _read_splits, home="inat"),
)
