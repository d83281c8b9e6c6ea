from types import SimpleNamespace

import pytest
import torch

from dml.training import clock
from dml.training.clock import StepClock, TimeSpent


@pytest.fixture
def now(monkeypatch):
    """Time that passes only where a test says so."""
    passed = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(clock.time, "perf_counter", lambda: passed.seconds)
    return passed


def slow(now, count, seconds):
    for number in range(count):
        now.seconds += seconds
        yield number


def test_waiting_is_measured_and_pauses_are_excluded(now):
    watch = StepClock(torch.device("cpu"))
    for number in watch.time_batches(slow(now, 4, 3.0)):
        now.seconds += 1.0
        if number == 1:
            with watch.pause():
                now.seconds += 50.0
    watch.stop()
    now.seconds += 7.0
    watch.stop()  # nothing new
    assert watch.total == watch.in_process == TimeSpent(4, 16.0, 12.0)
    assert watch.total.waiting_share == 0.75
    assert watch.total.images_per_second(8) == 2.0


def test_a_clock_continues_in_another_process(now):
    first = StepClock(torch.device("cpu"))
    for _ in first.time_batches(slow(now, 2, 1.0)):
        now.seconds += 1.0
    first.stop()
    second = StepClock(torch.device("cpu"))
    second.load_state_dict(first.state_dict())
    for _ in second.time_batches(slow(now, 1, 1.0)):
        pass
    second.stop()
    assert second.total == TimeSpent(3, 5.0, 3.0)
    assert second.in_process == TimeSpent(1, 1.0, 1.0)
