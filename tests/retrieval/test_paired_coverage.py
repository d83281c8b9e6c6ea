"""How often the paired interval over classes holds the true difference of two made networks.

A class has a center and a spread; an image lies around its center, where both networks see it with
noise of their own, which differs between classes. Every trial draws other classes. The true
difference is the mean over all trials.
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


def cover(classes, sizes, trials):
    """Metric → share of the intervals that hold the mean difference of all trials."""
    rng = np.random.default_rng(classes)
    differences = {metric: [] for metric in METRICS}
    for _ in range(trials):
        pairs = make_pair(rng, classes, sizes)
        for metric in METRICS:
            differences[metric].append(pairs.summarize(metric).difference[:2])
    shares = {}
    for metric, rows in differences.items():
        means, halves = np.array(rows).T
        shares[metric] = float((np.abs(means - means.mean()) <= halves).mean())
    return shares


@pytest.mark.soak
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: sizes.__name__)
@pytest.mark.parametrize("classes", [10, 50, 100])
def test_intervals_of_made_pairs_hold_the_difference(classes, sizes):
    shares = cover(classes, sizes, trials=1000)
    print(f"{classes} classes, {sizes.__name__}: {shares}")
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
