import pytest
import torch

from dml.retrieval import nearest_neighbors


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_counted(value):
    query = torch.zeros(4, 5)
    query[1, 2] = query[3, 0] = value
    with pytest.raises(ValueError, match="query: 2 of 20 values are NaN or infinite"):
        nearest_neighbors(query, k=1)
    with pytest.raises(ValueError, match="gallery: 2 of 20 values"):
        nearest_neighbors(torch.zeros(1, 5), query, k=1)
