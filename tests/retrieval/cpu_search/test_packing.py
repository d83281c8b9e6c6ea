import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.retrieval.cpu_search.packing import Packing, max_queries

FLOATS = st.floats(width=32, allow_nan=False)


@given(
    st.lists(st.tuples(st.integers(0, 2**10 - 1), FLOATS, st.integers(0, 2**21 - 1)), min_size=1)
)
def test_packed_entries_sort_by_query_score_and_row(entries):
    packing = Packing(2**21)
    query, score, column = (np.array(part) for part in zip(*entries, strict=True))
    score = score.astype(np.float32) + 0.0  # no negative zeros: they follow the positive ones
    numbers = packing.pack(query, column, score)
    assert (numbers >= 0).all()
    assert (packing.scores(numbers) == score).all()
    assert (packing.rows(numbers) == column).all()
    keys = sorted(zip(query.tolist(), (-score).tolist(), column.tolist(), strict=True))
    found = np.sort(numbers)
    got = zip((-packing.scores(found)).tolist(), packing.rows(found).tolist(), strict=True)
    assert [(q, *rest) for (q, _, _), rest in zip(keys, got, strict=True)] == keys
    starts = packing.starts(found, 2**10).tolist()
    assert starts[0] == 0
    assert starts[-1] == len(entries)
    for number in set(query.tolist()):
        assert starts[number + 1] - starts[number] == query.tolist().count(number)


@pytest.mark.parametrize("items", [1, 2, 3, 5_976, 2**20, 2**20 + 1, 2**31])
def test_the_last_query_and_the_last_item_fit_into_a_number(items):
    packing, last = Packing(items), max_queries(items) - 1
    number = packing.pack(np.array([last]), np.array([items - 1]), np.array([-np.inf], np.float32))
    assert 0 <= number[0] < 2**63
    assert packing.rows(number)[0] == items - 1
    assert max_queries(items) * items <= 2**32
