"""Precision and peak memory of a run."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dml.core.errors import UserError
from dml.training import device
from dml.training.device import set_precision

SHORT = ("protocol.steps_per_epoch=3", "data.batch_size=60", "loss=mfcont")


@pytest.fixture
def score(run_tiny):
    def scored(*overrides):
        summary, _ = run_tiny("overwrite=true", *SHORT, *overrides)
        return summary["metrics"]["map_at_r"]["mean"]

    return scored


def test_convolutions_and_products_are_float32_unless_asked_otherwise(score):
    kinds = torch.backends.cudnn, torch.backends.cuda.matmul
    set_precision("tf32", torch.device("cuda"))
    assert all(kind.allow_tf32 for kind in kinds)
    score()
    assert not any(kind.allow_tf32 for kind in kinds)
    with pytest.raises(UserError, match="precision: tf32 is a format of GPUs"):
        score("precision=tf32")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts it so")
def test_the_peak_of_the_parent_process_does_not_count(monkeypatch):
    of_both = SimpleNamespace(ru_maxrss=2**40)  # what Linux says after a large parent
    monkeypatch.setattr(device.resource, "getrusage", lambda who: of_both)
    assert 50 < device.peak_memory_mb(torch.device("cpu")) < 2**20
