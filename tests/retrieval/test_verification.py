"""Thresholds of verification, compared with a plain loop over float64 distances."""

import math
from itertools import combinations

import pytest
import torch
from torch.nn.functional import normalize

from dml import retrieval
from dml.retrieval import pairs as pairs_module
from tests.retrieval.reference import CASES

RATES = (0, 0.001, 0.05, 0.3, 0.9)
TIED = ("grid", "duplicates", "tiny clusters far apart", "an outlier far from tiny distances")


def distances(x, y):
    """The distances of pairs of the same class, and of pairs of different ones."""
    x = x.double()
    same, other = [], []
    for i, j in combinations(range(len(x)), 2):
        part = same if y[i] == y[j] else other
        part.append(math.dist(x[i].tolist(), x[j].tolist()))
    return same, other


def share_below(threshold, values):
    return sum(value < threshold for value in values) / len(values)


def largest_threshold(rate, other):
    """The largest distance of a pair of different classes at which few enough match."""
    return max(value for value in other if share_below(value, other) <= rate)


def make(case):
    generator = torch.Generator().manual_seed(0)
    if case == "random":
        x = normalize(torch.randn(60, 5, generator=generator))
    else:
        x = CASES[case](generator)[:60]
    return x, torch.randint(0, 6, (len(x),), generator=generator)


@pytest.fixture(autouse=True, params=[1024, 16])
def tile(request, monkeypatch):
    monkeypatch.setattr(pairs_module, "TILE", request.param)


@pytest.mark.parametrize("case", ["random", *TIED])
def test_thresholds_and_errors_are_those_of_a_loop(case):
    x, y = make(case)
    same, other = distances(x, y)
    for rate, errors in zip(RATES, retrieval.match_thresholds(x, y, RATES), strict=True):
        assert errors.threshold == pytest.approx(largest_threshold(rate, other), rel=1e-6)
        assert errors.fmr == pytest.approx(share_below(errors.threshold, other), abs=1e-12)
        assert errors.fnmr == pytest.approx(1 - share_below(errors.threshold, same), abs=1e-12)
        assert errors.fmr <= rate


@pytest.mark.parametrize("case", ["random", "grid", "duplicates"])
def test_errors_at_a_threshold_are_those_of_its_choice(case):
    x, y = make(case)
    chosen = retrieval.match_thresholds(x, y, RATES)
    at_thresholds = retrieval.match_errors_at(x, y, [errors.threshold for errors in chosen])
    for errors, expected in zip(at_thresholds, chosen, strict=True):
        assert errors == pytest.approx(expected, abs=1e-12)


def test_errors_of_other_embeddings_at_a_threshold():
    x, y = make("random")
    same, other = distances(x, y)
    low, high = retrieval.match_errors_at(x, y, [0.4, 1.1])
    for errors, threshold in ((low, 0.4), (high, 1.1)):
        assert errors.threshold == threshold
        assert errors.fmr == pytest.approx(share_below(threshold, other))
        assert errors.fnmr == pytest.approx(1 - share_below(threshold, same))


def test_a_pair_at_the_threshold_does_not_match():
    line = torch.tensor([[0.0], [1.0], [3.0], [4.0]])  # pairs of different classes: 2, 3, 3, 4
    classes = torch.tensor([0, 0, 1, 1])
    none, one = retrieval.match_thresholds(line, classes, [0, 0.25])
    assert none == pytest.approx((2, 0, 0), rel=1e-6)
    assert one == pytest.approx((3, 0.25, 0), rel=1e-6)
    (at_two,) = retrieval.match_errors_at(line, classes, [2.0])
    assert at_two == (2, 0, 0)


@pytest.mark.parametrize("case", ["random", "grid", "duplicates"])
def test_the_curve_has_the_errors_at_its_thresholds(case):
    x, y = make(case)
    same, other = distances(x, y)
    curve = retrieval.match_error_curve(x, y)
    assert curve.thresholds[0] == 0
    assert (curve.fmr[0], curve.fnmr[0]) == (0, 1)
    assert (curve.fmr[-1], curve.fnmr[-1]) == (1, 0)
    for threshold, fmr, fnmr in zip(*(part.tolist() for part in curve), strict=True):
        assert fmr == pytest.approx(share_below(threshold, other), abs=1e-12)
        assert fnmr == pytest.approx(1 - share_below(threshold, same), abs=1e-12)


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan")])
def test_rates_that_are_none(rate):
    x, y = make("random")
    with pytest.raises(ValueError, match=f"rates: {rate} must be at least 0 and below 1"):
        retrieval.match_thresholds(x, y, [rate])


@pytest.mark.parametrize("threshold", [-0.1, float("nan")])
def test_thresholds_that_are_no_distances(threshold):
    x, y = make("random")
    with pytest.raises(ValueError, match=f"thresholds: {threshold} must be a distance"):
        retrieval.match_errors_at(x, y, [threshold])


@pytest.mark.parametrize("labels", [torch.arange(4), torch.zeros(4, dtype=torch.long)])
def test_pairs_of_one_kind_alone(labels):
    for compute in (
        lambda x: retrieval.match_thresholds(x, labels, [0.1]),
        lambda x: retrieval.match_errors_at(x, labels, [0.1]),
        lambda x: retrieval.match_error_curve(x, labels),
    ):
        with pytest.raises(ValueError, match="pairs of the same and of different classes"):
            compute(torch.eye(4))


@pytest.mark.parametrize("rate", [0.29, 0.57, 0.58, 0.07])
def test_a_rate_of_whole_pairs_is_reached(rate):
    """Of 100 pairs of different classes: 0.29 · 100 is below 29 in floats."""
    x = torch.tensor([float(i) for i in range(10)] + [100.0 + 11 * i for i in range(10)])[:, None]
    labels = torch.tensor([0] * 10 + [1] * 10)
    (errors,) = retrieval.match_thresholds(x, labels, [rate])
    assert errors.fmr == rate
