"""Scores of smaller vectors equal those that NumPy computes by hand in float64."""

import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.core.statistics import clustered_mean
from dml.retrieval import compression_scores
from dml.retrieval.compression_scores import Fitting, score_forms
from dml.retrieval.embeddings import SplitEmbeddings

WIDTH = 20  # no multiple of 8
RECALLS = (1, 10, 300)


def make_points(seed=0, count=2000, noise=0.8, is_unit=True):
    """Five classes of 200 and others of 10, so that some have more than 100 relevant items."""
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.repeat(np.arange(5), 200), 5 + np.arange(count - 1000) // 10])
    centers = np.random.default_rng(9).normal(size=(labels.max() + 1, WIDTH))
    points = centers[labels] + noise * random.normal(size=(count, WIDTH))
    if is_unit:
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points.astype(np.float32), labels


def reduce_by_hand(form, points, fitted):
    """Coordinates in float64: by the eigenvectors of the covariance, or the first ones."""
    points, fitted = points.astype(np.float64), fitted.astype(np.float64)
    size = int("".join(filter(str.isdigit, form.partition("+")[0])))
    if form[0] == "p":
        mean = fitted.mean(axis=0)
        covariance = (fitted - mean).T @ (fitted - mean) / (len(fitted) - 1)
        values, vectors = np.linalg.eigh(covariance)
        largest = values.argsort()[::-1][:size]
        reduced = (points - mean) @ vectors[:, largest]
        if form.startswith("pca"):
            reduced /= np.sqrt(values[largest])
    else:
        reduced = points[:, :size]
    is_unit = np.allclose(np.linalg.norm(fitted, axis=1), 1, atol=1e-3)
    if is_unit and not form.startswith("project"):
        reduced = reduced / np.linalg.norm(reduced, axis=1, keepdims=True)
    return reduced


def rank_by_hand(form, points, fitted):
    """For each query all other rows, in the order in which the form ranks them."""
    queries, stored, known = (part.astype(np.float64) for part in (points, points, fitted))
    if form[0] in "pt":
        queries = stored = reduce_by_hand(form, points, fitted).astype(np.float32).astype(float)
        known = reduce_by_hand(form, fitted, fitted).astype(np.float32).astype(float)
    if form.endswith("float16"):
        stored = stored.astype(np.float16).astype(np.float64)
    if form.endswith("int8"):
        low = known.min(axis=0)
        step = ((known.max(axis=0) - low) / 255).astype(np.float32).astype(np.float64)
        levels = np.minimum(np.maximum(np.round((stored - low) / step), 0), 255)
        stored = (low + step * levels).astype(np.float32).astype(np.float64)
    rankings = []
    for number, query in enumerate(queries):
        others = np.delete(np.arange(len(stored)), number)
        if form.endswith("binary"):
            signs = np.where(stored > 0, 1.0, -1.0)
            hamming = (np.sign(signs[others]) != np.where(query > 0, 1, -1)).sum(axis=1)
            others = others[np.argsort(hamming, kind="stable")]
            first = np.sort(others[:100])
            products = (signs[first] * query).sum(axis=1)
            others[:100] = first[np.argsort(-products, kind="stable")]
        else:
            squared = ((stored[others] - query) ** 2).sum(axis=1)
            others = others[np.argsort(squared, kind="stable")]
        rankings.append(others)
    return rankings


def score_by_hand(rankings, labels):
    """Recall@K and MAP@R, from their definitions."""
    recalls, precisions = {K: [] for K in RECALLS}, []
    for number, ranking in enumerate(rankings):
        hits = labels[ranking] == labels[number]
        R = hits.sum()
        for K in RECALLS:
            recalls[K].append(hits[:K].any())
        at_rank = np.cumsum(hits[:R]) / np.arange(1, R + 1)
        precisions.append((at_rank * hits[:R]).sum() / R)
    scores = {f"recall_at_{K}": np.mean(values) for K, values in recalls.items()}
    return scores | {"map_at_r": np.mean(precisions)}


def score(points, labels, forms, fitted, split=None):
    embeddings = split or SplitEmbeddings(torch.from_numpy(points), torch.from_numpy(labels))
    table = score_forms(embeddings, forms, Fitting(fitted, "others", False), RECALLS)
    means = {}
    for row in table["rows"]:
        means[row["form"]] = {name: value["mean"] for name, value in row["metrics"].items()}
    return table, means


# Of PCA and int8, float32 parameters are stored: a pair of neighbors may change places.
EXACT, ROUNDED = 1e-12, 2e-4


