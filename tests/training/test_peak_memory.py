from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dml.training import device


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux counts it so")
def test_the_peak_of_the_parent_process_does_not_count(monkeypatch):
    of_both = SimpleNamespace(ru_maxrss=2**40)  # what Linux says after a large parent
    monkeypatch.setattr(device.resource, "getrusage", lambda who: of_both)
    assert 50 < device.peak_memory_mb(torch.device("cpu")) < 2**20
