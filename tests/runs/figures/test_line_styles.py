"""A loss keeps its color, and no two lines of a picture look alike."""

import pytest

from dml.runs.figures.drawing import COLORS
from dml.runs.figures.line_styles import FIXED, line_styles, loss_colors


def styles(lines, losses=()):
    return line_styles(lines, loss_colors([*losses, *lines.values()]))


def test_common_losses_have_their_color_in_every_picture():
    some = styles({"a": "contrastive", "b": "mfcwms"})
    others = styles({"x": "mfcwms", "y": "arcface", "z": "contrastive"})
    assert some["b"] == others["x"]
    assert some["a"] == others["z"]
    assert others["y"].color not in (some["a"].color, some["b"].color)


def test_a_loss_has_the_color_of_the_whole_report():
    losses = ["snr", "arcface", "cosface", "ms"]
    colors = loss_colors(losses)
    assert len(set(colors.values())) == 4
    alone = line_styles({"x": "cosface"}, colors)
    assert alone["x"].color == colors["cosface"]


def test_lines_of_one_loss_beside_others_have_its_color_and_other_dashes():
    lines = {"ms, 1": "ms", "c1, 1": "c1", "ms, 2": "ms", "c1, 2": "c1"}
    drawn = styles(lines)
    assert drawn["ms, 1"].color == drawn["ms, 2"].color != drawn["c1, 1"].color
    assert drawn["ms, 1"].dashes != drawn["ms, 2"].dashes


@pytest.mark.parametrize("number", [2, 5, 64])
def test_lines_that_differ_in_no_loss_have_a_color_each(number):
    drawn = styles({f"lr {n}": "ms" for n in range(number)})
    assert len(set(drawn.values())) == number
    assert len({style.color for style in drawn.values()}) == min(number, len(COLORS))


@pytest.mark.parametrize("number", [9, 17, 64])
def test_more_losses_than_colors_are_distinct(number):
    drawn = styles({f"line {n}": f"loss {n}" for n in range(number)})
    assert len(set(drawn.values())) == number


@pytest.mark.parametrize("number", [6, 12])
def test_many_lines_of_two_losses_are_distinct(number):
    lines = {f"{loss} {n}": loss for loss in ("ms", "c1") for n in range(number)}
    assert len(set(styles(lines).values())) == 2 * number


def test_no_lines():
    assert styles({}) == {}


def test_each_fixed_color_is_used_once():
    assert sorted(FIXED.values()) == sorted(COLORS)
