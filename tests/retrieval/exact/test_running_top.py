"""The entries that a tile of scores adds to the best ones of its queries."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dml.retrieval.exact.running_top import above_threshold


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    share=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    seed=st.integers(0, 1000),
    is_transposed=st.booleans(),
)
def test_entries_above_thresholds_are_those_of_a_comparison(
    rows, columns, share, seed, is_transposed
):
    """Of any shape and number: of none, of few and of all entries."""
    generator = np.random.default_rng(seed)
    tile = generator.random((rows, columns), np.float32)
    if is_transposed:
        tile = np.asfortranarray(tile)
    threshold = 1 - np.float32(share) * generator.random(rows, np.float32)
    chosen = list(zip(*above_threshold(tile, threshold), strict=True))
    places = np.argwhere(tile > threshold[:, None])
    expected = [(row, column, tile[row, column]) for row, column in places]
    assert sorted(chosen) == expected
