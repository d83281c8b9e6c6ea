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
    rows, columns, values = selection.beyond(tile, threshold)
    expected = [(i, j) for i in range(n) for j in range(c) if tile[i, j] > threshold[i]]
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == expected
    assert rows.tolist() == sorted(rows.tolist())
    assert torch.equal(values, tile[rows, columns])


@given(st.integers(0, 999), sizes, sizes, st.sampled_from([None, 2]), st.data())
def test_the_score_at_a_rank_and_the_best(seed, n, w, distinct, data):
    generator = torch.Generator().manual_seed(seed)
    wide = scores_of(generator, n, w + 3, distinct)
    scores, indices = wide[:, :w], torch.randint(2**31 - 1, (n, w), generator=generator).int()
    before = scores.clone()
    m = data.draw(st.integers(1, w))
    expected = scores.sort(dim=1, descending=True).values[:, :m]
    assert torch.equal(selection.ranked(scores, m), expected[:, -1])
    found, numbers = selection.best(scores, indices, m)
    assert torch.equal(found, expected)
    assert torch.equal(scores, before)
    for i in range(n):
        given_pairs = set(zip(scores[i].tolist(), indices[i].tolist(), strict=True))
        best = set(zip(found[i].tolist(), numbers[i].tolist(), strict=True))
        assert best <= given_pairs
        assert len(best) == m


def test_more_rows_than_sixteen_bits_count():
    tile = torch.zeros(3, 70_000).T
    tile[[65_999, 5, 69_999], [2, 0, 1]] = 1.0
    rows, columns, values = selection.beyond(tile, torch.full((70_000,), 0.5))
    assert rows.tolist() == [5, 65_999, 69_999]
    assert columns.tolist() == [0, 2, 1]
    assert values.tolist() == [1.0, 1.0, 1.0]
