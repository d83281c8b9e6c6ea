"""Classes of the rows of a file, compared with loops over the other rows."""

import numpy as np
import pandas as pd
import pytest

import dml
from dml.core.errors import UserError
from dml.retrieval import file_classification

LABELS = np.array(["a", "a", "a", "b", "b", "b", "c"])
LINE = np.array([[0.0], [1.0], [1.5], [4.0], [5.0], [6.0], [20.0]])


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=LINE, labels=LABELS)
    return tmp_path / "x.npz"


def test_classes_of_rows_without_themselves(file):
    table = dml.classify(file, [0, 3, 6], k=3)
    assert table["query_label"].tolist() == ["a", "b", "c"]
    assert table["neighbors"].tolist() == ["a", "b", "b"]
    assert table["votes"].tolist() == pytest.approx([2 / 3, 2 / 3, 1])
    assert table["neighbor_distance"].tolist() == [1, 1, 14]
    # the mean of a without 0 is 1.25, of b without 4 5.5; c has no other row
    assert table["class_mean"].tolist() == ["a", "b", "b"]
    assert table["mean_distance"].tolist() == [1.25, 1.5, 15]


def test_classes_with_fewer_images_than_vote_are_counted(file, capsys):
    dml.classify(file, [0], k=1)
    assert "classes" not in capsys.readouterr().err
    dml.classify(file, [0], k=3)
    note = "note: 1 of 3 classes have fewer than 3 images (-k), the smallest 1 (c): larger"
    assert note in capsys.readouterr().err
    table = dml.classify(file, [0, 6], k=10)
    assert table["votes"].tolist() == pytest.approx([3 / 6, 3 / 6])  # of six others, as b has three
    assert "find 6 images" in capsys.readouterr().err


@pytest.mark.parametrize("chunk", [2, 3, 65_536])
@pytest.mark.parametrize("is_unit", [True, False])
def test_classes_depend_neither_on_the_order_of_rows_nor_on_how_they_are_read(
    tmp_path, monkeypatch, chunk, is_unit
):
    """Without unit length, only the first rows are longer: later parts are of unit vectors."""
    monkeypatch.setattr(file_classification, "CHUNK", chunk)
    random = np.random.default_rng(0)
    points = random.standard_normal((17, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    if not is_unit:
        points[:2] *= 1.5
    labels = np.array(["b", "c", "a", "b", "c"] * 4)[:17]
    expected = []
    for row in range(17):
        rest = np.arange(17) != row
        apart = []
        for name in "abc":
            mean = points[rest & (labels == name)].mean(axis=0)
            mean /= np.linalg.norm(mean) if is_unit else 1
            apart.append(np.linalg.norm(mean - points[row]))
        expected.append(("abc"[np.argmin(apart)], pytest.approx(min(apart))))
    for order in (np.arange(17), np.arange(17)[::-1], random.permutation(17)):
        np.savez(tmp_path / "x.npz", embeddings=points[order], labels=labels[order])
        table = dml.classify(tmp_path / "x.npz", [*range(17)], k=2)
        for place, row in enumerate(order):
            assert (table["class_mean"][place], table["mean_distance"][place]) == expected[row]


def test_a_new_image_is_compared_with_whole_classes(file):
    """The mean of b is 5, and that of a 2.5 / 3; none leaves out a row of the file."""
    queries = {"new/0.png": 4.9, "new/1.png": 0.8, "new/2.png": 19.0}
    values = np.array([*queries.values()])[:, None]
    table = file_classification.classify_file(file, [0, *queries], 2, lambda *_: values)
    assert table["query_label"].tolist() == ["a", None, None, None]
    assert table["neighbors"].tolist() == ["a", "b", "a", "c"]
    assert table["class_mean"].tolist() == ["a", "b", "a", "c"]
    assert table["mean_distance"] == pytest.approx([1.25, 0.1, 2.5 / 3 - 0.8, 1])


def test_neighbors_at_the_limit_have_no_vote(file):
    (row,) = dml.classify(file, [3], k=4, max_distance=2.0).to_dict("records")
    assert (row["neighbors"], row["votes"]) == ("b", 1)  # 6 is at 2: one vote of b, 1.5 beyond
    (row,) = dml.classify(file, [3], k=4, max_distance=1.0).to_dict("records")
    assert (row["neighbors"], row["votes"], row["neighbor_distance"]) == ("unknown", 0, 1)
    assert (row["class_mean"], row["mean_distance"]) == ("unknown", 1.5)


def test_of_equal_votes_the_class_of_the_nearest_counts(tmp_path):
    path, labels = tmp_path / "x.npz", np.array(["q", "z", "a", "a", "z"])
    np.savez(path, embeddings=np.array([[0.0], [1.0], [2.0], [3.0], [4.0]]), labels=labels)
    (row,) = dml.classify(path, [0], k=4).to_dict("records")
    assert (row["neighbors"], row["votes"]) == ("z", 0.5)


def test_means_of_unit_vectors_have_length_1(tmp_path):
    angles = np.radians([0, 10, 50, 100, 110])
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    np.savez(tmp_path / "x.npz", embeddings=x, labels=[0, 1, 1, 2, 2])
    (row,) = dml.classify(tmp_path / "x.npz", [0], k=2).to_dict("records")
    assert row["class_mean"] == "1"
    assert row["mean_distance"] == pytest.approx(2 * np.sin(np.radians(15)), rel=1e-5)


def test_a_file_without_labels(tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=LINE)
    with pytest.raises(UserError, match=r"classify: .*x\.npz has no labels"):
        dml.classify(tmp_path / "x.npz", [0], k=2)


def test_search_leaves_out_what_does_not_match(file):
    assert dml.search(file, [3, 6], k=2, max_distance=2.0)["row"].tolist() == [4]
    assert dml.search(file, [3], k=2)["distance"].tolist() == [1, 2]
    nothing = dml.search(file, [6], k=2, max_distance=2.0)
    assert len(nothing) == 0
    assert [*nothing.columns] == [*dml.search(file, [6], k=2).columns]


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_limits_that_are_no_distances(file, limit):
    for function in (dml.search, dml.classify):
        with pytest.raises(UserError, match=r"max_distance: .* must be a distance above 0"):
            function(file, [0], k=1, max_distance=limit)


@pytest.mark.parametrize("query", [3, np.int64(3), "3"])
def test_a_single_query_is_a_list_of_one(file, query):
    pd.testing.assert_frame_equal(dml.search(file, query, k=2), dml.search(file, [query], k=2))
    pd.testing.assert_frame_equal(dml.classify(file, query), dml.classify(file, [query]))
