from dataclasses import replace

import numpy as np
import pytest

from dml.data.image_index import ImageIndex
from dml.data.protocol_splits import (
    assign_halves,
    ccp_folds,
    mlrc_folds,
    split_in_halves,
    take_part,
)

# Validation classes (first, last) fold by fold, as the protocol prints them.
MLRC = {
    100: [(75, 99), (0, 24), (25, 49), (50, 74)],
    98: [(74, 97), (0, 23), (25, 48), (49, 72)],
    11_317: [(8488, 11_316), (0, 2828), (2829, 5657), (5658, 8486)],
}
SIZES = {100: (75, 25), 98: (74, 24), 11_317: (8488, 2829)}


@pytest.mark.parametrize("classes", MLRC)
def test_mlrc_folds_are_the_printed_ones(classes: int):
    folds = mlrc_folds(classes)
    assert [(val[0], val[-1]) for _, val in folds] == MLRC[classes]
    for train, validation in folds:
        assert (len(train), len(validation)) == SIZES[classes]
        assert np.array_equal(validation, np.arange(validation[0], validation[-1] + 1))
        assert sorted([*train, *validation]) == list(range(classes))


@pytest.mark.parametrize(("classes", "never"), [(100, []), (98, [24, 73]), (11_317, [8487])])
def test_classes_that_mlrc_never_validates(classes: int, never: list[int]):
    validated = np.concatenate([validation for _, validation in mlrc_folds(classes)])
    assert np.setdiff1d(np.arange(classes), validated).tolist() == never


def test_ccp_validates_every_class_once_from_the_last_block_on():
    blocks = [(val[0], val[-1]) for _, val in ccp_folds(98)]
    assert blocks == [(73, 97), (49, 72), (24, 48), (0, 23)]
    for classes in (98, 100, 11_318, 7):
        folds = ccp_folds(classes)
        everything = np.concatenate([validation for _, validation in folds])
        assert sorted(everything) == list(range(classes))
        for train, validation in folds:
            assert sorted([*train, *validation]) == list(range(classes))


def index(labels: list[int], roles: list[str]) -> ImageIndex:
    images = np.zeros((len(labels), 1, 1, 3), np.uint8)
    return ImageIndex("x", images, np.array(labels), np.array(roles))


def test_halving_counts_classes_and_not_what_was_published():
    published = index([0, 1, 1, 2, 3], ["train"] * 4 + ["test"])
    assert split_in_halves(published).roles.tolist() == ["train"] * 3 + ["test"] * 2
    assert published.roles.tolist() == ["train"] * 4 + ["test"]
    odd = split_in_halves(index([0, 1, 2, 3, 4], ["train"] * 5))  # the test half has one more
    assert odd.roles.tolist() == ["train"] * 2 + ["test"] * 3


def test_query_and_gallery_and_the_split_of_a_user_are_kept():
    inshop = index([0, 1, 2, 2], ["train", "train", "query", "gallery"])
    drawn = replace(index([0, 1, 2, 2], ["test", "test", "train", "train"]), own_split=True)
    for kept in (inshop, drawn):
        assert split_in_halves(kept).roles.tolist() == kept.roles.tolist()


def test_a_part_of_a_dataset_stands_in_for_it_and_keeps_its_halves():
    roles = np.array(["train"] * 6 + ["query", "gallery", "gallery"] * 2)
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])
    index = ImageIndex("x", np.zeros((12, 1, 1, 3), np.uint8), labels, roles)
    part = take_part(index, classes=2, per_class=None)
    assert (part.stand_in, np.flatnonzero(part.roles != "unused").tolist()) == (
        True,
        [0, 1, 2, 6, 7, 8],
    )
    odd = take_part(index, classes=3, per_class=None)  # the odd class is trained on
    kept = odd.roles != "unused"
    assert len(set(odd.labels[kept & (odd.roles == "train")])) == 2
    assert len(set(odd.labels[kept & (odd.roles != "train")])) == 1
    few = take_part(index, classes=None, per_class=1)  # of each role
    assert np.flatnonzero(few.roles != "unused").tolist() == [0, 3, 6, 7, 9, 10]
    plain = ImageIndex("x", index.images, labels, np.repeat(["train", "test"], 6))
    halves = split_in_halves(take_part(plain, classes=2, per_class=2))
    assert halves.roles.tolist()[:3] + halves.roles.tolist()[6:9] == [
        *("train", "train", "unused", "test", "test", "unused")
    ]
    assert set(halves.roles[3:6]) == {"unused"}


def test_all_images_but_the_unused_ones_are_trained_on():
    roles = ["train", "test", "unused", "query", "gallery"]
    everything = assign_halves("all", index([0, 1, 2, 3, 3], roles))
    assert everything.roles.tolist() == ["train", "train", "unused", "train", "train"]


def test_a_part_of_shared_classes_is_of_the_first_ones_that_are_used():
    labels, roles = [0, 1, 1, 2, 2, 5, 5], ["unused", *["train", "test"] * 3]
    images = np.zeros((7, 1, 1, 3), np.uint8)
    shared = ImageIndex("x", images, np.array(labels), np.array(roles), shared_classes=True)
    part = take_part(shared, classes=2, per_class=None)
    assert np.flatnonzero(part.roles != "unused").tolist() == [1, 2, 3, 4]
