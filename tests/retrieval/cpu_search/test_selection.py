"""NumPy and a loop select the same entries."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dml.retrieval.cpu_search import selection


def scores_of(seed, n, c, distinct=None):
    """Random scores, negative ones and −∞ among them; few distinct ones make ties."""
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((n, c), np.float32)
    if distinct:
        scores = (scores * distinct).round() / distinct
    scores[generator.random((n, c)) < 0.05] = -np.inf
    return scores


sizes = st.integers(1, 9)


@given(st.integers(0, 999), sizes, sizes, st.booleans(), st.sampled_from([None, 2]))
def test_entries_above_thresholds(seed, n, c, transposed, distinct):
    tile = scores_of(seed, n, c, distinct)
    if transposed:
        tile = tile.T.copy().T
    threshold = scores_of(seed + 1, n, 1, distinct)[:, 0]
    expected = [(i, j) for i in range(n) for j in range(c) if tile[i, j] > threshold[i]]
    rows, columns, values = selection.above_threshold(tile, threshold)
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == expected
    if not transposed:
        assert rows.tolist() == sorted(rows.tolist())
    assert (values == tile[rows, columns]).all()
    assert selection.above_threshold(tile, threshold, len(expected)) is not None
    assert selection.above_threshold(tile, threshold, len(expected) - 1) is None


@given(st.integers(0, 999), sizes, sizes, st.sampled_from([None, 2]), st.data())
def test_the_score_at_a_rank(seed, n, c, distinct, data):
    scores = scores_of(seed, n, c, distinct)
    before = scores.copy()
    rank = data.draw(st.integers(1, c))
    expected = -np.sort(-scores, axis=1)[:, rank - 1]
    assert (selection.kth_largest(scores, rank) == expected).all()
    assert (scores == before).all()
