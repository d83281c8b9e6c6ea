import threading
import time

import pytest
import torch

from dml.data.threads import map_in_threads


def test_results_come_in_order_whatever_takes_longest():
    def slow_if_even(number: int) -> int:
        time.sleep(0.002 * (number % 2 == 0))
        return number * number

    assert list(map_in_threads(slow_if_even, range(50))) == [
        number * number for number in range(50)
    ]
    assert list(map_in_threads(slow_if_even, [])) == []


def test_only_a_few_items_are_taken_ahead():
    taken = []

    def items():
        for number in range(10_000):
            taken.append(number)
            yield number

    results = map_in_threads(abs, items())
    assert next(results) == 0
    assert len(taken) < 1000
    results.close()


def test_failure_is_raised_at_its_turn_and_leaves_nothing_running():
    before, threads = threading.active_count(), torch.get_num_threads()
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(map_in_threads(lambda number: 1 / (5 - number), range(10_000)))
    assert len(seen) == 5
    assert threading.active_count() == before
    assert torch.get_num_threads() == threads
