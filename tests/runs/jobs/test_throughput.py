import time

import pytest
import torch

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.data.image_dataset import ImageDataset
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs import throughput
from dml.tracking import History
from tests.conftest import TINY
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import start


@pytest.fixture
def prepared(composed, tmp_path):
    def prepare(*overrides):
        cfg = composed(f"outputs={tmp_path}", *TINY, "protocol.epochs=3", *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def steps_of(folder):
    return [row["step"] for row in History(folder.throughput).job_rows(0, 0)]


def test_a_killed_run_has_a_row_for_every_interval(prepared):
    cfg, folder = prepared()
    assert die_at("before_rename:9", start, cfg) == KILLED  # a row that no checkpoint knows
    summary = start(cfg)
    rows = History(folder.throughput).job_rows(0, 0)
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


def test_the_time_before_a_stop_is_kept(prepared):
    cfg, folder = prepared("max_minutes=1e-9")
    with pytest.raises(RunStopped):
        start(cfg)
    state = torch.load(folder.job("repeat0-fold0") / "last.pt", weights_only=True)
    steps, seconds, waiting = state["clock"]["interval"]
    assert steps == state["step"] == 1
    assert 0 < waiting < seconds


def test_a_slow_loader_is_reported_once_with_a_remedy(prepared, monkeypatch, capsys):
    monkeypatch.setattr(throughput, "WAITING_SECONDS", 0.02)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(5))
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
