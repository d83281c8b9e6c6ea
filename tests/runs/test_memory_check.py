"""What does not fit into memory is refused before a run begins."""

import numpy as np
import pytest
from torch import nn

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.protocol import create_jobs
from dml.runs import memory_check
from dml.runs.memory_check import check_memory


@pytest.fixture
def job():
    labels = np.repeat(np.arange(4), 5)
    roles = np.where(labels < 2, "train", "test")
    (job,) = create_jobs("published", 1, ImageIndex("x", np.zeros((20, 1, 1, 3)), labels, roles))
    return job


# 10 test images: 3 × 4 × 10 × 8 bytes of embeddings; 3 × 4 × 8 of the network, × 200 of the loss
@pytest.mark.parametrize(
    ("method", "needed", "option"),
    [
        (nn.Identity(), 960 + 96, "embedder.size: "),
        (nn.Linear(25, 8, bias=False), 960 + 96 + 2400, "loss: "),
    ],
)
def test_the_larger_part_is_named(job, monkeypatch, method, needed, option):
    network = nn.Linear(3, 2)
    for free in (needed, 0):
        monkeypatch.setattr(memory_check, "available_memory", lambda free=free: free)
        check_memory(job, 8, network, method)
    monkeypatch.setattr(memory_check, "available_memory", lambda: needed - 1)
    with pytest.raises(UserError, match="GB are free") as error:
        check_memory(job, 8, network, method)
    assert str(error.value).startswith(option)
    assert "\n" not in str(error.value)


def test_frozen_weights_have_no_gradients(job, monkeypatch):
    monkeypatch.setattr(memory_check, "available_memory", lambda: 960)
    check_memory(job, 8, nn.Linear(3, 2).requires_grad_(False), nn.Identity())


@pytest.mark.promise(
    "guides/how_it_grows.md",
    "embeddings, or the weights of a loss, do not fit into memory: one line says so before the "
    "training, with the size that is free",
)
def test_a_run_is_refused_before_it_begins(run_tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(memory_check, "available_memory", lambda: 1000)
    with pytest.raises(UserError, match=r"embedder\.size: training needs .* GB are free"):
        run_tiny()
    assert not list(tmp_path.rglob("config.yaml"))
