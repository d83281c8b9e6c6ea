"""The processor against float64: what is right passes, and what is wrong does not."""

import pytest
import torch

from dml.cli.machine import device
from dml.cli.machine.device import try_gpu, try_machine, try_precisions, try_step


def test_the_machine_is_described():
    outcome = try_machine()
    assert outcome.works
    assert " thread" in outcome.result
    assert "GB memory" in outcome.result


def test_the_precisions_of_a_processor():
    outcome = try_precisions()
    assert outcome.works
    assert outcome.result.startswith("relative errors fp32 ")
    assert "bf16 " in outcome.result


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_a_product_that_is_wrong_is_noticed(monkeypatch, name):
    limit = device.TOLERANCES[name]
    error = device._relative_error

    def add(computed, expected):
        is_bf16 = computed.dtype == torch.bfloat16
        wrong = 1.5 * limit * expected.abs().max() * (is_bf16 == (name == "bf16"))
        return error(computed.double() + wrong, expected)

    monkeypatch.setattr(device, "_relative_error", add)
    outcome = try_precisions()
    assert not outcome.works
    assert outcome.result.endswith(f"too large: {name}")


def test_a_step_of_training():
    state = torch.get_rng_state()
    outcome = try_step()
    assert outcome.works
    assert float(outcome.result.rpartition(" ")[2]) < 1e-3
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("wrong", [1.01, float("nan")])
def test_a_wrong_gradient_is_noticed(monkeypatch, wrong):
    """As of a kernel that is wrong on this processor, of a layer in float32 alone."""
    convolve = torch.nn.Conv2d.forward

    def forward(self, images):
        maps = convolve(self, images)
        if images.dtype == torch.float32:
            maps.register_hook(lambda gradient: gradient * wrong)
        return maps

    monkeypatch.setattr(torch.nn.Conv2d, "forward", forward)
    outcome = try_step()
    assert not outcome.works
    assert "more than 0.002" in outcome.result


def test_a_driver_without_a_torch_that_uses_it_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device, "DRIVER", tmp_path / "version")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert try_gpu().works
    device.DRIVER.write_text("NVRM version")
    outcome = try_gpu()
    assert not outcome.works
    assert "PyTorch" in outcome.remedy
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert try_gpu().works
