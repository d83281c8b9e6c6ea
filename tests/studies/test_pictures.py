"""Pictures of the pages are small, and keep their hues and their marks."""

import numpy as np
import pytest
from PIL import Image

from dml.core.outputs import is_picture_of
from dml.runs.figures.drawing import BLUE, RED, plt, save
from studies.pictures import save_small, shrink


@pytest.fixture
def figure():
    figure, axis = plt.subplots(figsize=(4, 3))
    axis.fill_between([0, 1], 0, 1, color=BLUE, lw=0)
    axis.plot([0, 1], [1, 2], color=RED, lw=0.8)
    return figure


def hues(path):
    with Image.open(path) as picture:
        return {color for _, color in picture.convert("RGB").getcolors(1 << 24)}


def test_a_figure_has_few_colors_and_those_that_were_drawn(figure, tmp_path):
    path = tmp_path / "small.png"
    save_small(figure, path)
    assert len(hues(path)) <= 32
    with Image.open(path) as picture:
        assert picture.width == 400
    for color in (BLUE, RED):
        wanted = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)])
        assert min(np.abs(wanted - drawn).max() for drawn in hues(path)) < 12
    assert is_picture_of("figure small")(path)


def test_a_picture_of_a_run_becomes_smaller_and_may_still_be_replaced(figure, tmp_path):
    path = tmp_path / "neighbors.png"
    save(figure, path)
    before = path.stat().st_size
    shrink(path, colors=16, width=300)
    assert path.stat().st_size < before
    with Image.open(path) as picture:
        assert picture.size == (300, 225)
    assert len(hues(path)) <= 16
    assert is_picture_of("figure neighbors")(path)
