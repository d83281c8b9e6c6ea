"""Splits of a protocol into training, validation and test classes, without shuffling.

Classes are contiguous labels 0..n−1 of a subset; `Subset.of_classes` returns their images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dml.data.image_index import TESTED, ImageIndex

Folds = list[tuple[np.ndarray, np.ndarray]]


def split_in_halves(index: ImageIndex) -> ImageIndex:
    """Returns the index with the first half of all classes as `train` and the second as `test`.

    This is MLRC's split (Musgrave et al., 2020): it differs from the published one by one class on
    SOP, and is equal on CUB and Cars. An index with query and gallery, or with a user's split, is
    returned unchanged.
    """
    if index.own_split or np.isin(index.roles, ("query", "gallery")).any():
        return index
    used = index.roles != "unused"
    classes = np.unique(index.labels[used])
    first = classes[: len(classes) // 2]
    halves = np.where(np.isin(index.labels, first), "train", "test")
    return replace(index, roles=np.where(used, halves, "unused"))


def mlrc_folds(num_classes: int) -> Folds:
    """Returns MLRC's four folds as (training classes, validation classes).

    Fold p trains on n − v classes, starting at int(p/4·n) and wrapping around, and validates on the
    v = int(n/4) next classes. If n is not a multiple of 4, a few classes are never in validation.

    Args:
        num_classes: n ≥ 4 classes of the training half.
    """
    size = num_classes // 4
    folds = []
    for part in range(4):
        ring = (int(part / 4 * num_classes) + np.arange(num_classes)) % num_classes
        folds.append((ring[: num_classes - size], ring[num_classes - size :]))
    return folds


def ccp_folds(num_classes: int, parts: int = 4) -> Folds:
    """Returns the folds of chance-constrained proxies: every class is in validation exactly once.

    The classes are cut at int(linspace(0, n, parts + 1)); the first fold validates on the last
    block.

    Args:
        num_classes: n ≥ `parts` classes of the training half.
        parts: number of folds.
    """
    cuts = np.linspace(0, num_classes, parts + 1).astype(int)
    blocks = np.split(np.arange(num_classes), cuts[1:-1])
    return [(np.setdiff1d(np.arange(num_classes), block), block) for block in reversed(blocks)]


def single_split(num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first two thirds of the classes and the last third, for validation (ccp)."""
    return ccp_folds(num_classes, parts=3)[0]


# The folds of each value of `protocol.splits`; without an entry, test classes validate.
CLASS_FOLDS: dict[str, Callable[[int], Folds]] = {
    "mlrc": mlrc_folds,
    "ccp": ccp_folds,
    "holdout": lambda num_classes: [single_split(num_classes)],
}


def assign_halves(splits: str, index: ImageIndex) -> ImageIndex:
    """Returns the index with the train and test classes of a value of `protocol.splits`."""
    if splits == "all":
        return replace(index, roles=np.where(index.roles == "unused", "unused", "train"))
    return split_in_halves(index) if splits == "mlrc" else index


def take_part(index: ImageIndex, classes: int | None, per_class: int | None) -> ImageIndex:
    """Returns the index reduced to a part, a stand-in: all other images have the role `unused`.

    Args:
        index: the dataset.
        classes: number of classes to keep, half of them, rounded up, for training; None: all. Of
            classes that are in both training and test, the first ones are kept.
        per_class: maximum number of images of a class in each role; None: all.
    """
    used = np.ones(len(index.labels), bool)
    if classes is not None and index.shared_classes:
        used &= np.isin(index.labels, np.unique(index.labels[index.roles != "unused"])[:classes])
    elif classes is not None:
        trained = index.roles == "train"
        tested = np.isin(index.roles, TESTED)
        parts = ((trained, (classes + 1) // 2), (tested, classes // 2))
        kept = [np.unique(index.labels[rows])[:count] for rows, count in parts]
        used &= np.isin(index.labels, np.concatenate(kept))
    if per_class is not None:
        for label, role in {*zip(index.labels.tolist(), index.roles.tolist(), strict=True)}:
            rows = np.flatnonzero((index.labels == label) & (index.roles == role))
            used[rows[per_class:]] = False
    return replace(index, roles=np.where(used, index.roles, "unused"), stand_in=True)


def merge_query_and_gallery(index: ImageIndex) -> ImageIndex:
    """Returns the index with query and gallery images as `test` images."""
    tested = np.isin(index.roles, ("query", "gallery"))
    return replace(index, roles=np.where(tested, "test", index.roles)) if tested.any() else index
