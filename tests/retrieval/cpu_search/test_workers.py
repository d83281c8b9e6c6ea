import pytest
import torch

from dml.retrieval.cpu_search.workers import Workers


@pytest.mark.parametrize("length", [0, 1, 3, 700])
@pytest.mark.parametrize("count", [1, 3])
def test_workers_keep_the_order_and_take_no_gradients(length, count):
    with Workers(count) as workers:
        found = workers.for_each(lambda i: (i, torch.is_grad_enabled()), range(length))
    assert found == [(i, False) for i in range(length)]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("items", [1, 5])
def test_workers_raise_what_one_of_them_raises_and_give_threads_back(items):
    before = torch.get_num_threads()

    def fail(number):
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match="number 0"), Workers(2) as workers:
        workers.for_each(fail, range(items))
    assert torch.get_num_threads() == before


def test_workers_share_the_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for count, share in ((2, 2), (1, 4), (3, 1)):
            with Workers(count) as workers:
                found = workers.for_each(lambda _: torch.get_num_threads(), [0, 1])
                assert found == [share, share]
                assert torch.get_num_threads() == share
            assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
