"""Distances of all pairs are as accurate as differences, from the nearest to the farthest pair."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from dml.retrieval import pairs
from dml.retrieval.pairs import distance_tiles

ACCURACY = 1e-7  # relative, of squared distances, which are compared in float32


def items_of_all_scales(length: float) -> Tensor:
    """Items of a length, whose distances from each other range from 1e-8 to 1 times this length."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(60, 8, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-8, 0, 60, dtype=torch.float64)[:, None]
    center = torch.zeros(8, dtype=torch.float64)
    center[0] = 1.0
    opposite = -center.expand(60, 8)  # so that the center of all items is far from each of them
    near = center + scales * directions / directions.norm(dim=1, keepdim=True)
    return length * torch.cat([near, opposite])


@pytest.mark.parametrize("length", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("tile", [16, 1024])
def test_distances_of_all_scales_are_those_by_differences(monkeypatch, length, tile):
    monkeypatch.setattr(pairs, "TILE", tile)
    x = items_of_all_scales(length)
    expected = (x[:, None] - x).square().sum(dim=2)
    listed = set()
    for rows, columns, squared in distance_tiles(x, keep_shape=True):
        torch.testing.assert_close(squared, expected[rows, columns], rtol=ACCURACY, atol=0)
        above = torch.ones_like(squared, dtype=torch.bool)
        if rows == columns:
            above.triu_(diagonal=1)
        for row, column in above.nonzero().tolist():
            listed.add((rows.start + row, columns.start + column))
    assert listed == set(combinations(range(len(x)), 2))
