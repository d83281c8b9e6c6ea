"""Neighbors in blocks of a file are those of a full sort of float64 distances, ties by row."""

import numpy as np
import pytest

from dml.core.blas_threads import count_threads
from dml.retrieval.exact import streamed_search
from dml.retrieval.exact.streamed_search import VectorRows, find_nearest, stream_nearest


def rank_all(points, queries, k):
    rows, distances = [], []
    for query in queries.astype(np.float64):
        squared = np.square(points.astype(np.float64) - query).sum(axis=1)
        order = np.argsort(squared, kind="stable")[:k]
        rows.append(order)
        distances.append(np.sqrt(squared[order]))
    return np.array(rows), np.array(distances)


def read(points):
    return VectorRows(points.__getitem__, len(points))


def check(points, queries, k, search=stream_nearest):
    rows, distances = search(read(points), queries, k)
    expected = rank_all(points, queries, k)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_allclose(distances, expected[1], rtol=1e-12)


@pytest.fixture(params=[1 << 10, 1 << 20])
def blocks(request, monkeypatch):
    monkeypatch.setattr(streamed_search, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(streamed_search, "MOST_QUERIES", 16)
    monkeypatch.setattr(streamed_search, "FEW_QUERIES", 8)


def points_of(kind, count=500, width=7):
    random = np.random.default_rng(0)
    points = random.standard_normal((count, width))
    if kind == "far":  # where float32 products of raw vectors would lose all digits
        return 1000 + 1e-3 * points
    if kind == "copies":
        points[count // 2 :] = points[: count - count // 2]
    if kind == "few values":
        return np.round(points)
    if kind == "equal":
        return np.ones((count, width))
    if kind == "outlier":
        points[7] *= 1e4
    if kind == "by distance":  # from the last row: each block is nearer than all before
        points = points[np.argsort(-np.linalg.norm(points - points[0], axis=1))]
    return points


KINDS = ["plain", "far", "copies", "few values", "equal", "outlier", "by distance"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_file(blocks, kind, dtype):
    points = points_of(kind).astype(dtype)
    precise = points.astype(np.float64 if dtype is np.float64 else np.float32)
    for number, k in ((1, 5), (40, 3), (3, 500), (2, 499)):
        check(points, precise[-number:], k)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-8, 1e8, 1e18])
@pytest.mark.parametrize("kind", ["plain", "outlier", "copies"])
def test_vectors_of_any_length(blocks, kind, scale):
    points = (points_of(kind) * scale).astype(np.float32)
    check(points, points[:20], 6)


def test_doubles_below_the_numbers_of_float32():
    points = points_of("plain", 900, 32) * 2.0**-148
    points[7] = 2.0**-119
    for query in range(20):
        check(points, points[query : query + 1], 6)


@pytest.mark.filterwarnings("error")
def test_the_smallest_numbers_of_float32(blocks):
    points = (points_of("plain") * 2.0**-140).astype(np.float32)
    check(points, points[:20], 6)


def test_doubles_that_float32_cannot_tell_apart(blocks):
    points = 1 + 1e-9 * points_of("plain")
    check(points, points[:3], 500)


def test_vectors_that_float32_cannot_square(blocks):
    points = points_of("plain", 3000) * 1e30
    points[7] *= 1e100  # too far for the scale of the others
    check(points, points[:5], 4, find_nearest)
    assert stream_nearest(read(points), points[:5], 4) is None


def test_more_equal_distances_than_are_listed(monkeypatch):
    monkeypatch.setattr(streamed_search, "MOST_TIES", 100)
    points = points_of("equal").astype(np.float32)
    assert stream_nearest(read(points), points[:3], 4) is None
    check(points, points[:3], 4, find_nearest)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 255, 499])
def test_values_that_are_not_finite(value, row, blocks):
    points = points_of("plain").astype(np.float32)
    points[row, 2] = value
    with pytest.raises(ValueError, match=rf"1 of 3500 values are NaN or infinite.* row {row} "):
        find_nearest(read(points), np.zeros((1, 7), np.float32), 4)
    with pytest.raises(ValueError, match="query: 1 of 7 values"):
        find_nearest(read(points[:row] if row else points[1:]), points[row : row + 1], 4)


def test_threads_of_products_are_restored():
    before = count_threads()
    points = points_of("plain").astype(np.float32)
    stream_nearest(read(points), points[:2], 3)
    points[3] = np.nan
    assert stream_nearest(read(points), points[:2], 3) is None
    assert count_threads() == before
