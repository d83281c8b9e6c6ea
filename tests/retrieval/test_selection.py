"""NumPy's way, PyTorch's way and a loop select the same entries."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dml.retrieval import selection

BY_NUMPY = [True, False]


def scores_of(generator, n, c, distinct=None):
    """Random scores, negative ones and −∞ among them; few distinct ones make ties."""
    scores = torch.randn(n, c, generator=generator)
    if distinct:
        scores = (scores * distinct).round() / distinct
    scores[torch.rand(n, c, generator=generator) < 0.05] = -torch.inf
    return scores


@pytest.fixture(params=BY_NUMPY, ids=["numpy", "torch"], autouse=True)
def way(request, monkeypatch):
    monkeypatch.setattr(selection, "_in_numpys_reach", lambda scores: request.param)


sizes = st.integers(1, 9)


@given(st.integers(0, 999), sizes, sizes, st.booleans(), st.sampled_from([None, 2]))
def test_entries_beyond_thresholds(seed, n, c, transposed, distinct):
    generator = torch.Generator().manual_seed(seed)
    tile = scores_of(generator, n, c, distinct)
    if transposed:
        tile = tile.T.contiguous().T
    threshold = scores_of(generator, n, 1, distinct)[:, 0]
    expected = [(i, j) for i in range(n) for j in range(c) if tile[i, j] > threshold[i]]
    rows, columns, values = selection.above_threshold(tile, threshold)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == expected
    if not transposed:
        assert rows.tolist() == sorted(rows.tolist())
    assert torch.equal(values, tile[rows, columns])
    assert selection.above_threshold(tile, threshold, len(expected)) is not None
    assert selection.above_threshold(tile, threshold, len(expected) - 1) is None


@given(st.integers(0, 999), sizes, sizes, st.sampled_from([None, 2]), st.data())
def test_the_score_at_a_rank(seed, n, c, distinct, data):
    scores = scores_of(torch.Generator().manual_seed(seed), n, c, distinct)
    before = scores.clone()
    rank = data.draw(st.integers(1, c))
    expected = scores.sort(dim=1, descending=True).values[:, rank - 1]
    assert torch.equal(selection.kth_largest(scores, rank), expected)
    assert torch.equal(scores, before)


def test_numbers_are_sorted_beside_their_order():
    numbers = torch.tensor([5, -(2**62), 2**62, 0, 5])
    assert selection.ascending(numbers).tolist() == [-(2**62), 0, 5, 5, 2**62]
    assert numbers.tolist() == [5, -(2**62), 2**62, 0, 5]
