"""Steps of two processes, and what they exchange: the quick part of `test_process_group.py`."""

import pytest

from tests.training.distributed_steps import differences
from tests.training.processes import in_two_processes
from tests.training.test_process_group import TOLERANCE

# a loss of pairs, one of proxies, a method, and what a step does beside averaging gradients
CASES = ("mfcwms", "proxy_anchor", "metrix embed", "clipped", "micro-batches", "all empty")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """What two processes find."""
    return in_two_processes(lambda: differences(CASES), tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_two_processes_is_a_step_of_one(quick, case):
    for found in quick:
        worst, where, _ = found[case]
        assert worst < TOLERANCE, where


def test_collective_operations(quick):
    for rank, found in enumerate(quick):
        assert found["gathered"]
        assert found["adjoint"]
        for length, rows in found["main_only"].items():
            whole = [[3.0 * row, 3.0 * row + 1, 3.0 * row + 2] for row in range(int(length))]
            assert rows == ([] if rank else whole)
        assert found["sizes_unknown"] == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
        assert found["stops"] == [None] * 4 + [75]
        assert found["one_empty"] == quick[0]["one_empty"]
        assert all(norm > 0 for norm in found["one_empty"])
        assert found["counted"] == (rank > 0)
        assert found["failed"] == f"{rank > 0} data: it is not there"
        assert found["called"] == [0, rank]
