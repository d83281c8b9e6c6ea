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
                assert watch.lap() == TimeSpent(2, 8.0, 6.0)
    watch.stop()
    now.seconds += 7.0
    watch.stop()  # nothing new
    assert watch.interval == TimeSpent(2, 8.0, 6.0)
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
    assert second.total == second.interval == TimeSpent(3, 5.0, 3.0)
    assert second.in_process == TimeSpent(1, 1.0, 1.0)


class Device:
    """Works through marks and steps behind the process that gives it work."""

    def __init__(self, now):
        self.now, self.busy_until = now, 0.0

    def work(self, seconds):
        self.busy_until = max(self.busy_until, self.now.seconds) + seconds

    def mark(self):
        at = max(self.busy_until, self.now.seconds)
        return SimpleNamespace(
            at=at,
            query=lambda: self.now.seconds >= at,
            synchronize=lambda: setattr(self.now, "seconds", max(self.now.seconds, at)),
            elapsed_time=lambda other: 1e3 * (other.at - at),
        )


@pytest.mark.parametrize(
    ("loading", "waiting"),
    # Steps of 2 s: a faster loader is hidden behind them, all but the first batch and the copies.
    [(0.5, 0.5 + 4 * 0.1), (5.0, 5.0 + 3 * (5.0 - 2.1) + 4 * 0.1)],
)
def test_a_gpu_waits_only_when_it_is_idle(now, loading, waiting):
    device = Device(now)
    watch = StepClock(torch.device("cpu"))
    watch._wait_timer = clock._GpuTimer(device.mark)
    given = []

    def batches():
        for _ in range(4):
            now.seconds += loading
            device.work(0.1)  # the copy
            yield

    for _ in watch.time_batches(batches()):
        given.append(now.seconds)
        device.work(2.0)
    assert given == [100.0 + (number + 1) * loading for number in range(4)]  # it never waited
    device.mark().synchronize()
    watch.stop()
    assert watch.total.waiting == pytest.approx(waiting)


def test_a_clock_is_read_while_it_runs(now):
    watch = StepClock(torch.device("cpu"))
    readings = []
    for _ in watch.time_batches(slow(now, 3, 3.0)):
        now.seconds += 1.0
        readings.append(watch.read())
    watch.stop()
    assert readings == [TimeSpent(1, 4.0, 3.0), TimeSpent(2, 8.0, 6.0), TimeSpent(3, 12.0, 9.0)]
    assert readings[2].since(readings[0]) == TimeSpent(2, 8.0, 6.0)
    assert readings[2].seconds_per_step == 4.0
    assert watch.total == watch.in_process == TimeSpent(3, 12.0, 9.0)
