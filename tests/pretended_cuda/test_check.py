"""The checks of a machine on the pretended device."""

import pytest
import torch

from dml.cli.machine import speed
from dml.cli.machine.device import try_gpu, try_precisions, try_step
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN


def test_the_gpu_and_its_precisions():
    assert try_gpu().result.startswith("1 x a GPU that is not there")
    outcome = try_precisions()
    assert outcome.works
    for name in ("fp32", "tf32", "bf16"):
        assert f"{name} " in outcome.result
    assert not torch.backends.cuda.matmul.allow_tf32


def test_a_step():
    outcome = try_step()
    assert outcome.works, outcome
    assert outcome.result.startswith("a GPU that is not there: ")


def test_the_first_row(monkeypatch):
    monkeypatch.setattr(speed, "SECONDS", 0.01)
    small = Embedder(SmallCNN(width=4, input_size=16), size=4)
    monkeypatch.setattr("dml.runs.build.Builder.embedder", lambda self: small)
    row = speed.FirstRow()
    assert row.try_input().works
    assert row.try_embedding().result.endswith("batches of 256")
    images = 2 * 5924
    seconds = images / min(row.input_speed, row.step_speed)
    assert row.estimate().result.startswith(f"about {speed.format_seconds(seconds)} for")


@pytest.mark.parametrize("count", [2, 4])
def test_one_process_for_each_gpu(monkeypatch, count):
    from dml.cli.machine import processes

    started = []

    def start(target, arguments):
        started.extend(arguments)
        raise RuntimeError("not started")

    monkeypatch.setattr(processes, "start_processes", start)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(RuntimeError, match="not started"):
        processes.try_processes()
    assert [(rank, device) for rank, _, device in started] == [(n, "cuda") for n in range(count)]
    assert {variables["WORLD_SIZE"] for _, variables, _ in started} == {str(count)}
