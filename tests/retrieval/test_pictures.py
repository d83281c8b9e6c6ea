import pytest
import torch

from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.pictures import draw_grids, draw_maps


def test_numbers_of_classes_are_rows_of_maps():
    points = SplitEmbeddings(torch.randn(24, 3), torch.arange(24) % 4)
    for counts, rows in (([2], 1), ([2, 3], 2), ([2, 3, 99], 3)):
        figure = draw_maps({"x": points}, "x", counts)
        assert len(figure.axes) == rows
        assert figure.get_figheight() == 4.0 * rows + 0.3


@pytest.mark.parametrize("shape", [(1, 20000), (20000, 1), (1, 1), (3, 900)])
def test_thin_images_have_a_cell_too(shape):
    grids = {}
    for title in ("query", "nearest"):
        images = (torch.zeros(3, *shape, dtype=torch.uint8) for _ in range(2))
        grids[title] = images, ["red", "green"]
    assert len(draw_grids(grids).axes) == 2
