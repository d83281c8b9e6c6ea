import torch

from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.pictures import draw_maps


def test_numbers_of_classes_are_rows_of_maps():
    points = SplitEmbeddings(torch.randn(24, 3), torch.arange(24) % 4)
    for counts, rows in (([2], 1), ([2, 3], 2), ([2, 3, 99], 3)):
        figure = draw_maps({"x": points}, "x", counts)
        assert len(figure.axes) == rows
        assert figure.get_figheight() == 4.0 * rows + 0.3
