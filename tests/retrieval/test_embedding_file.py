"""Files of other software: read, or one line."""

import json

import numpy as np
import pandas as pd
import pytest

from dml.core.errors import UserError
from dml.retrieval import embedding_file
from dml.retrieval.embedding_file import ImageEmbeddings, open_embeddings, write_embeddings

POINTS = np.eye(3, dtype=np.float32)


def stored(tmp_path, **arrays):
    np.savez(tmp_path / "x.npz", **{"embeddings": POINTS} | arrays)
    return open_embeddings(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("paths", "texts"),
    [
        (np.array([7, 8, 9]), ["7", "8", "9"]),
        (np.array(["ä".encode(), b"b", b"c\xff"]), ["ä", "b", "c\udcff"]),
        (np.array([["a"], ["b"], ["c"]]), ["a", "b", "c"]),
    ],
)
def test_paths_of_other_types(tmp_path, paths, texts):
    assert stored(tmp_path, paths=paths).paths.tolist() == texts


@pytest.mark.parametrize("rows", [1, 6, 7, 8, 20])
def test_a_parquet_file_in_parts_holds_all_rows(tmp_path, monkeypatch, rows):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(embedding_file, "ROWS", 7)
    points = np.random.default_rng(0).standard_normal((rows, 3)).astype(np.float32)
    views = np.stack([points, -points], axis=1)
    labels = np.array([f"class {row % 3}" for row in range(rows)])
    made = ImageEmbeddings(points, np.arange(rows).astype(str), labels, {}, views)
    write_embeddings(tmp_path / "x.parquet", made)
    read = open_embeddings(tmp_path / "x.parquet")
    for name in ("embeddings", "paths", "labels", "views"):
        assert np.array_equal(getattr(read, name), getattr(made, name))


def test_labels_in_a_column(tmp_path):
    assert stored(tmp_path, labels=np.array([[1], [2], [2]])).labels.tolist() == ["1", "2", "2"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"paths": np.array([0.5, 1, 2])}, "paths: float64 are no texts"),
        ({"paths": np.array("a")}, "paths must hold one value"),
        ({"paths": np.array(["a"])}, "paths has 1 rows, embeddings have 3"),
        ({"labels": np.eye(3, dtype=int)}, "labels must hold one value"),
        ({"splits": np.array([1j, 2, 3])}, "splits: complex128"),
        ({"views": POINTS}, "views must be several"),
        ({"views": POINTS[:, None].astype(int)}, "views must be floating-point"),
        ({"embeddings": POINTS.astype(complex)}, "embeddings must be a matrix of floating"),
        ({"embeddings": POINTS.astype(bool)}, "embeddings must be a matrix of floating"),
        ({"embeddings": POINTS.astype(str)}, "embeddings must be a matrix of floating"),
    ],
)
def test_one_line(tmp_path, arrays, message):
    with pytest.raises(UserError, match=message) as error:
        stored(tmp_path, **arrays)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_file_without_embeddings_shows_what_it_has(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    if suffix == ".npz":
        np.savez(path, labels=np.arange(3), features=POINTS)
    else:
        pytest.importorskip("pyarrow")
        pd.DataFrame({"labels": range(3), "features": range(3)}).to_parquet(path)
    with pytest.raises(UserError, match="it has no array embeddings, but features, labels"):
        open_embeddings(path)


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "3", '"x"', "{", "[" * 100_000, "\x00", b"\xff\xfe"]
)
def test_odd_texts_say_nothing_of_the_network(tmp_path, text):
    assert stored(tmp_path, made_by=np.array(text)).made_by == {}


def test_made_by_of_other_types(tmp_path):
    made_by = {"network": "timm:resnet18"}
    for text in (json.dumps(made_by), json.dumps(made_by).encode(), [json.dumps(made_by)]):
        assert stored(tmp_path, made_by=np.array(text)).made_by == made_by
    assert stored(tmp_path, made_by=np.arange(4.0)).made_by == {}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_what_is_written_is_read(tmp_path, monkeypatch, suffix, dtype):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(embedding_file, "ROWS", 4)  # several groups of rows
    rng = np.random.default_rng(0)
    made = ImageEmbeddings(
        embeddings=rng.normal(size=(10, 3)).astype(dtype),
        paths=np.array([f"{row}.png" for row in range(10)]),
        labels=np.array([f"class {row % 4}" for row in range(10)]),
        made_by={"network": "timm:resnet18", "views": 2},
        views=rng.normal(size=(10, 2, 3)).astype(dtype),
        splits=np.array(["train", "test"] * 5),
    )
    write_embeddings(tmp_path / f"x{suffix}", made)
    read = open_embeddings(tmp_path / f"x{suffix}")
    assert read.made_by == made.made_by
    for name in ("embeddings", "paths", "labels", "views", "splits"):
        found, written = getattr(read, name), getattr(made, name)
        assert found.dtype.kind == written.dtype.kind
        assert np.array_equal(found, written)