@pytest.mark.parametrize("is_unit", [True, False])
@pytest.mark.parametrize(
    ("form", "tolerance"),
    [
        ("float16", EXACT),
        ("truncate7", EXACT),
        ("int8", ROUNDED),
        ("binary", EXACT),
        ("truncate12+binary", EXACT),
        ("pca9", ROUNDED),
        ("pca9+int8", ROUNDED),
        ("project9", ROUNDED),
        ("project9+binary", ROUNDED),
    ],
)
def test_scores_of_2000_vectors_by_hand(form, tolerance, is_unit):
    points, labels = make_points(is_unit=is_unit)
    fitted, _ = make_points(seed=1, is_unit=is_unit)
    expected = score_by_hand(rank_by_hand(form, points, fitted), labels)
    _, means = score(points, labels, [form], fitted)
    assert means[form] == pytest.approx(expected, abs=tolerance)
    assert means["float32"]["map_at_r"] != expected["map_at_r"]  # the form changes something


@pytest.mark.parametrize("form", ["float16", "int8", "binary", "pca9"])
def test_a_gallery_scores_as_the_queries_that_are_left_out_of_it(form):
    points, labels = make_points(count=1300)
    tensors = torch.from_numpy(points), torch.from_numpy(labels)
    split = SplitEmbeddings(*tensors, *tensors, torch.arange(len(labels)))
    _, means = score(points, labels, [form], points)
    _, with_gallery = score(points, labels, [form], points, split)
    assert with_gallery == means
    apart = SplitEmbeddings(tensors[0][:300], tensors[1][:300], tensors[0][300:], tensors[1][300:])
    table, _ = score(points, labels, [form], points, apart)
    assert table["queries"] == 100  # the class of the others is not in the gallery


@pytest.mark.parametrize("form", ["binary", "float16"])
@pytest.mark.parametrize("known", ["none", "some"])
def test_queries_in_parts_with_another_gallery_by_hand(monkeypatch, form, known):
    """A class of 150 items, more than are ranked again; the first queries have no match."""
    monkeypatch.setattr(compression_scores, "CHUNK", 1000)
    random = np.random.default_rng(3)
    labels = np.concatenate([np.repeat(4, 150), np.repeat(11, 7), np.arange(20, 43)])
    points = random.normal(size=(180, 6)).astype(np.float32)
    points[labels == 4] += np.float32(0.4)
    rows = np.array([3, 170, 155, 20, 149, 171, 0, 151, 99, 152, 60])
    is_in_gallery = np.array([row % 2 == 0 and known == "some" for row in rows])
    queries, classes = points[rows].copy(), labels[rows].copy()
    queries[~is_in_gallery] += np.float32(0.01)
    classes[:2] = 99
    is_in_gallery[:2] = False
    self_index = torch.from_numpy(np.where(is_in_gallery, rows, -1))
    split = SplitEmbeddings(
        *map(torch.from_numpy, (queries, classes, points, labels)),
        None if known == "none" else self_index,
    )
    hits, precisions = [], []
    stored = np.where(points > 0, 1.0, -1.0) if form == "binary" else points.astype(np.float16)
    for query, label, itself in zip(queries, classes, self_index.tolist(), strict=True):
        others = np.flatnonzero(np.arange(180) != itself)
        apart = ((stored[others].astype(float) - query.astype(float)) ** 2).sum(axis=1)
        if form == "binary":
            differing = ((points[others] > 0) != (query > 0)).sum(axis=1)
            others = others[np.argsort(differing, kind="stable")]
            first = np.sort(others[:100])
            apart = ((stored[first] - query.astype(float)) ** 2).sum(axis=1)
            others[:100] = first[np.argsort(apart, kind="stable")]
        else:
            others = others[np.argsort(apart, kind="stable")]
        is_hit = labels[others] == label
        R = is_hit.sum()
        if R:
            hits.append(is_hit[0])
            at_rank = np.cumsum(is_hit[:R]) / np.arange(1, R + 1)
            precisions.append((at_rank * is_hit[:R]).sum() / R)
    table = score_forms(split, [form], Fitting(points, "", True), [1])
    metrics = table["rows"][1]["metrics"]
    assert table["queries"] == len(hits) < len(rows)
    assert metrics["recall_at_1"]["mean"] == pytest.approx(np.mean(hits))
    assert metrics["map_at_r"]["mean"] == pytest.approx(np.mean(precisions))


