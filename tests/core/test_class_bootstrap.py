"""Means over queries of classes that are drawn with replacement."""

import numpy as np
import pytest

from dml.core.class_bootstrap import draw_class_means, percentile_interval


def test_means_are_those_of_a_plain_loop():
    random = np.random.default_rng(0)
    classes = np.array([3, 3, 3, 8, 8, 1])  # of different sizes
    values = random.random((2, 6))
    drawn = draw_class_means(values, classes, draws=50, seed=4)
    times = np.random.default_rng(4).multinomial(3, [1 / 3] * 3, size=50)
    for number, counts in enumerate(times):
        rows = []
        for name, count in zip([1, 3, 8], counts, strict=True):
            rows += [*np.flatnonzero(classes == name)] * count
        assert drawn[:, number] == pytest.approx(values[:, rows].mean(axis=1))


def test_draws_do_not_depend_on_the_memory(monkeypatch):
    values, classes = np.random.default_rng(0).random((1, 90)), np.arange(90) // 3
    expected = draw_class_means(values, classes, draws=40)
    monkeypatch.setattr("dml.core.class_bootstrap.AT_ONCE", 100)
    assert draw_class_means(values, classes, draws=40).shape == expected.shape
    assert draw_class_means(values, classes, draws=40) == pytest.approx(expected)


def test_the_interval_is_of_classes_and_not_of_queries():
    """Equal queries of a class add nothing: the interval is as wide as with one of each."""
    values, classes = np.random.default_rng(0).random((1, 60)), np.arange(60)
    one = percentile_interval(draw_class_means(values, classes))
    ten = percentile_interval(draw_class_means(np.repeat(values, 10, 1), np.repeat(classes, 10)))
    assert np.concatenate(ten) == pytest.approx(np.concatenate(one))
    half = 1.96 * values.std() / 60**0.5
    assert (one[1] - one[0]) / 2 == pytest.approx(half, rel=0.1)
    assert (one[0] < values.mean()) & (values.mean() < one[1])
