"""What training takes: measured by a clock, written beside the history, and told where it waits."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.data.base import ImageDataset
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs import throughput
from dml.runs.jobs.throughput import LoaderHint, remedy
from dml.tracking import History
from dml.training import clock
from dml.training.clock import Spent, StepClock
from tests.conftest import TINY
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import start


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


def test_waiting_and_working_are_told_apart_and_pauses_left_out(now):
    watch = StepClock(torch.device("cpu"))
    for number in watch.watched(slow(now, 4, 3.0)):
        now.seconds += 1.0
        if number == 1:
            with watch.paused():
                now.seconds += 50.0
                assert watch.lap() == Spent(2, 8.0, 6.0)
    watch.stop()
    now.seconds += 7.0
    watch.stop()  # nothing new
    assert watch.interval == Spent(2, 8.0, 6.0)
    assert watch.total == watch.here == Spent(4, 16.0, 12.0)
    assert watch.total.waiting_share == 0.75
    assert watch.total.images_per_second(8) == 2.0


def test_a_clock_goes_on_in_another_process(now):
    first = StepClock(torch.device("cpu"))
    for _ in first.watched(slow(now, 2, 1.0)):
        now.seconds += 1.0
    first.stop()
    second = StepClock(torch.device("cpu"))
    second.load_state_dict(first.state_dict())
    for _ in second.watched(slow(now, 1, 1.0)):
        pass
    second.stop()
    assert second.total == second.interval == Spent(3, 5.0, 3.0)
    assert second.here == Spent(1, 1.0, 1.0)


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
def test_a_gpu_waits_only_when_it_has_nothing_to_do(now, loading, waiting):
    device = Device(now)
    watch = StepClock(torch.device("cpu"))
    watch._gaps = clock._DeviceGaps(device.mark)
    given = []

    def batches():
        for _ in range(4):
            now.seconds += loading
            device.work(0.1)  # the copy
            yield

    for _ in watch.watched(batches()):
        given.append(now.seconds)
        device.work(2.0)
    assert given == [100.0 + (number + 1) * loading for number in range(4)]  # it never waited
    device.mark().synchronize()
    watch.stop()
    assert watch.total.waiting == pytest.approx(waiting)


@pytest.fixture
def prepared(composed, tmp_path):
    def prepare(*overrides):
        cfg = composed(f"outputs={tmp_path}", *TINY, "protocol.epochs=3", *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def steps_of(folder):
    return [row["step"] for row in History(folder.throughput).of(0, 0)]


def test_every_interval_has_a_row_however_often_the_run_was_killed(prepared):
    cfg, folder = prepared()
    assert die_at("before_rename:9", start, cfg) == KILLED  # a row that no checkpoint knows
    summary = start(cfg)
    rows = History(folder.throughput).of(0, 0)
    assert [row["step"] for row in rows] == [7, 14, 21]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["images_per_second"] > 0
        assert 0 < row["waiting_share"] < 1
        assert row["peak_memory_mb"] > 50
    assert 0 < summary["waiting_share"] < 1
    assert summary["jobs"][0]["seconds"] > 0
    cfg.overwrite = True
    start(cfg)
    assert steps_of(folder) == [7, 14, 21]


def test_time_before_a_stop_counts(prepared):
    cfg, folder = prepared("max_minutes=1e-9")
    with pytest.raises(RunStopped):
        start(cfg)
    state = torch.load(folder.job("repeat0-fold0") / "last.pt", weights_only=True)
    steps, seconds, waiting = state["clock"]["interval"]
    assert steps == state["step"] == 1
    assert 0 < waiting < seconds


def test_lost_times_do_not_stop_a_run(prepared, capsys):
    cfg, folder = prepared()
    assert die_at("before_step:17", start, cfg) == KILLED
    folder.throughput.unlink()
    start(cfg)
    assert steps_of(folder) == [21]


def test_a_run_that_waits_for_its_loader_is_told_once_what_helps(prepared, monkeypatch, capsys):
    monkeypatch.setattr(throughput, "WAITING_SECONDS", 0.02)
    monkeypatch.setattr(throughput.os, "sched_getaffinity", lambda process: range(5))
    cfg, _ = prepared()
    items = ImageDataset.__getitems__

    def slow_items(self, keys):
        time.sleep(0.05)
        return items(self, keys)

    monkeypatch.setattr(ImageDataset, "__getitems__", slow_items)
    start(cfg)
    out = capsys.readouterr().out
    assert out.count("note: data: training waited for images") == 1
    assert "data.workers=5 loads by as many processes (0 now)" in out


@pytest.mark.parametrize(
    ("spent", "told"),
    [
        (Spent(9, 60.0, 19.9), False),
        (Spent(9, 70.0, 20.0), False),
        (Spent(9, 60.0, 20.0), True),
    ],
)
def test_small_runs_are_told_nothing(composed, spent, told):
    said: list[str] = []
    index = SimpleNamespace(images=[])
    hint = LoaderHint(check(composed(), Config), index, torch.device("cpu"), said.append)
    hint.look(spent)
    hint.look(spent)
    assert len(said) == told
    if told:
        assert "20 of 60 s (33 %)" in said[0]


@pytest.mark.parametrize(
    ("overrides", "in_memory", "device", "expected"),
    [
        ([], False, "cpu", "data.workers=4"),
        (["data.workers=4"], False, "cpu", "data.cache=full"),
        (
            ["data.workers=4", "transform.resize=256", "transform.test_resize=256"],
            False,
            "cuda",
            "data.cache=256",
        ),
        (
            ["data.workers=4", "transform.resize=256", "transform.test_resize=null"],
            False,
            "cuda",
            "data.cache=full",  # testing sees whole images
        ),
        (["data.workers=4", "data.cache=full"], False, "cpu", None),
        (["data.workers=4", "data.cache=full"], False, "cuda", "data.cache_device=cuda"),
        (["data.workers=4"], True, "cpu", None),
        (["data.workers=4"], True, "cuda", "data.cache_device=cuda"),
        (["protocol=mlrc", "protocol.workers=3"], False, "cpu", "data.workers=1"),
    ],
)
def test_the_option_that_helps(composed, monkeypatch, overrides, in_memory, device, expected):
    monkeypatch.setattr(throughput.os, "sched_getaffinity", lambda process: range(4))
    config = check(composed(*overrides), Config)
    found = remedy(config, in_memory, torch.device(device))
    assert found is None if expected is None else found.startswith(f"{expected} "), found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts it so")
def test_the_peak_is_not_that_of_the_program_that_started_this_one(monkeypatch):
    of_both = SimpleNamespace(ru_maxrss=2**40)  # what Linux says after a large parent
    monkeypatch.setattr(clock.resource, "getrusage", lambda who: of_both)
    assert 50 < clock.peak_memory_mb(torch.device("cpu")) < 2**20
