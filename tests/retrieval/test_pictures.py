import numpy as np
import pytest
import torch

from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.pictures import CELL, draw_grids, draw_maps, why_no_map


def test_numbers_of_classes_are_rows_of_maps():
    points = SplitEmbeddings(torch.randn(24, 3), torch.arange(24) % 4)
    for counts, rows in (([2], 1), ([2, 3], 2), ([2, 3, 99], 3)):
        figure = draw_maps({"x": points}, "x", counts)
        assert len(figure.axes) == rows


def test_a_map_names_its_projection():
    points = SplitEmbeddings(torch.randn(24, 3), torch.arange(24) % 4)
    title = draw_maps({"x": points}, "my title", [4]).get_suptitle()
    assert "my title" in title
    assert "t-SNE" in title


def test_classes_of_equal_colors_have_other_markers():
    points = SplitEmbeddings(torch.randn(90, 3), torch.arange(90) % 45)
    groups = draw_maps({"x": points}, "x", [45]).axes[0].collections
    assert [len(group.get_offsets()) for group in groups] == [40, 40, 10]
    shapes = {group.get_paths()[0].vertices.tobytes() for group in groups}
    assert len(shapes) == 3


def unit(shape):
    return torch.nn.functional.normalize(torch.randn(shape), dim=1)


def without_spread(n, width):
    one_hot = torch.eye(width)[:1]
    return {
        "zeros": torch.zeros(n, width),
        "equal": unit((1, width)).expand(n, -1),
        "one-hot": one_hot.expand(n, -1),
        "rounding": unit((1, width)) + 1e-8 * torch.randn(n, width),
        "line": torch.arange(n)[:, None] * unit((1, width)),
        "NaN": torch.full((n, width), torch.nan),
        "infinite": torch.randn(n, width).log(),
        "one number": torch.randn(n, 1),
    }


@pytest.mark.parametrize("n", [5, 32, 240])
@pytest.mark.parametrize("kind", without_spread(5, 4))
def test_points_without_spread_have_no_map(kind, n):
    """t-SNE would end the process by a segmentation fault, or a traceback."""
    points = without_spread(n, 64)[kind].contiguous()
    omitted = []
    labels = torch.arange(n) % 4
    figure = draw_maps(
        {"x": SplitEmbeddings(points, labels)}, "x", [4], lambda *why: omitted.append(why)
    )
    assert figure is None
    assert [name for name, _ in omitted] == ["x"]


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1, 1e30])
@pytest.mark.parametrize("kind", ["random", "few places", "plane", "offset"])
def test_points_with_spread_have_one(kind, scale):
    torch.manual_seed(0)
    points = {
        "random": torch.randn(40, 16),
        "few places": torch.eye(16)[torch.arange(40) % 3],
        "plane": torch.randn(40, 2),
        "offset": 1 + 1e-3 * torch.randn(40, 16),
    }[kind]
    points = points * scale
    assert why_no_map(points.numpy()) == ""
    figure = draw_maps({"x": SplitEmbeddings(points, torch.arange(40) % 4)}, "x", [4])
    positions = np.asarray(figure.axes[0].collections[0].get_offsets())
    assert np.isfinite(positions).all()
    assert (positions.std(axis=0) > 0).all()


def test_a_collapsed_network_leaves_the_map_of_the_other():
    labels, omitted = torch.arange(24) % 4, []
    networks = {
        "before": SplitEmbeddings(torch.randn(24, 8), labels),
        "after": SplitEmbeddings(torch.zeros(24, 8), labels),
    }
    figure = draw_maps(networks, "x", [4], lambda *why: omitted.append(why))
    before, after = figure.axes
    assert len(before.collections) == 1
    assert not after.collections
    assert "equal" in after.texts[0].get_text()
    assert [name for name, _ in omitted] == ["after"]


@pytest.mark.parametrize("shape", [(1, 20000), (20000, 1), (1, 1), (3, 900)])
def test_thin_images_have_a_cell_too(shape):
    grids = {}
    for title in ("query", "nearest"):
        images = (torch.zeros(3, *shape, dtype=torch.uint8) for _ in range(2))
        grids[title] = images, ["red", "green"]
    assert len(draw_grids(grids).axes) == 2


def test_captions_stay_below_their_images():
    """The middle of an image keeps its color, and the ink of a text is below it."""
    images = [torch.zeros(3, 8, 8, dtype=torch.uint8)] * 6
    texts = ["Ä$x^2$" * 40, "b\nc\nd", "", "x", "y", "z"]
    grids = {"query": (images[:2], ["red"] * 2), "nearest": (images, ["green"] * 6)}
    figure = draw_grids(grids, captions={"query": texts[:2], "nearest": texts})
    plain = draw_grids(grids)
    assert figure.get_size_inches()[1] > plain.get_size_inches()[1]
    below = [text.get_text() for text in figure.axes[1].texts]
    assert below == texts
    columns = [text.get_position()[0] for text in figure.axes[1].texts]
    assert columns[:3] == columns[3:]
    picture = figure.axes[1].images[0].get_array()
    for text in figure.axes[1].texts:
        left, top = map(int, text.get_position())
        assert picture[top - 1, left + 60].tolist() == [0, 128, 0]  # the frame
        assert picture[top, left + 60].tolist() == [255, 255, 255]


def test_one_query_with_one_neighbor_has_captions():
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    grids = {"query": ([image], ["red"]), "nearest": ([image], ["green"])}
    figure = draw_grids(grids, captions={"query": ["a"], "nearest": ["b"]})
    assert figure.axes[0].texts[0].get_position() == (0, CELL)
