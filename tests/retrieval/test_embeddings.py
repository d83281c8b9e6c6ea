import logging

import numpy as np
import pytest
import torch
from packaging.version import Version
from torch.nn import functional as F

from dml.core.errors import UserError
from dml.retrieval.embedding_file import open_embeddings
from dml.retrieval.embeddings import (
    SplitEmbeddings,
    concatenate_models,
    load_embeddings,
    save_embeddings,
)

CPU = torch.device("cpu")
POINTS = np.random.default_rng(0).normal(size=(60, 5))
LABELS = np.random.default_rng(1).integers(0, 7, 60)
IN_GALLERY = {
    "embeddings": POINTS,
    "labels": LABELS,
    "gallery_embeddings": POINTS,
    "gallery_labels": LABELS,
}


def clip(x):
    return x / x.norm(dim=1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("normalize", [F.normalize, clip])
def test_joined_embeddings_are_normalized_before_and_after(tmp_path, normalize):
    labels = torch.arange(8) % 4, torch.arange(16) % 4
    files = [tmp_path / f"{number}.npz" for number in range(3)]
    models = [[s * torch.randn(len(part), 5) for part in labels] for s in (0.1, 1, 10)]
    for file, (query, gallery) in zip(files, models, strict=True):
        made = SplitEmbeddings(query, labels[0], gallery, labels[1])
        save_embeddings(file, made, [part.tolist() for part in labels])

    found = concatenate_models(files, normalize, torch.device("cpu"))
    for got, parts in zip((found.query, found.gallery), zip(*models, strict=True), strict=True):
        torch.testing.assert_close(
            got, normalize(torch.cat([normalize(part) for part in parts], dim=1))
        )
    assert torch.equal(found.query_labels, labels[0])


def stored(path, **arrays):
    """Writes a file and reads it."""
    np.savez(path / "x.npz", **arrays)
    return load_embeddings(path / "x.npz", CPU)


@pytest.mark.parametrize("dtype", ["i2", "i8", ">i4"])
def test_queries_of_the_gallery_are_left_out(tmp_path, dtype):
    alone = stored(tmp_path, embeddings=POINTS, labels=LABELS)
    rows = np.arange(60).astype(dtype)
    both = stored(tmp_path, **IN_GALLERY, self_index=rows)
    assert both.score((1, 4)) == alone.score((1, 4))
    assert both.mean_average_precision() == pytest.approx(alone.mean_average_precision())
    assert not both.queries_are_in_gallery
    save_embeddings(tmp_path / "y.npz", both, [[""] * 60] * 2, "float32")
    assert load_embeddings(tmp_path / "y.npz", CPU).self_index.tolist() == rows.tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8", ">f8", "g", "i1", "i4", ">u4", "i8"])
@pytest.mark.parametrize("name", ["embeddings", "gallery_embeddings"])
def test_numbers_of_every_type_keep_their_digits(tmp_path, name, dtype):
    dtype = np.dtype(dtype)
    largest = min(np.iinfo(dtype).max, 2**53) if dtype.kind in "iu" else 1
    points = (largest * np.random.default_rng(2).uniform(size=(60, 5))).astype(dtype)
    read = stored(tmp_path, **IN_GALLERY | {name: points})
    found = read.gallery if name == "gallery_embeddings" else read.query
    assert np.array_equal(found.double().numpy(), points.astype(np.float64))


def test_queries_that_equal_rows_of_the_gallery(tmp_path):
    assert stored(tmp_path, **IN_GALLERY).queries_are_in_gallery
    some = IN_GALLERY | {"embeddings": POINTS[5:9], "labels": LABELS[5:9]}
    assert stored(tmp_path, **some).queries_are_in_gallery
    near = POINTS.copy()
    near[59, 4] = np.nextafter(near[59, 4], 9)
    assert not stored(tmp_path, **IN_GALLERY | {"embeddings": near}).queries_are_in_gallery
    zeros = IN_GALLERY | {"embeddings": -0.0 * POINTS, "gallery_embeddings": 0 * abs(POINTS)}
    assert stored(tmp_path, **zeros).queries_are_in_gallery
    assert not stored(tmp_path, embeddings=POINTS, labels=LABELS).queries_are_in_gallery


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.arange(59), "60 integers"),
        (np.arange(60.0), "60 integers"),
        (np.arange(60)[:, None], "60 integers"),
        (np.arange(60) + 1, "between -1 and 59, got 60"),
        (np.arange(60) - 2, "between -1 and 59, got -2"),
        (np.full(60, 2**64 - 1, "u8"), "between -1 and 59"),
        (np.array([*range(60)], object), "self_index holds Python objects"),
    ],
)
def test_rows_of_the_gallery_are_checked(tmp_path, rows, message):
    with pytest.raises(UserError, match=message) as refused:
        stored(tmp_path, **IN_GALLERY, self_index=rows)
    assert "\n" not in str(refused.value)


