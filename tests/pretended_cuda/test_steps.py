"""Training steps on the pretended device: numbers of the CPU, and a ceiling on the waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from dml.training.process_group import SINGLE_PROCESS
from dml.training.step import TrainingStep
from tests.methods.tiny_training import ccp_steps
from tests.pretended_cuda.waits import Wait, count_waits, listed
from tests.training import distributed_steps
from tests.training.distributed_steps import CASES, LOSSES, config_of, relative, trained

# With losses of ours. A method that calls the loss of another package adds the waits of that loss.
CEILINGS = {"plain": 1, "metrix": 4, "xbm": 2, "imix": 2, "mochi": 2, "proxy_synthesis": 2}
CALLS = {"xbm": 2}  # of the loss: for the batch, and for the memory


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Counter[Wait]]:
    """The waits of each training step so far."""
    found: list[Counter[Wait]] = []
    step = TrainingStep.__call__

    def count_step(self: TrainingStep, *arguments: Any) -> dict[str, Tensor]:
        with count_waits() as waits:
            values = step(self, *arguments)
        found.append(waits)
        return values

    monkeypatch.setattr(TrainingStep, "__call__", count_step)
    return found


def is_ours(loss: str) -> bool:
    target: str = config_of(loss).loss["_target_"]
    return target.startswith("dml.")


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_that_of_the_cpu_and_waits_seldom(case, steps):
    expected = trained(case, SINGLE_PROCESS)
    steps.clear()
    found = trained(case, SINGLE_PROCESS, "cuda")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert relative(found[name].cpu(), value) < (1e-3 if case == "bf16" else 1e-5), name

    most = max(steps, key=Counter.total)
    loss, method, _ = distributed_steps.METHODS.get(case, (case, "plain", {}))
    if loss not in LOSSES:  # a network, with a loss of ours
        assert most.total() <= CEILINGS["plain"], listed(most)
    elif is_ours(loss):
        ceiling = 2 if loss in ("pfml", "cpml") else CEILINGS[method]
        assert most.total() <= ceiling, listed(most)
    elif method != "plain":
        steps.clear()
        trained(loss, SINGLE_PROCESS, "cuda")
        own = max(waits.total() for waits in steps)
        assert most.total() <= CEILINGS[method] + CALLS.get(method, 1) * own, listed(most)


def test_steps_of_ccp_wait_twice():
    """Starts of stages apart: they embed the pool, and measure its radii."""
    losses = {"cpu": [step() for step in ccp_steps("cpu")], "cuda": []}
    for number, step in enumerate(ccp_steps("cuda")):
        with count_waits() as waits:
            losses["cuda"].append(step())
        assert number % 3 == 0 or waits.total() <= 2, listed(waits)
    cuda, cpu = (torch.stack(losses[device]).cpu() for device in ("cuda", "cpu"))
    torch.testing.assert_close(cuda, cpu, rtol=1e-5, atol=0)
