"""Closed sets: the images of each class are divided, whatever their order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.core.errors import UserError
from dml.data.closed_set import (
    Shares,
    count_held_out,
    describe_parts,
    divide_classes,
    leave_out_untrained,
)
from dml.data.image_index import ImageIndex
from dml.data.preparation.image_check import exclude_undecodable
from dml.data.protocol import create_jobs, protocol_test, trained_classes
from dml.data.protocol_splits import take_part
from dml.data.readers.folder import read_folder
from tests.data.trees import class_folders, save

USUAL = Shares(0.2, 0.2, 0)
PERCENT = st.integers(1, 60)


def index_of(counts, roles="train", **more):
    """Classes with these numbers of images, named by class and number."""
    labels = np.repeat(np.arange(len(counts)), counts)
    images = [Path(f"/photos/{label}/{row}.jpg") for row, label in enumerate(labels)]
    return ImageIndex(
        "photos",
        images,
        labels,
        np.broadcast_to(roles, len(labels)).copy(),
        root=Path("/photos"),
        class_names=tuple(f"class {label}" for label in range(len(counts))),
        **more,
    )


def names(index, *roles):
    return {str(index.images[row]) for row in np.flatnonzero(np.isin(index.roles, roles))}


@pytest.mark.parametrize(
    ("images", "shares", "expected"),
    [
        (3, USUAL, (0, 0)),  # two train, and neither part has one
        (4, USUAL, (1, 1)),
        (5, USUAL, (1, 1)),
        (8, USUAL, (2, 2)),  # 1.6
        (10, USUAL, (2, 2)),
        (100, USUAL, (20, 20)),
        (100, Shares(0.25, 0.1, 0), (25, 10)),
        (10, Shares(0.25, 0.05, 0), (3, 1)),  # a half is rounded up
        (4, Shares(0.5, 0.4, 0), (1, 1)),  # two stay for training
        (5, Shares(0.8, 0.1, 0), (2, 1)),
        (6, Shares(0, 0.3, 0), (0, 2)),  # of a user's split
        (2, Shares(0, 0.3, 0), (0, 0)),
    ],
)
def test_numbers_of_test_and_validation_images(images, shares, expected):
    assert count_held_out(images, shares) == expected


@settings(deadline=None)
@given(st.integers(0, 300), PERCENT, PERCENT.filter(lambda percent: percent < 40))
def test_no_class_is_tested_without_training(images, of_test, of_validation):
    test, validation = of_test / 100, of_validation / 100
    tested, validated = count_held_out(images, Shares(test, validation, 0))
    trained = images - tested - validated
    if images < 4:
        assert tested == validated == 0
        return
    assert min(tested, validated) >= 1
    assert trained >= 2
    if trained > 2:  # else images were lacking
        assert abs(tested - test * images) <= max(0.5, 1 - test * images) + 1e-9
        assert abs(validated - validation * images) <= max(0.5, 1 - validation * images) + 1e-9


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=6),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_the_order_of_files_does_not_matter(counts, seed, random):
    index = index_of(counts)
    shares = Shares(0.25, 0.2, seed)
    divided = divide_classes(index, shares)
    order = list(range(len(index.labels)))
    random.shuffle(order)
    shuffled = replace(
        index,
        images=[index.images[row] for row in order],
        labels=index.labels[order],
        roles=index.roles[order],
    )
    other = divide_classes(shuffled, shares)
    assert other.roles.tolist() == divided.roles[order].tolist()
    assert set(divided.roles) <= {"train", "validation", "test"}
    for label, images in enumerate(counts):
        roles = divided.roles[divided.labels == label].tolist()
        parts = roles.count("test"), roles.count("validation")
        assert parts == count_held_out(images, shares)


def test_seeds_choose_other_images_and_moved_folders_the_same():
    index = index_of([20, 20])
    first, second = (divide_classes(index, Shares(0.2, 0.2, seed)) for seed in (0, 1))
    assert names(first, "test") != names(second, "test")
    moved = [Path("/elsewhere") / path.relative_to("/photos") for path in index.images]
    there = divide_classes(replace(index, images=moved, root=Path("/elsewhere")), USUAL)
    assert there.roles.tolist() == first.roles.tolist()


def test_a_list_of_relative_paths_divides_the_same_wherever_it_is(tmp_path):
    """Its images may be beside its folder."""
    divided = []
    for home in ("anna", "ben/deeper"):
        project = tmp_path / home
        (project / "lists").mkdir(parents=True)
        class_folders(project / "photos", classes=2, per_class=12)
        files = sorted((project / "photos").rglob("*.jpg"))
        lines = [f"../{file.relative_to(project)},{file.parent.name}" for file in files]
        (project / "lists" / "photos.csv").write_text("\n".join(["path,label", *lines]) + "\n")
        index = read_folder(project / "lists" / "photos.csv", shared_classes=True)
        assert index.relative_files[0].startswith("../photos/")
        parts = divide_classes(index, USUAL)
        divided.append((parts.roles.tolist(), parts.fingerprint()))
    assert divided[0] == divided[1]


def test_images_in_memory_are_known_by_their_pixels():
    pixels = np.arange(20 * 12, dtype=np.uint8).reshape(20, 2, 2, 3)
    labels = np.repeat([0, 1], 10)
    index = ImageIndex("x", pixels, labels, np.full(20, "train"))
    divided = divide_classes(index, USUAL)
    turned = divide_classes(replace(index, images=pixels[::-1], labels=labels[::-1]), USUAL)
    assert turned.roles[::-1].tolist() == divided.roles.tolist()


def test_all_classes_are_divided_whatever_the_published_split():
    roles = np.repeat(["train", "query", "gallery", "unused"], 8)
    index = index_of([16, 8, 8], "train")
    published = replace(index, roles=roles, labels=np.repeat([0, 1, 1, 2], 8))
    divided = divide_classes(published, USUAL)
    assert set(divided.roles[:24]) == {"train", "validation", "test"}
    assert set(divided.roles[24:]) == {"unused"}
    assert trained_classes("closed_set", divided) == ["class 0", "class 1"]
    assert divided.notes == ()


def test_a_split_of_classes_of_a_user_is_divided_with_a_note():
    roles = np.repeat(["train", "test"], 8)
    divided = divide_classes(index_of([8, 8], roles, own_split=True), USUAL)
    assert (divided.roles == "test").sum() == 4
    assert "divides the images of all classes" in divided.notes[0]


def test_a_split_of_images_of_a_user_is_kept():
    roles = ["train"] * 6 + ["test"] * 2 + ["train"] * 2 + ["query", "gallery"] + ["test"] * 3
    index = index_of([8, 4, 3], roles, own_split=True, shared_classes=True)
    divided = divide_classes(index, Shares(0.9, 0.3, 0))
    assert divided.roles[6:8].tolist() == ["test"] * 2
    assert sorted(divided.roles[:6].tolist()) == ["train"] * 4 + ["validation"] * 2
    assert divided.roles[8:].tolist() == ["train"] * 2 + ["test"] * 2 + ["unused"] * 3
    assert "3 test images of 1 class without training images left out" in divided.notes[0]


def test_images_that_are_only_to_be_scored_stay_as_they_are():
    index = index_of([4, 4], ["query", "gallery"] * 4, own_split=True)
    assert divide_classes(index, USUAL) is index


def test_jobs_have_the_three_parts_of_each_class():
    divided = divide_classes(index_of([10, 10, 3]), USUAL)
    (job,) = create_jobs("closed_set", 1, divided)
    assert job.train.classes.tolist() == [0, 1, 2]
    assert job.test.query.classes.tolist() == job.validation.query.classes.tolist() == [0, 1]
    assert job.test.gallery is job.validation.gallery is None
    parts = [job.train.rows, job.validation.query.rows, job.test.query.rows]
    assert sorted(np.concatenate(parts).tolist()) == list(range(23))
    assert protocol_test("closed_set", divided).query.rows.tolist() == parts[2].tolist()
    assert describe_parts(divided)[1].startswith("data: 1 of 3 classes has no test images")


@pytest.mark.parametrize(
    ("counts", "shares", "option"),
    [
        ([3, 3], USUAL, "a larger protocol.test_share"),
        ([6, 6], Shares(0.1, 0.4, 0), "a larger protocol.test_share"),
        ([6, 6], Shares(0.4, 0.1, 0), "a larger protocol.validation_share"),
    ],
)
def test_a_part_without_two_images_of_a_class_is_refused(counts, shares, option):
    with pytest.raises(UserError, match=option):
        create_jobs("closed_set", 1, divide_classes(index_of(counts), shares))


def test_classes_whose_training_images_are_gone_are_not_tested():
    divided = divide_classes(index_of([8, 8]), USUAL)
    gone = (divided.labels == 1) & (divided.roles == "train")
    left = leave_out_untrained(replace(divided, roles=np.where(gone, "unused", divided.roles)))
    assert set(left.labels[left.roles == "test"]) == {0}
    assert set(left.labels[left.roles == "validation"]) == {0}
    assert leave_out_untrained(divided) is divided


def test_a_part_of_the_classes_is_the_first_ones():
    divided = divide_classes(index_of([8] * 6), USUAL)
    part = take_part(divided, classes=3, per_class=1)
    assert sorted(set(part.labels[part.roles != "unused"])) == [0, 1, 2]
    assert [(part.roles == role).sum() for role in ("train", "validation", "test")] == [3, 3, 3]


def test_a_validation_role_is_of_closed_sets_only():
    with pytest.raises(ValueError, match="unknown 'validation'"):
        index_of([4, 4], "validation")


def test_folders_with_the_same_classes_in_training_and_test(tmp_path):
    for split, label, item in np.ndindex(2, 2, 4):
        folder = tmp_path / "photos" / ("train", "test")[split] / f"class_{label}"
        save(folder / f"{item}.jpg", 100 * split + 10 * label + item)
    with pytest.raises(UserError, match="protocol=closed_set"):
        read_folder(tmp_path / "photos")
    index = read_folder(tmp_path / "photos", shared_classes=True)
    divided = divide_classes(index, USUAL)
    assert names(divided, "test") == names(index, "test")
    assert len(names(divided, "validation")) == 2


@pytest.mark.promise(
    "guides/own_images.md",
    "a test image of a closed set is a training image too, pixel for pixel: a note counts such "
    "copies",
)
def test_copies_of_training_images_in_the_test_are_counted(tmp_path):
    photos = class_folders(tmp_path / "photos", classes=2, per_class=10)
    divided = divide_classes(read_folder(photos, shared_classes=True), USUAL)
    clean = exclude_undecodable(divided, False, tmp_path)
    assert clean.notes == ()
    tested = np.flatnonzero(divided.roles == "test")
    for row in tested[:2]:
        same = (divided.labels == divided.labels[row]) & (divided.roles == "train")
        source = divided.images[np.flatnonzero(same)[0]]
        divided.images[row].write_bytes(source.read_bytes())
    (note,) = exclude_undecodable(divided, False, tmp_path).notes
    assert note.startswith("data: 2 images for validation or test are also in training")
    assert str(divided.images[tested[0]]) in note
