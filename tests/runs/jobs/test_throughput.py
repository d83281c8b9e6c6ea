import time

import pytest
import torch

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.data.image_dataset import ImageDataset
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs import throughput
from tests.conftest import TINY
from tests.system.finished_runs import start


@pytest.fixture
def prepared(composed, tmp_path):
    def prepare(*overrides):
        cfg = composed(f"outputs={tmp_path}", *TINY, "protocol.epochs=3", *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def test_the_time_before_a_stop_is_kept(prepared):
    cfg, folder = prepared("max_minutes=1e-9")
    with pytest.raises(RunStopped):
        start(cfg)
    state = torch.load(folder.job("repeat0-fold0") / "last.pt", weights_only=True)
    steps, seconds, waiting = state["clock"]["total"]
    assert steps == state["step"] == 1
    assert 0 < waiting < seconds


def test_a_slow_loader_is_reported_once_with_a_remedy(prepared, monkeypatch, capsys):
    monkeypatch.setattr(throughput, "WAITING_SECONDS", 0.02)
    cfg, _ = prepared()
    items = ImageDataset.__getitems__

    def slow_items(self, keys):
        time.sleep(0.05)
        return items(self, keys)

    monkeypatch.setattr(ImageDataset, "__getitems__", slow_items)
    start(cfg)
    out = capsys.readouterr().out
    assert out.count("note: data: training waited for images") == 1
    assert "more than data.workers=auto or data.cache=full (in a new run) loads them faster" in out
