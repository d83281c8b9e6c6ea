"""The others wait for the work of the first process for as long as it lives."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from dml.training.main_work import SILENT_SECONDS, MainWork
from dml.training.process_group import distributed_session
from tests.training.processes import in_two_processes
from tests.waiting import wait_until


@pytest.fixture
def pair():
    """Works of the first process, and of another one, which hears of it."""
    store = dist.HashStore()
    return MainWork(store, lambda rank: 0.0), MainWork(store, lambda rank: 0.0)


def test_each_work_is_waited_for(pair):
    main, other = pair
    order = []

    def take_part():
        for number in range(3):
            other.end(is_main=False)
            order.append(f"met {number}")

    thread = threading.Thread(target=take_part)
    thread.start()
    for number in range(3):
        wait_until(lambda number=number: len(order) >= 2 * number)
        time.sleep(0.05)
        order.append(f"worked {number}")
        main.end(is_main=True)
    thread.join()
    assert order == [f"{what} {number}" for number in range(3) for what in ("worked", "met")]


def test_a_first_process_that_is_ahead_is_not_waited_for(pair):
    main, other = pair
    for _ in range(2):
        main.end(is_main=True)
    for _ in range(2):
        other.end(is_main=False)


def test_a_silent_first_process_is_not_waited_for():
    MainWork(dist.HashStore(), lambda rank: SILENT_SECONDS + 1).end(is_main=False)


LIMIT = timedelta(seconds=4)  # of a collective operation


def score():
    with distributed_session("cpu", LIMIT) as world:

        def work():
            time.sleep(2 * LIMIT.total_seconds())
            return f"scored by {world.rank}"

        return world.broadcast_from_main(work)


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "the first process scores for longer than the limit of a process that hangs: the others wait "
    "for it",
)
def test_work_may_take_longer_than_a_collective_operation_waits(tmp_path):
    assert in_two_processes(score, tmp_path) == ["scored by 0"] * 2
