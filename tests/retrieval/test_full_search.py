import torch

from dml.retrieval.full_search import surplus_duplicates


def test_surplus_duplicates_keep_the_lowest_of_each_kind():
    gallery = torch.tensor([[1.0], [2.0], [1.0], [1.0], [2.0], [1.0], [3.0]])
    surplus = surplus_duplicates(gallery, 2)
    assert surplus.tolist() == [False, False, False, True, False, True, False]
