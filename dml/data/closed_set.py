"""Closed-set split: the images of every class are divided into training, validation and test.

The classes of the test are those of the training, as in the identification of known products or
persons. Retrieval of unseen classes asks another question; see `dml.data.protocol_splits`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dml.core.counts import count_of, verb_for
from dml.data.image_index import HELD_OUT, TESTED, ImageIndex

LEAST_TRAINED = 2  # images of a class: losses of pairs need two, and all losses get the same images
LEAST_DIVIDED = LEAST_TRAINED + 2  # images of a class that also has a test and a validation image


@dataclass(frozen=True)
class Shares:
    """How the images of a class are divided.

    Attributes:
        test, validation: shares of the images of a class, 0–1; the others are for training.
        seed: of the choice of the images.
    """

    test: float
    validation: float
    seed: int


def divide_classes(index: ImageIndex, shares: Shares) -> ImageIndex:
    """Returns the index with the roles `train`, `validation` and `test` in each class.

    All classes of the dataset are divided, whether its own split is of classes or not. Which images
    of a class are held out depends on their names below the folder of the dataset and on the seed,
    not on their order; images in memory count by their pixels. A user's split is kept where classes
    are in both training and test: only the validation images are taken from those for training.
    An index of a user that has no training images, to be scored only, is returned unchanged.

    A class with n images has round(share · n) for test and for validation, at least one of each,
    and at least two for training. Classes with fewer than four images are for training only.

    Args:
        index: the dataset; images of the role `unused` stay out.
        shares: of test and validation.
    """
    trained = index.roles == "train"
    tested = np.isin(index.roles, TESTED)
    if index.own_split and not trained.any():
        return index
    shared = np.intersect1d(index.labels[trained], index.labels[tested])
    keys = np.array(_hash_images(index, shares.seed))
    notes = list(index.notes)
    if index.own_split and len(shared):
        roles = np.where(tested, "test", index.roles).astype("<U10")
        _hold_out(roles, index.labels, trained, keys, Shares(0, shares.validation, shares.seed))
    else:
        if index.own_split:
            notes.append(
                "data: the split has other classes in training than in test; this protocol "
                "divides the images of all classes instead"
            )
        used = index.roles != "unused"
        roles = np.where(used, "train", "unused").astype("<U10")
        _hold_out(roles, index.labels, used, keys, shares)
    divided = replace(index, roles=roles, notes=tuple(notes), shared_classes=True)
    return leave_out_untrained(divided)


def _hold_out(
    roles: np.ndarray, labels: np.ndarray, usable: np.ndarray, keys: np.ndarray, shares: Shares
) -> None:
    """Gives the roles `test` and `validation` to a part of the usable images of each class."""
    for label in np.unique(labels[usable]):
        rows = np.flatnonzero(usable & (labels == label))
        rows = rows[np.argsort(keys[rows], kind="stable")]
        tested, validated = count_held_out(len(rows), shares)
        roles[rows[:tested]] = "test"
        roles[rows[tested : tested + validated]] = "validation"


def count_held_out(images: int, shares: Shares) -> tuple[int, int]:
    """Returns the numbers of test and of validation images of a class.

    Args:
        images: of the class.
        shares: of test and validation; a share of 0 holds out none.
    """
    parts = int(shares.test > 0) + int(shares.validation > 0)
    spare = images - LEAST_TRAINED
    if spare < parts:
        return 0, 0
    tested = validated = 0
    if shares.test > 0:
        tested = max(1, int(shares.test * images + 0.5))
        tested = min(tested, spare - (parts - 1))
    if shares.validation > 0:
        validated = max(1, int(shares.validation * images + 0.5))
        validated = min(validated, spare - tested)
    return tested, validated


def leave_out_untrained(index: ImageIndex) -> ImageIndex:
    """Returns the index without held-out images of classes that have no training images.

    They are none of a closed set: of a user's split, or after damaged images were left out. An
    index without training images, to be scored only, is returned unchanged.
    """
    held = np.isin(index.roles, HELD_OUT)
    trained = np.unique(index.labels[index.roles == "train"])
    unknown = held & ~np.isin(index.labels, trained)
    if not unknown.any() or not len(trained):
        return index
    classes = len(np.unique(index.labels[unknown]))
    images = count_of(int(unknown.sum()), "test image")
    note = (
        f"data: {images} of {count_of(classes, 'class')} without training images left out: no "
        f"class of a closed set is unseen"
    )
    roles = np.where(unknown, "unused", index.roles)
    return replace(index, roles=roles, notes=(*index.notes, note))


def describe_parts(index: ImageIndex) -> list[str]:
    """Returns notes on a divided index: how many images each part has, and classes without test."""
    counts = {role: int((index.roles == role).sum()) for role in ("train", "validation", "test")}
    trained = np.unique(index.labels[index.roles == "train"])
    tested = np.unique(index.labels[index.roles == "test"])
    notes = [
        f"closed set: {counts['train']} images train, {counts['validation']} select the epoch and "
        f"{counts['test']} test, of the same classes; do not compare with scores of unseen classes"
    ]
    untested = len(trained) - len(tested)
    if untested:
        have = verb_for(untested, "has", "have")
        notes.append(
            f"data: {untested} of {len(trained)} classes {have} no test images; a class with fewer "
            f"than {LEAST_DIVIDED} images is for training only"
        )
    return notes


def _hash_images(index: ImageIndex, seed: int) -> list[str]:
    """Returns a text per image whose order is random, but follows from the image and the seed."""
    hashes = []
    for name in _name_images(index):
        content = f"{seed} {name}".encode(errors="surrogateescape")
        hashes.append(hashlib.sha256(content).hexdigest())
    return hashes


def _name_images(index: ImageIndex) -> Sequence[str]:
    """Returns a name per image: its path in the dataset, its pixels, or else its number."""
    names = index.relative_files
    if names is not None:
        return [name.replace(os.sep, "/") for name in names]
    images = index.images
    if isinstance(images, np.ndarray) and images.dtype != object:
        return [hashlib.sha256(image.tobytes()).hexdigest() for image in images]
    return [str(row) for row in range(len(images))]
