import json

import numpy as np
import pytest

from dml.retrieval import embedding_file
from dml.retrieval.embedding_file import ImageEmbeddings, open_embeddings, write_embeddings
from dml.retrieval.viewer_columns import ViewerColumns, find_neighbors, score_labels

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_neighbors_against_a_full_sort(dtype):
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(dtype)
    found = find_neighbors(points)
    for row, point in enumerate(points.astype(float)):
        distances = np.sqrt(((points.astype(float) - point) ** 2).sum(1))
        distances[row] = np.inf
        nearest = np.argsort(distances, kind="stable")[:10]
        assert found.rows[row].tolist() == nearest.tolist()
        assert found.distances[row] == pytest.approx(distances[nearest], rel=1e-6)


def test_few_images_have_fewer_neighbors():
    assert find_neighbors(np.eye(3)).rows.shape == (3, 2)
    assert find_neighbors(np.eye(1)) is None


def test_labels_by_hand():
    """Class b has one image, whose nearest image can only be wrong."""
    scores = score_labels(np.array(list("aaabcc")), np.array([1, 0, 3, 2, 5, 0]))
    assert scores.nearest_labels.tolist() == list("aabaca")
    assert scores.correct.tolist() == [True, True, False, False, True, False]
    assert scores.has_match.tolist() == [True, True, True, False, True, True]
    assert scores.class_p1[[0, 1, 2, 4, 5]] == pytest.approx([2 / 3] * 3 + [0.5] * 2)
    assert np.isnan(scores.class_p1[3])


def test_columns_are_written_in_parts(tmp_path, monkeypatch):
    """Each row has its own thumbnail, and the other columns are read as before."""
    monkeypatch.setattr(embedding_file, "ROWS", 4)
    points = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    names, labels = np.array([f"ä{row}.png" for row in range(10)]), np.array(list("aabbccddee"))
    asked = []

    def thumbnails(rows):
        asked.append(len(rows))
        return [f"jpeg {row}".encode() for row in rows]

    neighbors = find_neighbors(points)
    scores = score_labels(labels, neighbors.rows[:, 0])
    viewer = ViewerColumns(list(names), thumbnails, neighbors, scores)
    made = ImageEmbeddings(points, names, labels, {"network": "x"})
    write_embeddings(tmp_path / "x.parquet", made, viewer)
    assert asked == [4, 4, 2]
    table = parquet.read_table(tmp_path / "x.parquet")
    rows = table.to_pylist()
    for row, values in enumerate(rows):
        assert values["image"] == {"bytes": f"jpeg {row}".encode(), "path": f"ä{row}.png"}
        assert values["neighbors"]["ids"] == neighbors.rows[row].tolist()
        assert values["distances"] == values["neighbors"]["distances"]
        assert values["nearest_label"] == labels[values["neighbors"]["ids"][0]]
        assert values["correct"] == (values["nearest_label"] == values["labels"])
    stored = json.loads(table.schema.metadata[b"huggingface"])
    assert stored["info"]["features"]["image"] == {"_type": "Image"}
    opened = open_embeddings(tmp_path / "x.parquet")
    assert np.array_equal(opened.embeddings, points)
    assert (opened.labels.tolist(), opened.made_by) == (labels.tolist(), {"network": "x"})


def test_an_image_without_a_match_has_no_verdict():
    labels = np.array(["a", "b", "b"])
    scores = score_labels(labels, np.array([1, 2, 1]))
    viewer = ViewerColumns(["x"] * 3, lambda rows: [b""] * len(rows), scores=scores)
    columns = viewer.columns(0, 4096)
    assert columns["correct"].to_pylist() == [None, True, True]
    assert columns["class_p1"].to_pylist() == [None, 1.0, 1.0]


def test_names_that_are_no_unicode():
    viewer = ViewerColumns(["c\udcff"], lambda rows: [b""])
    assert viewer.columns(0, 1)["image"].to_pylist() == [{"bytes": b"", "path": "c?"}]
    assert set(viewer.columns(0, 1)) == {"image"}
