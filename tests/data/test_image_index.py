import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dml.data.image_index import (
    ImageIndex,
    StoredFeatures,
    join_box,
    read_states,
    split_box,
)
from dml.data.preparation.sources import SOURCES
from dml.data.readers.digits import read_digits
from dml.data.readers.folder import read_folder
from tests.data.trees import TREES, class_folders, save


def small_index() -> ImageIndex:
    images = np.arange(6 * 2 * 2 * 3, dtype=np.uint8).reshape(6, 2, 2, 3)
    labels = np.array([0, 2, 1, 2, 0, 3])
    roles = np.array(["train", "test", "train", "query", "train", "gallery"])
    return ImageIndex("small", images, labels, roles)


def test_subset_keeps_index_order_and_makes_labels_contiguous():
    subset = small_index().subset("test", "query", "gallery")
    assert subset.rows.tolist() == [1, 3, 5]
    assert subset.labels.tolist() == [0, 0, 1]
    assert subset.classes.tolist() == [2, 3]
    assert (len(subset), subset.num_classes) == (3, 2)
    assert subset.of_classes([1]).rows.tolist() == [5]
    assert subset.of_classes([0]).of_classes([0]).classes.tolist() == [2]


def trees(root: Path) -> dict[str, ImageIndex]:
    found = {}
    for name, build in TREES.items():
        build(root / name)
        found[name] = SOURCES[name].read(root / name, images=12, classes=4)
    class_folders(root / "folder")
    return {**found, "folder": read_folder(root / "folder")}


def test_same_dataset_in_another_place_has_the_same_fingerprint(tmp_path, monkeypatch):
    here = {name: index.fingerprint() for name, index in trees(tmp_path / "here").items()}
    there = {name: index.fingerprint() for name, index in trees(tmp_path / "there").items()}
    assert here == there
    assert len(set(here.values())) == len(here)
    assert all(len(value) == 16 and int(value, 16) >= 0 for value in here.values())
    monkeypatch.chdir(tmp_path)
    assert read_folder("here/folder").fingerprint() == here["folder"]


def test_everything_that_decides_a_result_changes_it(tmp_path: Path):
    class_folders(tmp_path)
    index = read_folder(tmp_path)
    labels, roles = index.labels.copy(), index.roles.copy()
    labels[1] = labels.max() + 1  # of a class of its own
    roles[labels == 0] = "test" if roles[0] == "train" else "train"
    roles[1] = index.roles[1]
    turned = [1, 0, *range(2, 12)]
    others = [
        replace(index, name="other", fingerprint_name=""),
        replace(index, labels=labels),
        replace(index, labels=labels, roles=roles),
        replace(index, images=[index.images[row] for row in turned]),
        replace(index, images=index.images[:-1], labels=labels[:-1], roles=roles[:-1]),
    ]
    found = {one.fingerprint() for one in [index, *others]}
    save(index.images[5], seed=7, size=(50, 30))
    found.add(read_folder(tmp_path).fingerprint())
    index.images[2].rename(index.images[2].with_name("renamed.jpg"))
    found.add(read_folder(tmp_path).fingerprint())
    assert len(found) == 8


def test_images_in_memory_count_by_their_pixels():
    digits = read_digits()
    changed = digits.images.copy()
    changed[100, 3, 3, 0] ^= 1
    assert digits.fingerprint() == read_digits().fingerprint()
    assert digits.fingerprint() != replace(digits, images=changed).fingerprint()
    assert digits.fingerprint() != replace(digits, images=changed[:, :, ::-1]).fingerprint()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_the_fingerprint_is_of_all_names_labels_and_roles(tmp_path, monkeypatch, count):
    """However few of them are in memory at once."""
    monkeypatch.setattr("dml.data.image_index.PART", 3)
    files = [tmp_path / f"ä{row}.png" for row in range(count)]
    for file in files:
        file.write_bytes(b"12345")
    labels, roles = np.arange(count), np.array(["train"] * count, str)
    index = ImageIndex("name", files, labels, roles, root=tmp_path)
    names = [file.name for file in files]
    content = json.dumps(["name", ["train"] * count, list(range(count)), names, [5] * count])
    if not count:  # no files, but any images
        content = json.dumps(["name", [], [], 0])
    assert index.fingerprint() == hashlib.sha256(content.encode()).hexdigest()[:16]


