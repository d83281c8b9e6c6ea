import math

import pytest

from dml.reporting.statistics import mean_interval


def test_by_hand():
    # mean 2, standard deviation 1, t quantile for two degrees of freedom 4.302653
    mean, half = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert math.isclose(half, 4.302653 / math.sqrt(3), rel_tol=1e-6)


def test_one_value_has_no_interval():
    assert mean_interval([0.4]) == (0.4, None)


def test_no_value():
    with pytest.raises(ValueError, match="values"):
        mean_interval([])
