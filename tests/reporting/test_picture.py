"""Axes and captions that pictures share."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from dml.reporting.picture import describe_spread, keep_percent


def test_axes_of_scores_stay_within_0_and_100():
    axis = Figure().subplots()
    axis.fill_between([0, 1], [-20, 40], [120, 60])
    keep_percent(axis)
    assert axis.get_ylim() == (0, 100)


def test_narrow_axes_are_left_alone():
    axis = Figure().subplots()
    axis.plot([0, 1], [40, 60])
    before = axis.get_ylim()
    keep_percent(axis)
    assert axis.get_ylim() == before


@pytest.mark.parametrize(
    ("repeats", "text"),
    [
        ([1, 1], ""),
        ([2, 1], "; bands: standard deviation of two repeats"),
        ([3, 1], "; bands: 95 % intervals over repeats"),
        ([3, 2], "; bands: 95 % intervals over repeats, of two repeats their standard deviation"),
    ],
)
def test_captions_name_the_spread(repeats, text):
    assert describe_spread("bands", repeats) == text
