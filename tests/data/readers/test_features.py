"""The content of a file of features, which tells a run that they have changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.data.closed_set import Shares, divide_classes
from dml.data.readers.features import hash_features, read_features

ARRAYS = {
    "embeddings": np.arange(12, dtype=np.float32).reshape(4, 3),
    "labels": np.array(["a", "a", "b", "b"]),
    "splits": np.array(["train", "train", "test", "test"]),
    "paths": np.array(["1.png", "2.png", "3.png", "4.png"]),
}


def write(path: Path, **changed: np.ndarray) -> str:
    np.savez(path, **{**ARRAYS, **changed})
    return hash_features(path)


def test_equal_arrays_have_equal_content_wherever_they_are(tmp_path: Path):
    first = write(tmp_path / "a.npz")
    moved = np.array(["/elsewhere/1.png"] * 4)
    assert write(tmp_path / "b.npz", paths=moved, made_by=np.array("{}")) == first
    np.savez_compressed(tmp_path / "c.npz", **ARRAYS)
    assert hash_features(tmp_path / "c.npz") == first


PATHS = {
    "relative": lambda class_name, number: f"photos/{class_name}/{number}.jpg",
    "above": lambda class_name, number: f"../photos/{class_name}/{number}.jpg",
    "absolute": lambda class_name, number: f"/data/photos/{class_name}/{number}.jpg",
    "mixed": lambda class_name, number: f"{'/data/' * (number % 2)}{class_name}/{number}.jpg",
}


@pytest.mark.parametrize("kind", PATHS)
def test_a_closed_set_is_the_same_in_each_current_folder(tmp_path, monkeypatch, kind):
    labels = np.repeat(["a", "b"], 12)
    paths = np.array([PATHS[kind](label, row) for row, label in enumerate(labels)])
    path = tmp_path / "features.npz"
    np.savez(path, embeddings=np.eye(24, dtype="f4"), labels=labels, paths=paths)
    divided = []
    for name in ("here", "elsewhere/below"):
        (tmp_path / name).mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        index = divide_classes(read_features(path, shared_classes=True), Shares(0.2, 0.2, 0))
        divided.append((index.roles.tolist(), index.fingerprint()))
    assert divided[0] == divided[1]
    assert {"train", "validation", "test"} == set(divided[0][0])


def test_a_closed_set_is_the_same_wherever_the_images_are(tmp_path):
    labels = np.repeat(["a", "b"], 12)
    roles = set()
    for kind in ("relative", "absolute"):
        paths = np.array([PATHS[kind](label, row) for row, label in enumerate(labels)])
        np.savez(tmp_path / f"{kind}.npz", embeddings=np.eye(24), labels=labels, paths=paths)
        index = read_features(tmp_path / f"{kind}.npz", shared_classes=True)
        roles.add(tuple(divide_classes(index, Shares(0.2, 0.2, 0)).roles))
    assert len(roles) == 1


@pytest.mark.parametrize("name", ["embeddings", "labels", "splits", "views"])
def test_a_changed_array_changes_the_content(tmp_path: Path, name: str):
    if name == "views":
        changed = ARRAYS["embeddings"][:, None]
    else:
        changed = ARRAYS[name].copy()
        changed[-1] = changed[0]
    assert write(tmp_path / "a.npz", **{name: changed}) != write(tmp_path / "b.npz")


def test_another_file_has_no_content(tmp_path: Path):
    (tmp_path / "a.npz").write_text("no archive")
    assert hash_features(tmp_path / "a.npz") == ""


@pytest.mark.parametrize("name", ["embeddings", "views"])
def test_rows_that_are_not_finite_are_named(tmp_path, name):
    arrays = {"embeddings": np.zeros((9000, 2), "f4"), "views": np.zeros((9000, 3, 2), "f4")}
    arrays[name][5000] = np.nan
    arrays[name][7000] = np.inf
    path = tmp_path / "features.npz"
    np.savez(path, labels=np.arange(9000) % 4, **arrays)
    with pytest.raises(UserError, match=rf"features\.npz: {name}: row 5000 \(from 0\) is NaN"):
        read_features(path)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_features_of_another_type_are_named(tmp_path, dtype):
    path = tmp_path / "features.npz"
    np.savez(path, labels=np.arange(8) % 4, embeddings=np.ones((8, 2), dtype))
    with pytest.raises(UserError, match=rf"got {dtype} of shape \(8, 2\); embeddings\.astype"):
        read_features(path)
