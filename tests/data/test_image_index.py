import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dml.data.image_index import ImageIndex
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
