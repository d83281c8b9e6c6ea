import pytest
import torch

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.runs.folder.run_folder import RunFolder
from tests.conftest import TINY
from tests.system.finished_runs import start


def test_the_time_before_a_stop_is_kept(composed, tmp_path):
    cfg = composed(f"outputs={tmp_path}", *TINY, "protocol.epochs=3", "max_minutes=1e-9")
    with pytest.raises(RunStopped):
        start(cfg)
    last = RunFolder.of(cfg, check(cfg, Config)).job("repeat0-fold0") / "last.pt"
    state = torch.load(last, weights_only=True)
    assert state["step"] == 1
    assert state["seconds"] > 0