def test_sizes_of_files_count_from_the_first_to_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr("dml.data.image_index.SIZES", 3)
    files = [tmp_path / f"{row}.png" for row in range(7)]
    for file in files:
        file.write_bytes(b"12345")
    index = ImageIndex("name", files, np.arange(7), np.array(["train"] * 7))
    whole, changed = index.fingerprint(), []
    for file in files:
        file.write_bytes(b"1234")
        changed.append(index.fingerprint() != whole)
        file.write_bytes(b"12345")
    assert changed == [row in (0, 3, 6) for row in range(7)]


def test_lazy_images_count_from_the_first_to_the_last(monkeypatch):
    monkeypatch.setattr("dml.data.image_index.SAMPLE", 3)
    index = ImageIndex("x", [np.zeros((1, 1, 3), np.uint8)] * 7, np.arange(7), ["train"] * 7)
    whole, changed = index.fingerprint(), []
    for row in range(7):
        images = [*index.images]
        images[row] = np.ones((1, 1, 3), np.uint8)
        changed.append(replace(index, images=images).fingerprint() != whole)
    assert changed == [row in (0, 3, 6) for row in range(7)]


@pytest.mark.parametrize("part", ["plain", "views"])
def test_stored_features_count_from_the_first_to_the_last_with_every_view(part):
    plain, views = np.zeros((2998, 2), np.float32), np.zeros((2998, 3, 2), np.float32)

    def fingerprint():
        features = StoredFeatures(plain, views)
        labels = np.arange(2998) % 7
        roles = np.full(2998, "train")
        return ImageIndex("x", plain, labels, roles, features=features).fingerprint()

    known = {fingerprint()}
    array = {"plain": plain, "views": views[:, 2]}[part]
    for row in (0, 1500, 2997):
        array[row, 1] = 1
        known.add(fingerprint())
    assert len(known) == 4


@pytest.mark.parametrize("role", ["test", "query", "gallery"])
def test_a_class_is_trained_on_or_tested(role):
    images, labels = np.zeros((4, 1, 1, 3), np.uint8), np.array([0, 3, 3, 5])
    roles = np.array(["train", "train", role, role])
    with pytest.raises(ValueError, match="1 class with both training and test images"):
        ImageIndex("x", images, labels, roles)
    ImageIndex("x", images, labels, roles, shared_classes=True)
    unused = np.array(["train", "train", "unused", role])
    assert len(ImageIndex("x", images, labels, unused).subset("train")) == 2


def test_corners_of_a_box_are_rounded():
    name = join_box(Path("a/b#1.jpg"), (1.6, -3.7, 10.4, 19.5))
    assert split_box(name) == (Path("a/b#1.jpg"), (2, 0, 10, 20))


def test_categories_of_equal_letters_are_one():
    names = [" caf\u00e9 ", "cafe\u0301", "nan", "None", None, float("nan"), 7]
    images, labels = np.zeros((7, 1, 1, 3), np.uint8), np.arange(7)
    index = ImageIndex("x", images, labels, np.full(7, "train"), categories=names)
    assert index.categories.tolist() == ["caf\u00e9", "caf\u00e9", "nan", "None", "", "", "7"]


def test_states_are_those_of_the_file_that_holds_an_image(tmp_path):
    """One after the other, where the name of one file is the beginning of the next one's."""
    sizes = {"a.tar": 5, "a.tar#.tar": 7, "a.tar.tar": 9, "b.jpg": 11, "b.jpg.jpg": 13}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    names = ["a.tar#0+2/x.jpg", "a.tar#2+2/y.jpg", "a.tar.tar#0+3/x.jpg", "a.tar#.tar#0+3/x.jpg"]
    names += ["b.jpg", "b.jpg#1,2,3,4", "b.jpg.jpg", "b.jpg.jpg#1,2,3,4", "a.tar#0+2/x.jpg"]
    states = read_states([tmp_path / name for name in names])
    assert [size for size, _ in states] == [5, 5, 9, 7, 11, 11, 13, 13, 5]
