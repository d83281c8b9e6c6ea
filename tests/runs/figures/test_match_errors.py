"""The ticks of the axis of false matches do not lie on each other."""

import pytest

from dml.runs.figures.match_errors import _decades


@pytest.mark.parametrize(
    ("smallest", "ticks"),
    [
        (1e-4, [0, 0.001, 0.01, 0.1, 1, 10, 100]),
        (2.8e-4, [0, 0.001, 0.01, 0.1, 1, 10, 100]),
        (0.5, [0, 10, 100]),
        (100.0, [0]),
    ],
)
def test_powers_of_ten_near_zero_are_left_out(smallest, ticks):
    assert _decades(smallest) == pytest.approx(ticks)