def test_a_query_of_another_class_than_its_row(tmp_path):
    with pytest.raises(UserError, match="query 0 has another class than item 59"):
        stored(tmp_path, **IN_GALLERY, self_index=np.arange(60)[::-1]).score((1,))


@pytest.mark.parametrize("name", ["self_index", "gallery_labels"])
def test_parts_of_a_gallery(tmp_path, name):
    arrays = {"embeddings": POINTS, "labels": LABELS, name: LABELS}
    with pytest.raises(UserError, match=f"{name} needs gallery_embeddings"):
        stored(tmp_path, **arrays)
    del arrays[name]
    with pytest.raises(UserError, match="it has no array gallery_labels"):
        stored(tmp_path, **arrays, gallery_embeddings=POINTS)


def test_arrays_that_are_not_used_are_named(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        stored(tmp_path, embeddings=POINTS, labels=LABELS, paths=LABELS, weights=POINTS, index=[0])
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "arrays that are not used: index, weights"
    ]


def test_labels_of_two_integer_types(tmp_path):
    first, second = 2**53, 2**53 + 1
    scores = stored(
        tmp_path,
        embeddings=np.array([[1.0, 0.0], [0.0, 1.0]], "f4"),
        labels=np.array([first, second]),
        gallery_embeddings=np.array([[1.0, 0.1], [0.1, 1.0], [-1.0, -1.0]], "f4"),
        gallery_labels=np.array([first, first, second], "u8"),
    ).score((1,))
    assert scores["precision_at_1"] == 0.5


REFUSED_LABELS = {
    "missing": (np.where(LABELS == 0, np.nan, LABELS), "labels: .* of 60 are NaN"),
    "rounded": (LABELS + 2.0**53, "labels: float64 holds"),
    "objects": (
        np.array([f"c{i}" for i in LABELS], object),
        "labels holds Python objects.*dtype=str",
    ),
    "dates": (LABELS.astype("M8[D]"), "cannot name classes"),
}


@pytest.mark.parametrize("read", [load_embeddings, open_embeddings])
@pytest.mark.parametrize("case", REFUSED_LABELS)
def test_labels_that_name_no_class(tmp_path, read, case):
    labels, message = REFUSED_LABELS[case]
    np.savez(tmp_path / "x.npz", embeddings=POINTS, labels=labels)
    with pytest.raises(UserError, match=message) as refused:
        read(tmp_path / "x.npz", *[CPU][: read is load_embeddings])
    assert "\n" not in str(refused.value)


def test_names_in_bytes(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=POINTS, labels=np.array(["é".encode()] * 60))
    assert set(open_embeddings(tmp_path / "x.npz").labels) == {"é"}


@pytest.mark.parametrize("name", ["labels", "splits", "paths", "embeddings"])
def test_missing_values_of_parquet(tmp_path, name):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "embeddings": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.ravel(POINTS)), 5),
        "labels": pyarrow.array([*LABELS.tolist()]),
        "splits": pyarrow.array(["test"] * 60),
        "paths": pyarrow.array([f"{row}.png" for row in range(60)]),
    }
    values = columns[name].to_pylist()
    columns[name] = pyarrow.array([None, *values[1:]], columns[name].type)
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    message = f"{name}: 1 of 60 are missing"
    if name == "embeddings" and Version(pyarrow.__version__) < Version("26"):
        message = "cannot be read .*lists to be of size=5 but index 1 had size=0"  # of pyarrow
    with pytest.raises(UserError, match=message):
        open_embeddings(tmp_path / "x.parquet")


def test_labels_of_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    points = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.ravel(POINTS[:2])), 5)
    for labels in (pyarrow.array([b"a", b"b"]), pyarrow.array(["a", "b"]).dictionary_encode()):
        table = pyarrow.table({"embeddings": points, "labels": labels})
        parquet.write_table(table, tmp_path / "x.parquet")
        assert open_embeddings(tmp_path / "x.parquet").labels.tolist() == ["a", "b"]
    numbers = pyarrow.array([1.0, float("nan")])
    parquet.write_table(
        pyarrow.table({"embeddings": points, "labels": numbers}), tmp_path / "x.parquet"
    )
    with pytest.raises(UserError, match="labels: 1 of 2 are NaN"):
        open_embeddings(tmp_path / "x.parquet")


def test_queries_that_are_in_the_gallery_are_one_image_of_the_set():
    points, labels = torch.randn(6, 3), torch.arange(6) // 2
    own = SplitEmbeddings(points, labels, points, labels, torch.arange(6))
    assert all(map(torch.equal, own.as_one_set(), (points, labels)))
    apart = SplitEmbeddings(points[:2], labels[:2], points[2:], labels[2:])
    assert all(map(torch.equal, apart.as_one_set(), (points, labels)))
    both = SplitEmbeddings(points[:4], labels[:4], points[2:], labels[2:],
                           torch.tensor([-1, -1, 0, 1]))  # fmt: skip
    assert all(map(torch.equal, both.as_one_set(), (points, labels)))
    assert not SplitEmbeddings(points[:1], labels[:1], points, labels).collapsed
