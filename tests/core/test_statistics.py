import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import ttest_1samp, ttest_ind

from dml.core.statistics import (
    Estimate,
    Moments,
    clustered_mean,
    combine_scores,
    holm,
    std_of_half_width,
    t_half_width,
    welch,
)


def test_estimate_by_hand():
    # squared deviations from 4: 4 + 0 + 4, over n - 1 = 2
    found = Estimate((2.0, 4.0, 6.0))
    assert (found.n, found.mean, found.std) == (3, 4.0, 2.0)
    assert found.ci95 == pytest.approx(4.302653 * 2 / math.sqrt(3), rel=1e-6)


def test_standard_deviation_behind_an_interval():
    # n = 10: t quantile for nine degrees of freedom 2.262157
    assert t_half_width(1.0, 10) == pytest.approx(2.262157 / math.sqrt(10), rel=1e-6)
    assert std_of_half_width(t_half_width(0.7, 10), 10) == pytest.approx(0.7)
    for confidence in (0.9, 0.99):
        expected = stats.t.interval(confidence, 6, scale=0.3 / 7**0.5)[1]
        assert t_half_width(0.3, 7, confidence) == pytest.approx(expected)
        assert std_of_half_width(expected, 7, confidence) == pytest.approx(0.3)


VALUES = st.lists(st.floats(0, 100, width=32), min_size=2, max_size=12, unique=True)


@given(VALUES, VALUES)
@settings(max_examples=40, deadline=None)
def test_welch_equals_scipy(a, b):
    expected = ttest_ind(a, b, equal_var=False).pvalue
    found = welch(Estimate(tuple(a)).moments, Estimate(tuple(b)).moments)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_one_sample_of_equal_values_is_compared_with_its_mean():
    """A row whose repeats all reach 100 % on a stand-in."""
    equal, other = Estimate((100.0, 100.0, 100.0)), Estimate((97.0, 98.0, 96.0, 98.0))
    expected = ttest_1samp(other.values, 100.0).pvalue
    for a, b in ((equal, other), (other, equal)):
        assert welch(a.moments, b.moments) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (None, Moments(1.0, 1.0, 3)),
        (Moments(1.0, 1.0, 1), Moments(2.0, 1.0, 3)),
        (Moments(1.0, 0.0, 3), Moments(2.0, 0.0, 3)),
    ],
)
def test_nothing_to_test(a, b):
    assert welch(a, b) is None


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, and 0.04 raised to 0.06.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_mean_is_written_with_its_spread_from_three_repeats_on():
    three = Estimate((46.0, 46.3, 46.5))  # standard deviation 0.2517; 4.302653 / sqrt(3) times it
    assert (three.format(), three.format(1)) == ("46.27 ± 0.63", "46.3 ± 0.6")
    assert Estimate((46.1, 46.4)).format(1) == "46.1, 46.4"
    assert Estimate((46.1,)).format() == "46.10"


def test_intervals_need_three_repeats():
    assert Estimate((1.0,)).spread is None
    assert Estimate((1.0, 2.0)).half_width is None
    assert Estimate((1.0, 2.0)).spread == pytest.approx(0.5**0.5)  # standard deviation
    assert Estimate((1.0, 2.0, 3.0)).spread == pytest.approx(4.302653 / 3**0.5)


def test_intervals_are_over_repeats_of_means_over_folds():
    values = [[0.1, 0.3], [0.3, 0.5], [0.5, 0.7]]  # means .2 .4 .6
    results = [
        {"repeat": repeat, "metrics": {"map_at_r": value}}
        for repeat, folds in enumerate(values)
        for value in folds
    ]
    found = combine_scores(results)["map_at_r"]
    assert math.isclose(found["mean"], 0.4)
    assert math.isclose(found["std"], 0.2)
    assert math.isclose(found["ci95"], 4.302653 * 0.2 / math.sqrt(3), rel_tol=1e-6)
    alone = combine_scores(results[:2])["map_at_r"]
    assert (alone["ci95"], alone["std"], alone["repeats"]) == (None, None, 1)


def test_folds_count_in_their_repeat_in_any_order_and_a_metric_that_one_lacks_not_at_all():
    values = {(4, 0): 0.1, (1, 2): 0.3, (4, 1): 0.5, (1, 0): 0.6, (7, 0): 0.9, (1, 1): 0.0}
    results = []
    for (repeat, fold), value in values.items():
        metrics = {"map_at_r": value, "mine": value}
        if (repeat, fold) == (4, 1):
            del metrics["mine"]
        results.append({"repeat": repeat, "fold": fold, "metrics": metrics})
    combined = combine_scores(results)
    assert list(combined) == ["map_at_r"]
    found, means = combined["map_at_r"], [0.3, 0.3, 0.9]
    expected = (np.mean(means), np.std(means, ddof=1), 3)
    assert (found["mean"], found["std"], found["repeats"]) == pytest.approx(expected)


def matrix_interval(values, clusters):
    """The interval of Bell and McCaffrey with its matrices: an intercept, clusters of any size."""
    total = len(values)
    hat = np.full((total, total), 1 / total)
    residuals = (np.eye(total) - hat) @ values
    variance, rows = 0.0, []
    for cluster in np.unique(clusters):
        members = np.flatnonzero(clusters == cluster)
        block = np.eye(len(members)) - hat[np.ix_(members, members)]
        levels, vectors = np.linalg.eigh(block)
        root = vectors @ np.diag(levels**-0.5) @ vectors.T
        weights = np.ones(len(members)) @ root / total
        variance += float(weights @ residuals[members]) ** 2
        rows.append(weights @ (np.eye(total) - hat)[members])
    products = np.array(rows) @ np.array(rows).T
    levels = np.linalg.eigvalsh(products)
    freedom = levels.sum() ** 2 / (levels**2).sum()
    return stats.t.ppf(0.975, freedom) * variance**0.5


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 3, 3, 3), (1, 2, 9), (5, 40, 2, 7, 7)])
def test_clustered_interval_equals_its_matrices(sizes):
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(len(sizes)).normal(size=len(clusters)) + clusters
    estimate = clustered_mean(values, clusters)
    assert estimate.mean == pytest.approx(values.mean())
    assert estimate.clusters == len(sizes)
    assert estimate.half_width == pytest.approx(matrix_interval(values, clusters))


def test_clusters_of_one_value_have_the_t_interval():
    values = np.array([0.3, 0.1, 0.7, 0.2])
    names = np.array(["b", "a", "d", "c"])
    assert clustered_mean(values, names).half_width == pytest.approx(Estimate(tuple(values)).ci95)


def test_equal_values_have_no_width_and_one_cluster_no_interval():
    assert clustered_mean(np.zeros(6), np.arange(6) // 2) == (0.0, 0.0, 3)
    assert clustered_mean(np.arange(3.0), np.zeros(3)) == (1.0, None, 1)