def test_queries_without_a_match_and_large_k_are_those_of_uncompressed_vectors():
    points, labels = make_points(count=1300)
    labels[7] = 10_000  # alone in its class
    table, means = score(points, labels, ["float16", "binary"], points)
    assert (table["queries"], table["classes"]) == (1299, 35)
    assert means["binary"]["recall_at_300"] == pytest.approx(1, abs=1e-2)


def test_bytes_and_order_of_the_rows():
    points, labels = make_points(count=1300)
    forms = ["binary", "pca9+int8", "truncate8", "int8", "float16", "binary"]
    table, _ = score(points, labels, forms, points)
    assert [(row["form"], row["bytes"]) for row in table["rows"]] == [
        ("float32", 80),
        ("binary", 3),
        ("pca9+int8", 9),
        ("truncate8", 32),
        ("int8", 20),
        ("float16", 40),
    ]


def test_intervals_hold_the_mean_and_those_of_differences_are_paired():
    points, labels = make_points(count=1300)
    table, _ = score(points, labels, ["int8", "pca4"], points)
    first, int8, pca = (row["metrics"]["map_at_r"] for row in table["rows"])
    for values in (first, int8, pca):
        assert values["low"] < values["mean"] < values["high"]
    assert (first["difference_low"], first["difference_high"]) == (0, 0)
    assert pca["difference"] == pytest.approx(pca["mean"] - first["mean"])
    assert pca["difference_low"] < pca["difference"] < pca["difference_high"]
    # Almost equal rankings: the difference is known much better than either score.
    width = int8["difference_high"] - int8["difference_low"]
    assert width < 0.1 * (int8["high"] - int8["low"])


def test_a_single_class_has_no_interval():
    random = np.random.default_rng(0)
    points = random.normal(size=(30, 8)).astype(np.float32)
    table, _ = score(points, np.zeros(30, int), ["int8"], points)
    values = table["rows"][1]["metrics"]["map_at_r"]
    assert (values["mean"], values["low"], values["difference_high"]) == (1, None, None)


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        ("pca21", None, "pca21: the vectors have 20 dimensions"),
        ("project21", None, "project21: the vectors have 20 dimensions"),
        ("truncate21", None, "truncate21: the vectors have 20 dimensions"),
        ("pca12", lambda fitted: fitted[:12], "vary in 11 dimensions only; use pca11 or fewer"),
        ("project12", lambda fitted: fitted[:12], "in 11 dimensions only; use project11 or fewer"),
        ("pca2", lambda fitted: fitted[:1], "vary in 0 dimensions only; use another form"),
        ("pca2", lambda fitted: np.ones_like(fitted), "vary in 0 dimensions only"),
        ("int8", lambda fitted: fitted * np.nan, "NaN or infinite"),
        ("int8", lambda fitted: fitted * 1e30, "divide them by a number"),
    ],
)
def test_forms_that_do_not_fit_are_a_line(form, change, message):
    points, labels = make_points(count=1300)
    fitted = points.copy() if change is None else change(points.copy())
    with pytest.raises(UserError, match=rf"^evaluation\.compress: .*{message}"):
        score(points, labels, [form], fitted)


def test_a_missing_number_is_a_line():
    points, labels = make_points(count=1300)
    fitted = points.copy()
    points[3, 4] = np.nan
    with pytest.raises(UserError, match="1 of 26000 values are NaN or infinite, first in row 3"):
        score(points, labels, ["int8"], fitted)


def test_values_that_float16_does_not_hold_are_a_line():
    points, labels = make_points(count=1300, is_unit=False)
    with pytest.raises(UserError, match="float16: values above 65504 are too large"):
        score(points * np.float32(1e5), labels, ["float16"], points)


def test_intervals_are_over_the_classes_and_differences_are_paired():
    points, labels = make_points(count=1300)
    hits = []
    for form in ("float32", "pca4"):
        ranking = rank_by_hand(form, points, points)
        first = np.array([row[0] for row in ranking])
        hits.append((labels[first] == labels).astype(float))
    table, _ = score(points, labels, ["pca4"], points)
    for values, row in zip(hits, table["rows"], strict=True):
        bounds = row["metrics"]["recall_at_1"]
        mean, half, _ = clustered_mean(values, labels)
        assert [bounds["low"], bounds["high"]] == pytest.approx([mean - half, mean + half])
    mean, half, _ = clustered_mean(hits[1] - hits[0], labels)
    assert half > 0
    differences = [bounds["difference_low"], bounds["difference_high"]]
    assert differences == pytest.approx([mean - half, mean + half])
