"""The content of a file of features, which tells a run that they have changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
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
