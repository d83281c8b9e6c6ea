"""Splits of a protocol into training, validation and test classes; by class, never shuffled.

Classes are contiguous labels 0..n−1 of a subset; `Subset.of_classes` returns their images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dml.data.image_index import ImageIndex

Folds = list[tuple[np.ndarray, np.ndarray]]


def split_in_halves(index: ImageIndex) -> ImageIndex:
    """Returns the index with the first half of all classes as `train` and the rest as `test`.

    This is MLRC's split (Musgrave et al., 2020): on SOP it moves one class, elsewhere it is the
    published one. An index with query and gallery, or with a user's own split, keeps it.
    """
    if index.own_split or np.isin(index.roles, ("query", "gallery")).any():
        return index
    classes = np.unique(index.labels)
    first = classes[: len(classes) // 2]
    return replace(index, roles=np.where(np.isin(index.labels, first), "train", "test"))


def mlrc_folds(num_classes: int) -> Folds:
    """Returns MLRC's four folds as (training classes, validation classes).

    Fold p trains on the n − v classes from int(p/4·n) on, wrapping around, and validates on the
    v = int(n/4) classes after those. Where n is not a multiple of 4, a few classes never validate.

    Args:
        num_classes: n ≥ 4 classes of the training half.
    """
    _check_count(num_classes, 4)
    size = num_classes // 4
    folds = []
    for part in range(4):
        ring = (int(part / 4 * num_classes) + np.arange(num_classes)) % num_classes
        folds.append((ring[: num_classes - size], ring[num_classes - size :]))
    return folds


def ccp_folds(num_classes: int, parts: int = 4) -> Folds:
    """Returns the folds of chance-constrained proxies: every class validates exactly once.

    The classes are cut at int(linspace(0, n, parts + 1)); the last block validates first.

    Args:
        num_classes: n ≥ `parts` classes of the training half.
        parts: number of folds.
    """
    _check_count(num_classes, parts)
    cuts = np.linspace(0, num_classes, parts + 1).astype(int)
    blocks = np.split(np.arange(num_classes), cuts[1:-1])
    return [(np.setdiff1d(np.arange(num_classes), block), block) for block in reversed(blocks)]


def single_split(num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns two thirds of the classes to train, the last third to validate (CCP's ablations)."""
    _check_count(num_classes, 4)  # of three, one would validate, and every score would be 100
    return ccp_folds(num_classes, parts=3)[0]


def _check_count(num_classes: int, parts: int) -> None:
    if num_classes < parts:
        raise ValueError(f"num_classes: {num_classes} classes cannot be cut into {parts} parts")


# The folds of each value of `protocol.splits`; without an entry, the test classes validate.
CLASS_FOLDS: dict[str, Callable[[int], Folds]] = {
    "mlrc": mlrc_folds,
    "ccp": ccp_folds,
    "holdout": lambda num_classes: [single_split(num_classes)],
}


def assign_halves(splits: str, index: ImageIndex) -> ImageIndex:
    """Returns the index with the train and test classes of a value of `protocol.splits`."""
    return split_in_halves(index) if splits == "mlrc" else index


def merge_query_and_gallery(index: ImageIndex) -> ImageIndex:
    """Query and gallery as one set of test images; without them the index as it is."""
    tested = np.isin(index.roles, ("query", "gallery"))
    return replace(index, roles=np.where(tested, "test", index.roles)) if tested.any() else index
