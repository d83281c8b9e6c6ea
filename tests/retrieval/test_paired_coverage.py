"""How often the paired interval over classes holds the true difference of two made runs.

Every trial draws other classes; the true difference is the mean over all trials. In pairs of
scores, a class has a difficulty and a gain of its own, and an image a difficulty, which both runs
share. In pairs of networks, which rank images of all classes, a class has a center and a spread:
there the other classes of the gallery change the scores too, which the interval does not cover.
"""

import numpy as np
import pytest
import torch

from dml.core.statistics import clustered_mean
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.paired_queries import PairedQueries, RankedQueries, score_each
from dml.retrieval.query_scores import score_queries

DIMENSIONS = 6
METRICS = ("recall_at_1", "map_at_r")
COVERAGE = (0.93, 0.97)


def equal(rng, classes):
    return np.full(classes, 12)


def as_in_cub(rng, classes):
    """41 to 60 images of a class, at a quarter."""
    return rng.integers(10, 16, classes)


def as_in_sop(rng, classes):
    """2 to 12 images of a class, five on the average."""
    return np.clip(rng.poisson(4, classes) + 1, 2, 12)


def skewed(rng, classes):
    """Classes of a shop or a museum: a few are ten times as large as the median."""
    return np.clip(np.exp(rng.normal(2.2, 0.7, classes)).round().astype(int), 2, 60)


SIZES = (equal, as_in_cub, as_in_sop, skewed)

TOO_SHORT = ((10, as_in_cub), (50, equal), (50, as_in_cub), (50, skewed), (100, skewed))


def rank(title, embeddings, labels):
    tensors = torch.from_numpy(embeddings.astype(np.float32)), torch.from_numpy(labels)
    scores = score_queries(SplitEmbeddings(*tensors), k=1)
    values = {metric: score_each(scores, metric) for metric in METRICS}
    names = [str(row) for row in range(len(labels))]
    return RankedQueries(title, names, labels, values, scores.relevant, scores.nearest)


def make_pair(rng, classes, sizes):
    labels = np.repeat(np.arange(classes), sizes(rng, classes))

    def scale(mean):
        return mean * np.exp(rng.normal(0, 0.3, classes))[labels, None]

    def noise():
        return rng.normal(size=(len(labels), DIMENSIONS))

    centers = 1.3 * rng.normal(size=(classes, DIMENSIONS))
    images = centers[labels] + scale(0.6) * noise()
    first, second = images + scale(0.45) * noise(), images + scale(0.35) * noise()
    same = np.arange(len(labels))
    return PairedQueries(rank("a", first, labels), rank("b", second, labels), same)


def draw_scores(rng, classes, sizes, spread):
    """Differences of Recall@1 and of a score such as MAP@R, and the classes of the queries."""
    labels = np.repeat(np.arange(classes), sizes(rng, classes))
    gain = rng.normal(0.2, spread, classes)[labels]
    first = rng.normal(0.3, 1.0, classes)[labels] + rng.normal(0, 1.2, len(labels))
    second = first + gain
    first = first + rng.normal(0, 0.5, len(labels))
    second = second + rng.normal(0, 0.5, len(labels))
    recall = (second > 0).astype(float) - (first > 0)
    precision = np.tanh(0.75 * (second - 1)) - np.tanh(0.75 * (first - 1))
    return {"recall_at_1": recall, "map_at_r": precision}, labels


def shares_held(trials):
    """Metric → share of the intervals (mean, half-width) that hold the mean of all trials."""
    shares = {}
    for metric in METRICS:
        means, halves = np.array([trial[metric] for trial in trials]).T
        shares[metric] = float((np.abs(means - means.mean()) <= halves).mean())
    return shares


@pytest.mark.soak
@pytest.mark.parametrize("spread", [0.1, 0.4])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: sizes.__name__)
@pytest.mark.parametrize("classes", [10, 50, 100])
def test_intervals_of_pairs_of_scores_hold_the_difference(classes, sizes, spread):
    rng = np.random.default_rng(classes)
    trials = []
    for _ in range(3000):
        differences, labels = draw_scores(rng, classes, sizes, spread)
        estimates = {}
        for metric, values in differences.items():
            estimates[metric] = clustered_mean(values, labels)[:2]
        trials.append(estimates)
    shares = shares_held(trials)
    print(f"scores, {classes} classes, {sizes.__name__}, {spread}: {shares}")
    for share in shares.values():
        assert COVERAGE[0] <= share <= COVERAGE[1]


@pytest.mark.soak
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: sizes.__name__)
@pytest.mark.parametrize("classes", [10, 50, 100])
def test_intervals_of_pairs_of_networks_hold_the_difference(request, classes, sizes):
    if (classes, sizes) in TOO_SHORT:
        reason = "0.917 to 0.929: drawn classes also change the gallery"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    rng = np.random.default_rng(classes)
    trials = []
    for _ in range(1000):
        pairs = make_pair(rng, classes, sizes)
        trials.append({metric: pairs.summarize(metric).difference[:2] for metric in METRICS})
    shares = shares_held(trials)
    print(f"networks, {classes} classes, {sizes.__name__}: {shares}")
    for share in shares.values():
        assert COVERAGE[0] <= share <= COVERAGE[1]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: sizes.__name__)
def test_intervals_of_ten_classes_hold_the_mean(sizes):
    """Differences of queries, drawn without networks: classes differ, and so do their queries."""
    rng = np.random.default_rng(1)
    trials, held = 3000, 0
    for _ in range(trials):
        classes = np.repeat(np.arange(10), sizes(rng, 10))
        gains = rng.normal(0.1, 0.2, 10)[classes]
        scores = gains + rng.normal(0, 0.5, len(classes))
        mean, half, _ = clustered_mean(scores, classes)
        held += abs(mean - 0.1) <= half
    assert COVERAGE[0] <= held / trials <= COVERAGE[1]
