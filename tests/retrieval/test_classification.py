"""Accuracies by class means and by neighbors, against scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from dml.models.embedder import NORMALIZERS
from dml.retrieval import class_mean_accuracy, neighbor_accuracy


def clusters(seed, count, classes=5, size=6, spread=1.5):
    """Points around a center of each class, which overlap."""
    centers = np.random.default_rng(7).normal(size=(classes, size))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    return centers[labels] + spread * rng.normal(size=(count, size)), labels


QUERY, REFERENCE = clusters(1, 200), clusters(2, 300)


def test_class_means_equal_those_of_scikit_learn():
    expected = NearestCentroid().fit(*REFERENCE).score(*QUERY)
    assert 0.3 < expected < 0.95
    accuracy = class_mean_accuracy(*QUERY, *REFERENCE, normalize=NORMALIZERS["none"])
    assert accuracy == pytest.approx(expected)


def test_unit_means_compare_by_cosine():
    points, labels = REFERENCE
    means = np.stack([points[labels == label].mean(axis=0) for label in range(5)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    expected = ((QUERY[0] @ means.T).argmax(axis=1) == QUERY[1]).mean()
    long = points * np.array([1, 5, 1, 1, 9])[labels, None]  # means of other lengths
    assert class_mean_accuracy(*QUERY, *REFERENCE) == pytest.approx(expected)
    assert class_mean_accuracy(*QUERY, long, labels) == pytest.approx(expected)
    raw = NearestCentroid().fit(long, labels).score(*QUERY)
    assert raw != pytest.approx(expected)  # so that the test sees the normalization


@pytest.mark.parametrize("neighbors", [1, 3, 5])
def test_neighbors_equal_those_of_scikit_learn(neighbors):
    classifier = KNeighborsClassifier(neighbors).fit(*REFERENCE)
    share = classifier.predict_proba(QUERY[0])
    ordered = np.sort(share, axis=1)
    clear = ordered[:, -1] > ordered[:, -2]  # scikit-learn gives ties to the first class
    points, labels = QUERY[0][clear], QUERY[1][clear]
    expected = classifier.score(points, labels)
    assert 0.3 < expected < 0.95
    assert neighbor_accuracy(points, labels, *REFERENCE, neighbors) == pytest.approx(expected)


def test_of_equal_votes_the_nearest_decides():
    reference, labels = [[1.0], [2.0], [3.0], [4.0], [9.0]], [3, 0, 0, 3, 1]
    for expected, k in ((3, 1), (3, 2), (0, 3), (3, 4), (3, 5)):
        assert neighbor_accuracy([[0.0]], [expected], reference, labels, k) == 1
        assert neighbor_accuracy([[0.0]], [1], reference, labels, k) == 0


def test_of_equal_distances_the_first_references_are_neighbors():
    reference = [[1.0], [-1.0], [1.0], [-1.0]]
    assert neighbor_accuracy([[0.0]], [2], reference, [2, 1, 1, 1], 1) == 1
    assert neighbor_accuracy([[0.0]], [1], reference, [2, 1, 1, 1], 3) == 1
    means = class_mean_accuracy([[0.0]], [0], [[1.0], [-1.0]], [0, 1])
    assert means == 1


def test_fewer_references_than_neighbors_all_vote():
    assert neighbor_accuracy([[0.0]], [1], [[1.0], [2.0], [3.0]], [0, 1, 1], 50) == 1


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_a_mean_of_zero_is_finite(normalize):
    reference = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, 1]])
    query, labels = torch.tensor([[0.0, 1], [0, 0.8]]), torch.tensor([1, 1])
    known = torch.tensor([0, 0, 1, 1])
    options = {"normalize": NORMALIZERS[normalize]}
    assert class_mean_accuracy(query, labels, reference, known, **options) == 1


def test_a_class_without_references_is_never_right():
    reference, labels = [[0.0], [4.0]], [0, 1]
    assert class_mean_accuracy([[0.0], [4.0]], [0, 7], reference, labels) == 0.5
    assert neighbor_accuracy([[0.0], [4.0]], [0, 7], reference, labels, 1) == 0.5


@pytest.mark.parametrize("score", [class_mean_accuracy, neighbor_accuracy])
def test_invalid_inputs_are_refused(score):
    good = [[1.0, 0.0]], [0]
    with pytest.raises(ValueError, match="one dimension"):
        score(*good, [[1.0]], [0])
    with pytest.raises(ValueError, match="NaN or infinite"):
        score([[float("nan"), 0.0]], [0], *good)
    with pytest.raises(ValueError, match="neighbors must be a positive"):
        neighbor_accuracy(*good, *good, 0)
