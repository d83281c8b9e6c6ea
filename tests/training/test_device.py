"""The precision of float32 products, and the peak memory of a process."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.training import device
from dml.training.device import autocast, peak_memory_mb, set_precision
from dml.training.process_state import restored_process_state

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "tf32"])
def test_only_tf32_rounds_the_factors_of_float32_products(precision, before):
    with restored_process_state():
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = before
        set_precision(precision, GPU)
        assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
        assert torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")


def test_tf32_needs_a_gpu():
    with pytest.raises(UserError, match=r"^precision: tf32 needs a GPU"):
        set_precision("tf32", CPU)


def test_the_peak_stays_when_memory_is_freed():
    array = np.ones(2**24)  # 128 MB
    during = peak_memory_mb(CPU)
    del array
    assert during > 128
    assert peak_memory_mb(CPU) > during - 1


@pytest.mark.parametrize(("platform", "size"), [("linux", 3 * 2**10), ("darwin", 3 * 2**20)])
def test_the_peak_without_a_status_file_is_in_mb(tmp_path, monkeypatch, platform, size):
    monkeypatch.setattr(device, "Path", lambda path: tmp_path / "absent")
    monkeypatch.setattr(device.sys, "platform", platform)
    monkeypatch.setattr(device.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=size))
    assert peak_memory_mb(CPU) == 3


def test_the_peak_of_a_gpu_is_in_mb(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda gpu: 3 * 2**20)
    assert peak_memory_mb(GPU) == 3


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16)],
)
def test_the_network_runs_in_its_precision(precision, dtype):
    layer = torch.nn.Linear(3, 2)
    with autocast(precision, torch.device("cpu")):
        assert layer(torch.ones(1, 3)).dtype == dtype
